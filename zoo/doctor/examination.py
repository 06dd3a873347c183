"""The whole diagnosis: the machine, what decodes data, launchers, and each framework on its devices."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from zoo.distributed import machine as description
from zoo.doctor import framework, machine, nvidia, update
from zoo.doctor.framework import Start
from zoo.doctor.nvidia import Driver
from zoo.doctor.report import WARNING, Finding, has_failure
from zoo.doctor.update import Reference

TIMEOUT = 120.0  # seconds of the driver, and of each decoder; a driver may take half a minute to start many GPUs
Show = Callable[[Sequence[Finding]], None]


class Question(NamedTuple):
    """What is asked for.

    Attributes:
        frameworks: their names.
        device: as on the command line; None: any.
        quick: leave out the updates.
        seconds: time limit of each process.
    """

    frameworks: tuple[str, ...]
    device: str | None
    quick: bool
    seconds: float


def examine(question: Question, show: Show) -> list[tuple[str, str]]:
    """Examine everything.

    Args:
        question: what is asked for.
        show: receives findings as soon as they are there.

    Returns:
        The frameworks and devices that training can start with; none if the machine itself prevents it.
    """
    findings: list[Finding] = []

    def add(more: Sequence[Finding]) -> None:
        findings.extend(more)
        show(more)

    described = description.describe({}, os.getcwd())
    add(machine.examine_host(described))
    add(machine.examine_network())
    seconds = min(question.seconds, TIMEOUT)
    gpus, lines = nvidia.examine(seconds, described["driver"])
    add(lines)
    add(machine.examine_decoders(seconds))
    add(_dali(gpus))
    add(machine.examine_launchers())
    is_blocked = has_failure(findings)
    usable: list[tuple[str, str]] = []
    on_cpu: dict[str, Reference] = {}  # framework -> its updates on the CPU
    for name in question.frameworks:
        result = framework.examine(name, question.device, question.seconds, gpus)
        add(result.findings)
        for start in sorted(result.starts, key=lambda start: start.kind != "cpu"):
            if start.kind is None:
                continue
            is_asked = question.device in (None, "auto", start.device)
            for device in [start.name] if question.quick else _devices(start, gpus):
                lines = [] if question.quick or is_blocked else _updates(start, device, question.seconds, on_cpu)
                add(lines)
                if is_asked and not has_failure(lines):
                    usable.append((name, device))
    return [] if is_blocked else usable


def _devices(start: Start, gpus: Driver) -> list[str]:
    """Return the devices to compute on: where the framework has chosen a GPU by itself, the other GPUs too."""
    count = len(gpus.devices) if start.device == "auto" and start.kind == "cuda" else 1
    return [start.name, *(f"{start.name}:{index}" for index in range(1, count))]


def _updates(start: Start, device: str, seconds: float, on_cpu: dict[str, Reference]) -> list[Finding]:
    """Return the lines about updates on a device, and add those on a CPU to `on_cpu`; --amp on the first GPU alone."""
    if start.kind == "cpu":
        reference = next(iter(on_cpu.values()), None)
        finding, sound = update.examine(start.framework, "cpu", "fp32", seconds, reference)
        if sound:
            on_cpu[start.framework] = Reference(f"{start.framework} on the CPU", sound)
        return [finding]
    reference = on_cpu.get(start.framework)
    precisions = ["fp32", *([start.modes["amp"]] if "amp" in start.modes and device == start.name else [])]
    return [update.examine(start.framework, device, name, seconds, reference)[0] for name in precisions]


def _dali(gpus: Driver) -> list[Finding]:
    """Return a line if DALI cannot decode on the GPU."""
    build = machine.dali_build()
    unfit = nvidia.mismatch(build, gpus) if build else None
    return [Finding(machine.DATA, "DALI on GPUs", WARNING, *unfit)] if unfit else []
