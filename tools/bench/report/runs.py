"""Runs: what is measured, and in which case. Read from the journals of train.py."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from zoo.bench.report.measures import Point, Values, first, measure, named, number, points, text, whole
from zoo.data.errors import UserError
from zoo.data.formats import regular
from zoo.data.parsing import parsing
from zoo.logs import journal
from zoo.logs.journal import Event

COMPLETE, INCOMPLETE, FAILED, SKIPPED, MIXED = "complete", "incomplete", "failed", "skipped", "mixed"
MATRIX, RESULTS = "matrix.json", "results.json"  # files of a benchmark matrix
MATRIX_DEPTH = 5  # of a run below its variant: framework, model, bz<batch>, <N>n<G>g, run
MAX_OUTPUT = 64 << 10  # bytes at the end of the console output in which the error of a failed run is looked for
ERROR_LINE = re.compile(r"error: |\w*(\.\w+)*(Error|Exception|Killed)\b")
# Fields of the events `begin` and `resume`. Those of METHOD decide what is measured: results from before and after a
# resume that changed one belong to no case.
METHOD = ("framework", "device", "precision", "compute", "level", "channels_last", "compile", "loss_scale", "optimizer",
          "ranks", "batch", "accumulate", "global_batch")  # fmt: skip
OTHERS = ("loader", "workers", "threads", "seed", "classes", "outputs", "arch", "recipe_sha256")
NULLABLE = ("level", "loss_scale", "optimizer", "arch")  # where null means that there is none; elsewhere, not known
DIGITS = 12  # of a digest that are kept


class Case(NamedTuple):
    """What the repeats of a measurement have in common; None where it is not known.

    Attributes:
        variant: of the code, in a matrix that compares several.
        precision: `fp32`, or with 16 bits the recipe's word, the type and the level: `amp (fp16 O1)`.
        batch: samples per card and micro-batch; accumulate: micro-batches per update.
        nodes, cards: number of hosts, and of all processes, one per card.
        device: name of the accelerator or of the processor.
        counting: how the throughput was counted.
    """

    model: str | None = None
    recipe: str | None = None
    variant: str | None = None
    framework: str | None = None
    precision: str | None = None
    batch: int | None = None
    accumulate: int | None = None
    nodes: int | None = None
    cards: int | None = None
    device: str | None = None
    counting: str | None = None

    @property
    def global_batch(self) -> int | None:
        """Samples per update."""
        return self.batch * self.cards * (self.accumulate or 1) if self.batch and self.cards else None


class Run(NamedTuple):
    """A run.

    Attributes:
        path: folder of the run, or file of the log.
        state: COMPLETE, INCOMPLETE, FAILED, SKIPPED by a benchmark, or MIXED: complete, its method changed by a resume.
        remark: how far it came, why it failed or was skipped, or what a resume changed; empty for a complete run.
        metric: name of the main metric; target: its target, a fraction.
        protocol: id of the way of sampling and evaluating.
        compute: type of the numbers: fp32, fp16, bf16 or fp64; tf32: whether fp32 may be computed in TF32.
        flops_per_sample: of a forward pass.
        facts: what was recorded of versions, commit and machine.
        settings: beside its case, as they were at its begin.
        changed: names of the settings that resumes changed.
        losses: training loss; metrics: main metric of each evaluation.
    """

    path: str
    state: str
    remark: str
    case: Case = Case()
    values: Values = Values()
    metric: str | None = None
    target: float | None = None
    protocol: str | None = None
    checksum: str | None = None
    compute: str | None = None
    tf32: bool = True
    flops_per_sample: float | None = None
    facts: Mapping[str, Any] = MappingProxyType({})
    settings: Mapping[str, str] = MappingProxyType({})
    changed: Sequence[str] = ()
    losses: Sequence[Point] = ()
    metrics: Sequence[Point] = ()


def find(folder: str) -> list[str]:
    """Return the folders of runs at or below a folder, in the order of their names."""
    found = []
    for path, folders, files in os.walk(folder):
        folders.sort(key=natural)
        if journal.FILE in files:
            found.append(path)
            folders.clear()  # a run has checkpoints below it, no runs
    return found


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts bz4 before bz16."""
    return [(int(part), "") if part.isdecimal() and len(part) < 16 else (-1, part) for part in re.split(r"(\d+)", name)]


def read(folder: str) -> Run:
    """Read a run's folder; one whose journal has fields of wrong types has failed."""
    try:
        with parsing(f"{journal.FILE} is damaged"):
            return _read(folder)
    except UserError as error:
        return Run(folder, FAILED, str(error))


def cases_without_runs(root: str) -> list[Run]:
    """Return the cases of a matrix that were skipped or have failed, with the reason."""
    path = os.path.join(root, RESULTS)
    if not os.path.isfile(path):
        return []
    with parsing(f"{path} cannot be read", "remove it; the benchmark writes it again"):
        return [
            Run(path, {"skipped": SKIPPED, "failed": FAILED}[case["status"]], case["reason"], _case_of_matrix(case))
            for case in regular.load_json(path)["cases"]
            if case["status"] != "done" and not case["count"]
        ]


def matrix_root(folder: str) -> str | None:
    """Return the folder of the matrix that a run belongs to; None if there is none."""
    path = Path(os.path.abspath(folder))
    return next((str(above) for above in path.parents[: MATRIX_DEPTH + 1] if (above / MATRIX).is_file()), None)


def _read(folder: str) -> Run:
    events = journal.history(folder)
    begin = first(events, "begin") or {}
    target, hosts = number(begin, "target"), begin.get("hosts") or []
    values, counting = measure(events, target, number(begin, "warmup_epochs") or 0.0)
    changed = changes(begin, named(events, "resume"))
    state, remark = _state(folder, events, changed)
    return Run(
        path=folder,
        state=state,
        remark=remark,
        case=Case(
            model=text(begin, "model"),
            recipe=text(begin, "recipe"),
            variant=_variant(folder),
            framework=text(begin, "framework"),
            precision=_precision(begin),
            batch=whole(begin, "batch"),
            accumulate=whole(begin, "accumulate"),
            nodes=len(hosts) or None,
            cards=whole(begin, "ranks"),
            device=_device(begin, hosts),
            counting=counting,
        ),
        values=values,
        metric=text(begin, "metric"),
        target=target,
        protocol=text(begin, "protocol"),
        checksum=text(begin, "checksum"),
        compute=text(begin, "compute"),
        tf32=_may_use_tf32(begin, hosts),
        flops_per_sample=number(begin, "flops_per_sample"),
        facts=_facts(begin, hosts),
        settings=settings_of(begin),
        changed=changed,
        losses=points(events, "train", "loss"),
        metrics=points(events, "eval", "accuracy"),
    )


def _case_of_matrix(case: Mapping[str, Any]) -> Case:
    names = {"nodes": "hosts", "cards": "processes"}
    keys = ("model", "recipe", "variant", "framework", "precision", "batch", "nodes", "cards")
    return Case(**{key: case.get(names.get(key, key)) or None for key in keys})


def _variant(folder: str) -> str | None:
    """Return the variant of a run in a matrix: the folder above the framework's; None without."""
    root = matrix_root(folder)
    parts = Path(os.path.abspath(folder)).relative_to(root).parts if root else ()
    return parts[0] if len(parts) == MATRIX_DEPTH + 1 else None


def _may_use_tf32(begin: Event, hosts: Sequence[Any]) -> bool:
    """Return whether fp32 may have been computed in TF32: as the framework's settings say, by default where none do."""
    if any(text(host, "environment", "NVIDIA_TF32_OVERRIDE") == "0" for host in hosts):
        return False
    recorded = begin.get("arithmetic") or {}
    found = [value not in (False, None, "0") for name, value in recorded.items() if "tf32" in name.lower()]
    return any(found) if found else True


def _precision(begin: Event) -> str | None:
    precision, compute, level = (text(begin, key) for key in ("precision", "compute", "level"))
    if compute not in ("fp16", "bf16"):
        return precision or compute
    details = " ".join(word for word in (compute if precision != compute else None, level) if word)
    return f"{precision or 'amp'} ({details})" if details else precision


def _device(begin: Event, hosts: Sequence[Any]) -> str | None:
    """Return the name of the accelerators, or of the processor; several names are joined."""
    accelerators = [text(one, "name") for host in hosts for one in host.get("accelerators") or ()]
    names = accelerators or [text(host, "cpu") for host in hosts]
    known = sorted({name for name in names if name})
    if known:
        return " + ".join(known)
    device = text(begin, "device") or ""
    inside = re.fullmatch(r"\w+(?::\d+)? \((.*)\)", device)  # cuda:0 (Tesla V100-SXM2-16GB)
    return inside[1] if inside and not device.startswith("cpu") else device or None


def _facts(begin: Event, hosts: Sequence[Any]) -> dict[str, Any]:
    plain = ("framework_version", "device", "data")
    facts: dict[str, Any] = {key: text(begin, key) for key in plain}
    for key in ("name", "os", "cpu", "driver"):
        facts[f"host_{key}"] = ", ".join(sorted({name for host in hosts if (name := text(host, key))}))
    for key in ("cuda", "cudnn", "nccl", "cann"):
        facts[key] = text(hosts[0], "libraries", key) if hosts else None
    commit = text(begin, "git", "commit")
    facts["commit"] = commit and commit[:12] + (" with changes" if begin["git"].get("dirty") else "")
    facts["accelerators"] = sum(len(host.get("accelerators") or ()) for host in hosts)
    facts["on_accelerator"] = facts["accelerators"] or not (facts["device"] or "cpu").startswith("cpu")
    return {key: value for key, value in facts.items() if value}


def _state(folder: str, events: Sequence[Event], changed: Sequence[str]) -> tuple[str, str]:
    """Return the state of a run and a remark."""
    if first(events, "end"):
        method = [name for name in changed if name.partition(".")[0] in METHOD]
        return (MIXED, f"resumed with another {', '.join(method)}") if method else (COMPLETE, "")
    begin = first(events, "begin")
    steps = [step for event in events if (step := number(event, "step")) is not None]
    planned = number(begin, "steps")
    progress = f"step {max(steps, default=0):.0f}" + (f" of {planned:.0f}" if planned else "")
    progress = progress if begin else "it has not begun"
    error = _error(folder)
    return (FAILED, f"{progress}: {error}") if error else (INCOMPLETE, progress)


def _error(folder: str) -> str | None:
    """Return the last error in the console output beside the folder, <folder>.log; None without one."""
    try:
        with open(os.path.normpath(folder) + ".log", "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - MAX_OUTPUT, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    errors = [line.strip() for line in lines if ERROR_LINE.match(line.strip())]
    return errors[-1][:200] if errors else None


def settings_of(event: Event) -> Mapping[str, str]:
    """Return the settings beside its case that an event, `begin` or `resume`, records, as text.

    Names have dots for what is inside of a field; unknown values are left out.
    """
    found = dict(_flat({name: event[name] for name in (*METHOD, *OTHERS) if name in event}))
    if "device" in found:
        found["device"] = re.sub(r"^(\w+):\d+", r"\1", found["device"])  # cuda:0 and cuda:1 are alike
    if "recipe_sha256" in found:
        found["recipe_sha256"] = found["recipe_sha256"][:DIGITS]
    return found


def differing(several: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the settings that are not the same in all, each with its values; an unknown value is not another one."""
    names = dict.fromkeys(name for settings in several for name in settings)
    found = {name: list(dict.fromkeys(one[name] for one in several if name in one)) for name in names}
    return {name: values for name, values in found.items() if len(values) > 1}


def changes(begin: Event, resumes: Iterable[Event]) -> list[str]:
    """Return the names of the settings that a resume changed; those that it does not record are as they were."""
    then = settings_of(begin)
    names = [name for resume in resumes for name in differing([then, settings_of(resume)])]
    return list(dict.fromkeys(names))


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and values as text, those inside dictionaries with dots."""
    for key, value in fields.items():
        name = prefix + key
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif value is not None or name.partition(".")[0] in NULLABLE:
            yield name, "none" if value is None else value if isinstance(value, str) else json.dumps(value)
