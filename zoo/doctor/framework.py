"""A framework on this machine: its build, the driver and libraries that it needs, and its devices."""

import importlib.util
import re
from collections.abc import Mapping
from importlib import metadata
from typing import Any, NamedTuple

from zoo.data.errors import UserError
from zoo.doctor import child, nvidia
from zoo.doctor.child import Answer, Tell, first_line
from zoo.doctor.nvidia import Driver
from zoo.doctor.report import ABSENT, FAILURE, OK, WARNING, Finding

IMPORT = "importing "  # the stage in which no device has been chosen yet
NO_FILE = re.compile(r"(lib[\w+-]+\.so[\w.]*): cannot open shared object file")
TF32_CAPABILITY = 8  # major compute capability from which on a GPU has TF32
MAX_NAMED = 3  # missing libraries
PRECISIONS = ("fp32", "fp64", "fp16", "bf16")
GPU_BUILD = "make setup-gpu FRAMEWORK={}"  # makes an environment of its own
MODES = ("fp32", "fp64", "fp16", "bf16", "amp")


class Start(NamedTuple):
    """A framework that has started on a device, or not.

    Attributes:
        framework: name of the framework.
        device: as it was asked for: auto, cpu, cuda:1.
        kind: the type of the device that it has started on; None if it did not start.
        modes: precision -> its 16-bit or other type, of the precisions that the device has.
    """

    framework: str
    device: str
    kind: str | None
    modes: Mapping[str, str]

    @property
    def name(self) -> str:
        """Name of the device to start on once more: the type that was chosen, if none was asked for."""
        return self.kind if self.device == "auto" and self.kind else self.device


class Result(NamedTuple):
    """What `examine` returns: the devices that were tried, and the lines about them."""

    starts: list[Start]
    findings: list[Finding]


def examine(framework: str, device: str | None, seconds: float, gpus: Driver) -> Result:
    """Start a framework on a device, and on the CPU, which others are compared with.

    Args:
        framework: name of the framework.
        device: as on the command line; None tries what train.py would take.
        seconds: time limit of each process.
        gpus: the driver of this machine.
    """
    if importlib.util.find_spec(framework) is None:
        finding = Finding(framework, "version", ABSENT, "not installed", f"pip install 'vision-zoo[{framework}]'")
        return Result([], [finding])
    asked = device or "auto"
    answers = {asked: child.ask(seconds, "device", framework, asked)}
    first = answers[asked]
    if first.failure and _at_import(first):
        return Result([Start(framework, asked, None, {})], [_import_failure(framework, first)])
    if asked != "cpu" and first.facts.get("kind") != "cpu":
        answers["cpu"] = child.ask(seconds, "device", framework, "cpu")
    facts = next((answer.facts for answer in answers.values() if "version" in answer.facts), first.facts)
    starts = [_start(framework, name, answer) for name, answer in answers.items()]
    needs_gpu = gpus.expected or asked.startswith("cuda")
    findings = [
        *_build(framework, facts, gpus, seconds, needs_gpu),
        *(_device(framework, name, answer, gpus) for name, answer in answers.items()),
    ]
    is_told = any(finding.state in (WARNING, FAILURE) for finding in findings)
    if gpus.devices and asked == "auto" and starts[0].kind == "cpu" and not is_told:
        text, remedy = f"{framework} does not see the GPU", "look at CUDA_VISIBLE_DEVICES, and try --device cuda"
        findings.append(Finding(framework, "cuda", WARNING, text, remedy))
    return Result(starts, findings)


def precisions(modes: Mapping[str, str], refused: Mapping[str, str]) -> str:
    """Return the precisions of a device in words: fp32, fp64 and fp16, no bf16; --amp is fp16."""
    words = ", ".join(name for name in PRECISIONS if name in modes)
    lacking = [name for name in PRECISIONS if name in refused]
    words += f"; no {', '.join(lacking)}" if lacking else ""
    return words + (f"; --amp is {modes['amp']}" if "amp" in modes else "; no --amp")


def _start(framework: str, device: str, answer: Answer) -> Start:
    kind = None if answer.failure else answer.facts.get("kind")
    return Start(framework, device, kind, answer.facts.get("modes") or {})


def _at_import(answer: Answer) -> bool:
    return str(answer.facts.get("stage", IMPORT)).startswith(IMPORT)


def _import_failure(framework: str, answer: Answer) -> Finding:
    name = f"{framework} {answer.facts.get('installed') or ''}".strip()
    library = NO_FILE.search(answer.failure or "")
    if library:
        text, remedy = f"{name} lacks the library {library[1]}", "reinstall it with all packages that it requires"
    else:
        text, remedy = f"{name}: {answer.failure}", f"see what python -c 'import {framework}' prints, or reinstall it"
    return Finding(framework, "version", FAILURE, text, remedy)


def _build(framework: str, facts: dict[str, Any], gpus: Driver, seconds: float, needs_gpu: bool) -> list[Finding]:
    """Return the lines about a framework's build and what it needs of CUDA."""
    version = facts.get("installed") or facts.get("version") or "of an unknown version"
    versions = facts.get("libraries") or {}
    if not versions and framework != "mindspore":
        return [Finding(framework, "version", OK, version)]  # it has not started on any device
    build = versions.get("cuda") or (nvidia.mindspore_build() if framework == "mindspore" else None)
    if build is None:
        text = f"{version}, a build without CUDA"
        if needs_gpu:
            reason = "but there is an NVIDIA GPU" if gpus.expected else "which --device asks for"
            return [Finding(framework, "version", WARNING, f"{text}, {reason}", GPU_BUILD.format(framework))]
        return [Finding(framework, "version", OK, text)]
    deep = "".join(
        f", {name} {versions[key]}" for key, name in (("cudnn", "cuDNN"), ("nccl", "NCCL")) if versions.get(key)
    )
    findings = [Finding(framework, "version", OK, f"{version}, for CUDA {build}{deep} and for CPUs")]
    unfit = nvidia.mismatch(build, gpus)
    if unfit:
        findings.append(Finding(framework, "driver", WARNING, *unfit))
    return findings + ([_libraries(framework, build, versions.get("cudnn"), seconds)] if needs_gpu else [])


def _libraries(framework: str, build: str, cudnn: str | None, seconds: float) -> Finding:
    names = nvidia.required(framework, build, cudnn)
    missing, failure = nvidia.missing(seconds, names)
    topic = "CUDA libraries"
    if failure:
        return Finding(framework, topic, WARNING, failure, f"reinstall the CUDA packages of {framework}")
    if missing:
        more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
        text = f"missing: {', '.join(missing[:MAX_NAMED])}{more}"
        return Finding(framework, topic, WARNING, text, GPU_BUILD.format(framework))
    return Finding(framework, topic, OK, f"all {len(names)} found" if names else f"not known for CUDA {build}")


def _device(framework: str, device: str, answer: Answer, gpus: Driver) -> Finding:
    """Return the line about a device."""
    facts = answer.facts
    if answer.failure:
        if device != "auto":
            return Finding(framework, device, FAILURE, answer.failure)
        remedy = "give --device cpu" if gpus.devices else f"give --device cpu; for a GPU {nvidia.INSTALL}"
        return Finding(framework, "default device", FAILURE, answer.failure, remedy)
    words = f"{facts['device'].partition(' ')[2].strip('()')}: " if " " in facts["device"] else ""
    words += precisions(facts["modes"], facts["refused"])
    if facts["kind"] == "cuda" and gpus.devices:
        name = facts["device"].partition(" ")[0]
        index = int(name.partition(":")[2] or 0)
        if index < len(gpus.devices):
            words += "; TF32" if gpus.devices[index]["capability"][0] >= TF32_CAPABILITY else "; no TF32"
    return Finding(framework, facts["device"].partition(" ")[0], OK, words)


def probe(tell: Tell, framework: str, device: str) -> None:
    """Tell what the framework says.

    Facts: `installed`, the version of the package; `version`, `libraries` and `device` (World), `kind`, the device's
    type; `modes`, precision -> the 16-bit type that it stands for; `refused`, precision -> why there is none.
    """
    from zoo.trainer import load_backend
    from zoo.trainer.plan import Mode
    from zoo.trainer.world import Launch

    tell(stage=f"importing {framework}", installed=_installed(framework))
    backend = load_backend(framework)
    tell(stage=f"starting on {device}")
    world = backend.start(Launch(), device)
    kind = world.device.partition(" ")[0].partition(":")[0]
    tell(version=world.version, libraries=world.libraries(), device=world.device, kind=kind)
    tell(stage="choosing precisions")
    modes, refused = {}, {}
    for precision in MODES:
        try:
            modes[precision] = world.resolve_mode(Mode(precision)).compute
        except UserError as error:
            refused[precision] = first_line(error)
    tell(modes=modes, refused=refused)


def _installed(framework: str) -> str | None:
    """Return the version of the package that provides a framework: of torch 2.13.0+cpu, not 2.13.0."""
    names = metadata.packages_distributions().get(framework, ())
    return metadata.version(names[0]) if names else None
