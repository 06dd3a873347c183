"""Lines about how the runs of a model were made."""

from collections.abc import Callable, Sequence
from typing import Any

from zoo.bench.report.labels import natural
from zoo.bench.report.run import Run

VERSIONS = ("cuda", "cudnn", "nccl", "cann")
MAX_VALUES = 6  # of one kind that are listed


def describe(runs: Sequence[Run], model: str | None) -> list[str]:
    """Return what is known of the runs of a model, several values joined."""
    members = [run for run in runs if run.case.model == model]
    lines = {
        "recipe": _joined(members, lambda run: run.case.recipe),
        "protocol": _joined(members, lambda run: run.protocol),
        "data": _joined(members, _data),
        "throughput is counted over": _joined(members, lambda run: run.case.counting),
        "target": _joined(
            members, lambda run: run.target and f"{run.metric or 'main metric'} {100 * run.target:.4g} %"
        ),
        "operations of a forward pass": _joined(members, _operations),
        "device": _joined(members, _devices),
        "processor": _joined(members, lambda run: run.facts.get("host_cpu")),
        "hosts": _joined(members, lambda run: run.facts.get("host_name")),
        "system": _joined(members, lambda run: run.facts.get("host_os")),
        "driver": _joined(members, lambda run: run.facts.get("host_driver")),
        "libraries": _joined(members, _libraries),
        "framework": _joined(members, _framework),
        "commit": _joined(members, lambda run: run.facts.get("commit")),
    }
    return [f"{name}: {value}" for name, value in lines.items() if value]


def _joined(runs: Sequence[Run], value_of: Callable[[Run], Any]) -> str:
    values = sorted({str(value) for run in runs if (value := value_of(run))}, key=natural)
    more = f"; and {len(values) - MAX_VALUES} more" if len(values) > MAX_VALUES else ""
    return "; ".join(values[:MAX_VALUES]) + more


def _data(run: Run) -> str | None:
    name = run.facts.get("data")
    words = [str(name) if name else "", f"checksum {run.checksum}" if run.checksum else ""]
    return ", ".join(word for word in words if word) or None


def _operations(run: Run) -> str | None:
    return None if run.flops_per_sample is None else f"{run.flops_per_sample / 1e9:.4g} GFLOP per sample"


def _devices(run: Run) -> str | None:
    return run.case.device if run.facts.get("accelerators") else None


def _libraries(run: Run) -> str | None:
    return ", ".join(f"{name} {run.facts[name]}" for name in VERSIONS if name in run.facts) or None


def _framework(run: Run) -> str | None:
    version = run.facts.get("framework_version")
    return " ".join(word for word in (run.case.framework, str(version) if version else None) if word) or None
