"""The whole diagnosis: the machine, and each framework on its devices."""

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

from zoo.data import extras
from zoo.data.errors import UserError
from zoo.distributed import machine as description
from zoo.doctor import child, machine, update
from zoo.doctor.child import ABSENT, FAILURE, OK, WARNING, Answer, Finding, Report, has_failure
from zoo.doctor.machine import Driver
from zoo.doctor.update import Reference

TIMEOUT = 120.0  # seconds of the driver, and of each decoder; a driver may take half a minute to start many GPUs
IMPORT = "importing "  # the stage in which no device has been chosen yet
PRECISIONS = ("fp32", "fp64", "fp16", "bf16")
GPU_BUILD = "make setup-gpu FRAMEWORK={}"  # makes an environment of its own
Show = Callable[[Sequence[Finding]], None]


class Start(NamedTuple):
    framework: str
    device: str  # as it was asked for: auto, cpu, cuda:1
    kind: str | None  # the type of the device that it has started on; None if it did not start
    modes: Mapping[str, str]  # precision -> its 16-bit or other type, of the precisions that the device has

    @property
    def name(self) -> str:
        """Name of the device to start on once more: the type that was chosen, if none was asked for."""
        return self.kind if self.device == "auto" and self.kind else self.device


def examine(
    frameworks: Sequence[str], device: str | None, quick: bool, seconds: float, show: Show
) -> list[tuple[str, str]]:
    """Examine everything.

    Args:
        device: as on the command line; None: any.
        quick: leave out the updates.
        seconds: time limit of each process.
        show: receives findings as soon as they are there.

    Returns:
        The frameworks and devices that training can start with; none if the machine itself prevents it.
    """
    described = description.describe({}, os.getcwd())
    host = machine.examine_host(described)
    show(host)
    gpus, lines = machine.examine_driver(min(seconds, TIMEOUT))
    show(lines)
    show(machine.examine_decoders(min(seconds, TIMEOUT)))
    show(machine.examine_launchers())
    is_blocked = has_failure(host)
    usable: list[tuple[str, str]] = []
    on_cpu: dict[str, Reference] = {}  # framework -> its updates on the CPU
    for name in frameworks:
        starts, lines = start(name, device, seconds, gpus)
        show(lines)
        for begun in sorted(starts, key=lambda begun: begun.kind != "cpu"):
            for each in _devices(begun, gpus, quick):
                lines = [] if quick or is_blocked else _updates(begun, each, seconds, on_cpu)
                show(lines)
                if device in (None, "auto", begun.device) and not has_failure(lines):
                    usable.append((name, each))
    return [] if is_blocked else usable


def start(framework: str, device: str | None, seconds: float, gpus: Driver) -> tuple[list[Start], list[Finding]]:
    """Start a framework on a device, and on the CPU, which others are compared with.

    Args:
        device: as on the command line; None tries what train.py would take.

    Returns:
        The devices that were tried, and the lines about them.
    """
    if importlib.util.find_spec(framework) is None:
        return [], [Finding(framework, "version", ABSENT, "not installed", extras.how_to_install(framework))]
    asked = device or "auto"
    answers = {asked: child.ask(seconds, "device", framework, asked)}
    first = answers[asked]
    if first.failure and first.facts.get("stage", IMPORT).startswith(IMPORT):
        name = f"{framework} {first.facts.get('installed') or ''}".strip()
        remedy = f"see what python -c 'import {framework}' prints, or reinstall it"
        finding = Finding(framework, "version", FAILURE, f"{name}: {first.failure}", remedy)
        return [Start(framework, asked, None, {})], [finding]
    if asked != "cpu" and first.facts.get("kind") != "cpu":
        answers["cpu"] = child.ask(seconds, "device", framework, "cpu")
    facts = next((answer.facts for answer in answers.values() if "version" in answer.facts), first.facts)
    starts = [
        Start(framework, name, None if answer.failure else answer.facts["kind"], answer.facts.get("modes", {}))
        for name, answer in answers.items()
    ]
    findings = [
        _build(framework, facts, gpus, gpus.expected or asked.startswith("cuda")),
        *(_device(framework, name, answer, gpus) for name, answer in answers.items()),
    ]
    is_explained = any(finding.state in (WARNING, FAILURE) for finding in findings)
    if gpus.devices and asked == "auto" and starts[0].kind == "cpu" and not is_explained:
        text, remedy = f"{framework} does not see the GPU", "look at CUDA_VISIBLE_DEVICES, and try --device cuda"
        findings.append(Finding(framework, "cuda", WARNING, text, remedy))
    return starts, findings


def precisions(modes: Mapping[str, str]) -> str:
    """Return the precisions of a device in words: fp32, fp64 and fp16, no bf16; --amp is fp16."""
    words = ", ".join(name for name in PRECISIONS if name in modes)
    lacking = [name for name in PRECISIONS if name not in modes]
    words += f"; no {', '.join(lacking)}" if lacking else ""
    return words + (f"; --amp is {modes['amp']}" if "amp" in modes else "; no --amp")


def _devices(start: Start, gpus: Driver, quick: bool) -> list[str]:
    """Return the devices to compute on: where the framework has chosen a GPU by itself, the other GPUs too."""
    if start.kind is None:
        return []
    count = len(gpus.devices) if start.device == "auto" and start.kind == "cuda" and not quick else 1
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
    names = ["fp32", *([start.modes["amp"]] if "amp" in start.modes and device == start.name else [])]
    return [update.examine(start.framework, device, name, seconds, reference)[0] for name in names]


def _build(framework: str, facts: dict[str, Any], gpus: Driver, needs_gpu: bool) -> Finding:
    """Return the line about a framework's build, and whether the driver is new enough for it."""
    version = facts.get("installed") or facts.get("version") or "of an unknown version"
    versions = facts.get("libraries")
    if not versions or framework == "mindspore":  # it has not started on any device; MindSpore does not say
        return Finding(framework, "version", OK, version)
    if not versions.get("cuda"):
        text = f"{version}, a build without CUDA"
        if not needs_gpu:
            return Finding(framework, "version", OK, text)
        reason = "but there is an NVIDIA GPU" if gpus.expected else "which --device asks for"
        return Finding(framework, "version", WARNING, f"{text}, {reason}", GPU_BUILD.format(framework))
    unfit = machine.mismatch(versions["cuda"], gpus)
    if unfit:
        return Finding(framework, "version", WARNING, f"{version}: {unfit[0]}", unfit[1])
    deep = "".join(
        f", {name} {versions[key]}" for key, name in (("cudnn", "cuDNN"), ("nccl", "NCCL")) if versions.get(key)
    )
    return Finding(framework, "version", OK, f"{version}, for CUDA {versions['cuda']}{deep} and for CPUs")


def _device(framework: str, device: str, answer: Answer, gpus: Driver) -> Finding:
    if answer.failure:
        topic, remedy = device, ""
        if device == "auto":
            install = "" if gpus.devices else f"; for a GPU {machine.INSTALL}"
            topic, remedy = "default device", f"give --device cpu{install}"
        return Finding(framework, topic, FAILURE, answer.failure, remedy)
    facts = answer.facts
    name, _, detail = facts["device"].partition(" ")
    words = f"{detail.strip('()')}: " * bool(detail) + precisions(facts["modes"])
    return Finding(framework, name, OK, words)


def probe(report: Report, framework: str, device: str) -> None:
    """Start the framework on a device.

    Facts: `installed`, the version of the package; `version`, `libraries` and `device` (World), `kind`, the device's
    type; `modes`, precision -> the 16-bit type that it stands for, of those that the device has.
    """
    from zoo.trainer import load_backend
    from zoo.trainer.plan import Mode
    from zoo.trainer.world import Launch

    names = metadata.packages_distributions().get(framework, ())  # of torch 2.13.0+cpu, not 2.13.0
    report(stage=f"{IMPORT}{framework}", installed=metadata.version(names[0]) if names else None)
    backend = load_backend(framework)
    report(stage=f"starting on {device}")
    world = backend.start(Launch(), device)
    kind = world.device.partition(" ")[0].partition(":")[0]
    report(version=world.version, libraries=world.libraries(), device=world.device, kind=kind)
    report(stage="choosing precisions")
    modes = {}
    for precision in (*PRECISIONS, "amp"):
        try:
            modes[precision] = world.resolve_mode(Mode(precision)).compute
        except UserError:
            continue
    report(modes=modes)
