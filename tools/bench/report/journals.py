"""Runs from the folders of train.py."""

import os
import re
from collections.abc import Sequence
from typing import Any

from zoo.bench.report import matrices, measures, settings
from zoo.bench.report.fields import field, items, number, positive, text, whole
from zoo.bench.report.labels import natural
from zoo.bench.report.run import COMPLETE, FAILED, INCOMPLETE, MIXED, Case, Run
from zoo.logs import journal
from zoo.logs.journal import Event

SIXTEEN_BITS = ("fp16", "bf16")
MAX_OUTPUT = 64 << 10  # bytes at the end of the console output in which the error of a failed run is looked for
FACTS = ("framework_version", "device", "data", "seed", "global_batch", "launcher", "loader", "recipe_sha256")
COMMIT = 12  # digits of a commit that are shown
HOST_FACTS = ("name", "os", "cpu", "hardware", "driver")


def read(folder: str) -> Run:
    """Read a run's folder; a damaged journal gives what can be read of it."""
    events = journal.history(folder)
    begin = next(iter(measures.named(events, "begin")), {})
    target, warmup = positive(begin, "target"), number(begin, "warmup_epochs")
    values, counting = measures.measure(events, target, warmup or 0.0)
    changed = settings.changes(begin, measures.named(events, "resume"))
    state, remark = _state(folder, events, changed)
    hosts = items(begin, "hosts")
    return Run(
        path=folder,
        state=state,
        remark=remark,
        case=_case(begin, hosts, counting)._replace(variant=matrices.variant(folder)),
        values=values,
        metric=text(begin, "metric"),
        target=target,
        protocol=text(begin, "protocol"),
        checksum=text(begin, "checksum"),
        compute=text(begin, "compute"),
        tf32=_may_use_tf32(begin, hosts),
        flops_per_sample=positive(begin, "flops_per_sample"),
        facts=_facts(begin, hosts),
        settings=settings.read(begin, next(iter(measures.named(events, "speed")), None)),
        changed=changed,
        losses=measures.losses(events),
        metrics=measures.metrics(events),
    )


def _may_use_tf32(begin: Event, hosts: Sequence[Any]) -> bool:
    """Return whether fp32 may have been computed in TF32: as the framework's settings say, by default where none do."""
    if any(text(host, "environment", "NVIDIA_TF32_OVERRIDE") == "0" for host in hosts):
        return False
    recorded = begin.get("arithmetic")
    settings = recorded.items() if isinstance(recorded, dict) else ()
    found = [value not in (False, None, "0") for name, value in settings if "tf32" in name.lower()]
    return any(found) if found else True


def _case(begin: Event, hosts: Sequence[Any], counting: str | None) -> Case:
    return Case(
        model=text(begin, "model"),
        recipe=text(begin, "recipe"),
        framework=text(begin, "framework"),
        precision=_precision(begin),
        batch=whole(begin, "batch"),
        accumulate=whole(begin, "accumulate"),
        nodes=len(hosts) or None,
        cards=whole(begin, "ranks"),
        device=_device(begin, hosts),
        counting=counting,
    )


def _precision(begin: Event) -> str | None:
    precision, compute, level = (text(begin, key) for key in ("precision", "compute", "level"))
    if compute not in SIXTEEN_BITS:
        return precision or compute
    details = " ".join(word for word in (compute if precision != compute else None, level) if word)
    return f"{precision or 'amp'} ({details})" if details else precision


def _device(begin: Event, hosts: Sequence[Any]) -> str | None:
    """Return the name of the accelerators, or of the processor; several names are joined."""
    accelerators = [text(one, "name") for host in hosts for one in items(host, "accelerators")]
    names = accelerators or [text(host, "cpu") for host in hosts]
    known = sorted({name for name in names if name})
    if known:
        return " + ".join(known)
    device = text(begin, "device") or ""
    inside = re.fullmatch(r"\w+(?::\d+)? \((.*)\)", device)  # cuda:0 (Tesla V100-SXM2-16GB)
    return inside[1] if inside and not device.startswith("cpu") else device or None


def has_accelerator(run: Run) -> bool:
    """Return whether a run computed on an accelerator, not on the processor."""
    return bool(run.facts.get("accelerators")) or not str(run.facts.get("device", "cpu")).startswith("cpu")


def _facts(begin: Event, hosts: Sequence[Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for key in FACTS:
        value = text(begin, key) or number(begin, key)
        if value is not None:
            facts[key] = int(value) if isinstance(value, float) and value == int(value) else value
    for key in HOST_FACTS:
        names = sorted({name for host in hosts if (name := text(host, key))})
        if names:
            facts[f"host_{key}"] = ", ".join(names)
    accelerators = sum(len(items(host, "accelerators")) for host in hosts)
    libraries = {key: value for host in hosts[:1] for key in ("cuda", "cudnn", "nccl", "cann")
                 if (value := text(host, "libraries", key))}  # fmt: skip
    commit = (text(begin, "git", "commit") or "")[:COMMIT]
    dirty = " with changes" if field(begin, "git", "dirty") else ""
    return {
        **facts,
        **libraries,
        **({"accelerators": accelerators} if accelerators else {}),
        **({"commit": commit + dirty} if commit else {}),
    }


def _state(folder: str, events: Sequence[Event], changed: Sequence[str]) -> tuple[str, str]:
    """Return the state of a run and a remark."""
    ended = any(event["event"] == "end" for event in events)
    progress = measures.progress(events)
    if ended:
        method = [name for name in changed if settings.is_method(name)]
        return (MIXED, f"resumed with another {', '.join(method)}") if method else (COMPLETE, "")
    error = _error(folder)
    return (FAILED, f"{progress}: {error}") if error else (INCOMPLETE, progress)


def _error(folder: str) -> str | None:
    """Return the last error in the console output beside the folder, <folder>.log; None without one."""
    try:
        with open(os.path.normpath(folder) + ".log", "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(file.tell() - MAX_OUTPUT, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    errors = [
        line.strip() for line in lines if re.match(r"(error: |\w*(\.\w+)*(Error|Exception|Killed)\b)", line.strip())
    ]
    return errors[-1][:200] if errors else None


def is_run(folder: str) -> bool:
    """Return whether a folder has a journal."""
    return os.path.isfile(os.path.join(folder, journal.FILE))


def find(folder: str) -> list[str]:
    """Return the folders of runs at or below a folder, in the order of their names; links are not followed."""
    found = []
    for path, folders, files in os.walk(folder):
        folders.sort(key=natural)
        if journal.FILE in files:
            found.append(path)
            folders.clear()  # a run has checkpoints below it, no runs
    return found
