"""The machine itself: system, processor, memory, shared memory, disks and limits of a process."""

import os
import resource
import shutil
import tempfile
from pathlib import Path
from typing import Any

from zoo.data import host as resources
from zoo.data.shared_memory import REMEDY
from zoo.doctor.finding import FAILURE, OK, WARNING, Finding, gigabytes

SECTION = "machine"
MIN_SHARED_MEMORY = 1e9  # bytes; Docker's default are 64 MB
MIN_MEMORY = 4e9  # bytes: a framework, its data workers and a small model
NO_DISK, LITTLE_DISK = 0.5e9, 5e9  # bytes: no room for logs and a checkpoint; room for few
MIN_OPEN_FILES = 4096
HOME = "~/.cache"  # of frameworks and of pip; the zoo keeps published weights in the folder of the run


def examine(machine: dict[str, Any]) -> list[Finding]:
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
        return Finding(SECTION, "shared memory", WARNING, text, "mount a tmpfs there, or take data.workers=0")
    text = f"{gigabytes(free)} free in {resources.SHARED_MEMORY}"
    if free < MIN_SHARED_MEMORY:
        text += ", little for data workers and NCCL"
        return Finding(SECTION, "shared memory", WARNING, text, REMEDY)
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
