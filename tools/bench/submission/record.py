"""The fields of a run's journal that submissions read, and their types."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zoo.data.errors import UserError
from zoo.logs.journal import Event

MAX_NUMBER = 1e15  # a larger one cannot be meant
Test = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def is_list(value: Any) -> bool:
    return isinstance(value, list)


def is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER


def is_natural(value: Any) -> bool:
    return is_number(value) and isinstance(value, int) and value >= 0


def is_count(value: Any) -> bool:
    return is_natural(value) and value > 0


def optional(test: Test) -> Test:
    """Return a test that accepts None too, and a missing field."""
    return lambda value: value is None or test(value)


def is_list_of_hosts(value: Any) -> bool:
    """Return whether a value is a list of machines, each with its accelerators."""
    return is_list(value) and all(is_dict(host) and _is_list_of_dicts(host.get("accelerators", [])) for host in value)


def _is_list_of_dicts(value: Any) -> bool:
    return is_list(value) and all(map(is_dict, value))


EVENTS: dict[str, dict[str, Test]] = {
    "load": {"at": is_number, "train_samples": is_count},
    "eval": {
        "step": is_natural,
        **dict.fromkeys(("epoch", "accuracy"), is_number),
        "seconds": optional(is_number),
        **dict.fromkeys(("samples", "bad"), optional(is_natural)),
    },
    "end": {"step": is_natural, "epoch": is_number},
    "resume": {
        "step": is_natural,
        **dict.fromkeys(("git", "optimizer"), optional(is_dict)),
        "hosts": optional(is_list_of_hosts),
    },
}
BEGIN: dict[str, Test] = {
    **dict.fromkeys(("framework", "framework_version", "recipe", "model", "task", "data", "protocol"), is_text),
    **dict.fromkeys(("metric", "weights", "compute", "eval_every", "launcher"), is_text),
    **dict.fromkeys(("ranks", "batch", "accumulate", "global_batch", "steps", "parameters"), is_count),
    **dict.fromkeys(("train_samples", "val_samples"), is_count),
    **dict.fromkeys(("seed", "warmup_epochs"), is_natural),
    **dict.fromkeys(("arch", "optimizer"), is_dict),
    **dict.fromkeys(("command", "hosts"), is_list),
    "epochs": is_number,
    "target": optional(is_number),
    "git": optional(is_dict),
}
OPTIMIZER: dict[str, Test] = {
    **dict.fromkeys(("name", "schedule", "milestone_unit"), is_text),
    **dict.fromkeys(("lr", "peak_lr", "min_lr", "weight_decay", "power", "gamma"), is_number),
    "clip_norm": optional(is_number),
    "milestones": is_list,
    "warmup_steps": is_natural,
}
HOST: dict[str, Test] = {
    **dict.fromkeys(("ranks", "accelerators"), is_list),
    **dict.fromkeys(("libraries", "environment"), is_dict),
    **dict.fromkeys(("os", "cpu", "hardware", "storage_type"), optional(is_text)),
    **dict.fromkeys(("sockets", "cores", "accelerators_present"), optional(is_natural)),
    **dict.fromkeys(("memory_bytes", "storage_bytes"), optional(is_number)),
    "python": is_text,
}
ACCELERATOR: dict[str, Test] = {"name": is_text, "memory_bytes": optional(is_number)}


def check(path: str, events: Sequence[Event]) -> Event:
    """Check the events of a run, and return `begin`. A `load` without a checksum gets None for it.

    Args:
        path: of the journal, for messages.
        events: of the run.

    Raises:
        UserError: an event is missing, or a field is missing or of another type.
    """
    begin = next((event for event in events if event["event"] == "begin"), None)
    if begin is None:
        raise UserError(f"{path}: the run has not begun; there is no event `begin`")
    if not any(event["event"] == "load" for event in events):
        raise UserError(f"{path}: damaged, there is no event `load`")
    for event in events:
        if event["event"] == "load":
            event.setdefault("checksum", None)
        wrong = _wrong(event, {"time": is_number, **EVENTS.get(event["event"], {})})
        if wrong:
            raise UserError(f"{path}: damaged, an event `{event['event']}` has no usable {', '.join(wrong)}")
    wrong = _wrong(begin, BEGIN)
    if not wrong:
        wrong = [f"optimizer.{name}" for name in _wrong(begin["optimizer"], OPTIMIZER)]
        for number, host in enumerate(begin["hosts"]):
            wrong += [f"hosts[{number}]{name}" for name in _wrong_of_host(host)]
        wrong += [] if begin["hosts"] else ["hosts"]
    if wrong:
        raise UserError(
            f"{path}: the event `begin` has no usable {', '.join(wrong)}; of a run of an older version, "
            "train again with this one"
        )
    return begin


def _wrong_of_host(host: Any) -> list[str]:
    if not isinstance(host, dict):
        return [""]
    wrong = [f".{name}" for name in _wrong(host, HOST)]
    devices = host.get("accelerators")
    for number, device in enumerate(devices if isinstance(devices, list) else []):
        names = _wrong(device, ACCELERATOR) if isinstance(device, dict) else [""]
        wrong += [f".accelerators[{number}].{name}" for name in names]
    return wrong


def _wrong(values: Mapping[str, Any], tests: Mapping[str, Test]) -> list[str]:
    """Return the names of the fields that are missing or fail their test."""
    return [name for name, test in tests.items() if not test(values.get(name)) or _is_nan(values.get(name))]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
