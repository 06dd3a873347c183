"""The child process of the campaign against readers of files: makes inputs, reads them, and measures.

python -m tests.campaign.fuzzing.worker '{"readers": ..., "kinds": [...], "seed": 0, "count": 5000, "first": 0,
                                          "warm_up": 150, "limits": [10, 180], "results": "results.jsonl"}'

An input follows from the kind, the seed and its number alone; its position counts those of all kinds. `results`
receives a line of JSON per failure and, after the last input of a kind, the figures. `results`.progress holds the
position of the input that is being read, so that whoever started this process knows which one ended it.
"""

import codecs
import contextlib
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from tests.campaign.fuzzing import mutations
from tests.campaign.fuzzing.readers import Reader
from tests.campaign.fuzzing.seeds import Files
from tests.campaign.fuzzing.structures import CANARY, STRUCTURE
from zoo.data.errors import BadSample, UserError

MIB = 1 << 20
FREE_MEMORY, EXPANSION = 256 * MIB, 20  # limit of an input: the greater of the first, and so many times its size
ADDRESS_SPACE = 6 << 30  # bytes that the process may map, beyond those at the start
PROGRESS = struct.Struct("<q")
# Modules that libraries import later nevertheless.
MODULES = ("PIL", "numpy", "encodings", "torch", "cv2", "av", "decord", "zipfile", "ctypes", "_", "stringprep",
           "unicodedata")  # fmt: skip
# Modules that PyTorch imports when a file names a nested tensor.
LATE_MODULES = ("torch.nested._internal.ops", "torch.nested._internal.sdpa")
CODECS = ("ascii", "latin-1", "utf-16", "utf-32", "unicode_escape", "raw_unicode_escape", "cp437", "idna", "punycode")
UNREAD = ".jpg"  # end of names of files whose existence alone matters
MEMORY_FS = "/dev/shm"
STATUS = re.compile(r"Vm(?:HWM|RSS):\s+(\d+)")
RESET_PEAK = "5"  # to /proc/self/clear_refs, see proc(5)
# Events of Python's audit hooks that no reader has a reason for, or beginnings of their names.
EVENTS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.putenv", "os.chmod", "os.chown",
          "os.kill", "subprocess.", "socket.", "pty.", "webbrowser.", "urllib.", "ftplib.", "http.", "smtplib.",
          "ctypes.dlopen", "pickle.find_class", "marshal.", "code.__new__", "function.__new__", "compile", "exec",
          "import", "shutil.", "sys.settrace", "builtins.input")  # fmt: skip
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate")
CYTHON = ("av/",)
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Actions:
    """Notices code that runs and files that change outside of some folders, from `start` to `stop`.

    Args:
        folders: where files may be written.
        modules: beginnings of the names of modules that may be imported.
    """

    def __init__(self, folders: Sequence[str], modules: Sequence[str]):
        self._folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)
        self._modules = tuple(modules)
        self._watching = False
        self._seen: list[str] = []
        sys.addaudithook(self._hook)

    def start(self) -> None:
        """Watch from here on."""
        self._seen.clear()
        self._watching = True

    def stop(self) -> list[str]:
        """Stop watching, and return what was seen, in words."""
        self._watching = False
        return list(self._seen)

    def _hook(self, event: str, arguments: tuple) -> None:
        if not self._watching:
            return
        if event == "open":
            path, mode, flags = arguments
            is_write = bool(set(mode or "") & set("wax+")) if mode is not None else bool((flags or 0) & WRITE_FLAGS)
            if is_write and not self._is_allowed(path):
                self._note(event, arguments)
        elif event.startswith(CHANGES):
            if not self._is_allowed(arguments[0]):
                self._note(event, arguments)
        elif event == "import":
            if not str(arguments[0]).startswith(self._modules):
                self._note(event, arguments[:1])
        elif event.startswith(EVENTS) and not _is_traceback(event, arguments):
            self._note(event, arguments)

    def _is_allowed(self, path: object) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return True  # a descriptor, whose opening was seen
        return os.fsdecode(os.path.abspath(path)).startswith(self._folders)

    def _note(self, event: str, arguments: tuple) -> None:
        self._watching = False  # repr may do anything
        self._seen.append(f"{event} {str(arguments)[:200]}")
        self._watching = True


def _is_traceback(event: str, arguments: tuple) -> bool:
    """Return whether Cython makes a code object for a traceback, in which it names a file of its package."""
    name = str(arguments[1]) if event in ("compile", "code.__new__") else ""
    return name.startswith(CYTHON)


class Memory:
    """Measures the memory that is touched, from `start` to `stop`."""

    def start(self) -> None:
        """Forget the peak so far."""
        with open("/proc/self/clear_refs", "w") as file:
            file.write(RESET_PEAK)
        self._before = _status()[0]

    def stop(self) -> int:
        """Return the bytes at the peak beyond those before."""
        return max(0, _status()[0] - self._before) * 1024


def _status() -> list[int]:
    """Return the peak of the resident memory and the resident memory, in KiB."""
    with open("/proc/self/status") as file:
        return [int(number) for number in STATUS.findall(file.read())]


def main(task: Mapping[str, Any]) -> None:
    """Read the inputs from a position on."""
    module, table = task["readers"].split(":")
    readers, kinds, count = getattr(importlib.import_module(module), table), task["kinds"], task["count"]
    cpu, waiting = task["limits"]
    where = MEMORY_FS if os.path.isdir(MEMORY_FS) else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=where) as folder:
        os.chdir(folder)
        for codec in CODECS:  # modules that Python imports when they are first used
            codecs.lookup(codec)
        for name in LATE_MODULES:
            importlib.import_module(name)
        actions = Actions([folder, "/dev/null"], MODULES)
        _limit_address_space()
        with (
            open(task["results"], "a", encoding="utf-8") as results,
            open(f"{task['results']}.progress", "wb", buffering=0) as progress,
        ):
            start = task["first"]
            while start < count * len(kinds):
                kind, number = kinds[start // count], start % count
                os.pwrite(progress.fileno(), PROGRESS.pack(-1), 0)
                _allow(100 * cpu, 10 * waiting)
                session = Session(readers[kind], kind, task["seed"], Path(folder), actions)
                session.warm_up(task["warm_up"])
                for position in range(start, start - number + count):
                    os.pwrite(progress.fileno(), PROGRESS.pack(position), 0)
                    _allow(cpu, waiting)
                    for failure in session.attack(position % count):
                        _write_line(results, {"position": position, "failure": failure})
                _write_line(results, {"position": position, "figures": session.figures})
                start = position + 1


def _allow(cpu: float, waiting: int) -> None:
    """Let signals end this process after so many seconds of CPU time, or of waiting."""
    signal.setitimer(signal.ITIMER_PROF, cpu)
    signal.alarm(waiting)


def _write_line(file: TextIO, entry: Mapping[str, Any]) -> None:
    file.write(json.dumps(entry) + "\n")
    file.flush()


class Session:
    """A reader under attack.

    Attributes:
        figures: the largest of what was measured, and the share of inputs that were read without an error.
    """

    def __init__(self, reader: Reader, kind: str, seed: int, folder: Path, actions: Actions):
        self.reader, self.kind, self.seed, self.inputs = reader, kind, seed, folder / "inputs"
        self.figures = {"seconds": 0.0, "MiB": 0.0, "memory / limit": 0.0, "share read": 0.0}
        self.counts = [0, 0]  # of refused and of accepted inputs
        self.memory, self.actions = Memory(), actions
        self.seeds = reader.seeds()
        shutil.rmtree(self.inputs, ignore_errors=True)  # those of another reader
        self.written: Files = {}
        for files in self.seeds:
            self._write(files)
            with contextlib.redirect_stdout(None):
                reader.read(self.inputs)  # a seed is valid

    def warm_up(self, count: int) -> None:
        """Read other inputs, for which libraries import what they need."""
        for number in range(count):
            self._write(make(self.seeds, self.kind, -1, number))
            self._read()

    def attack(self, number: int) -> list[str]:
        """Make an input, read it, and return the harm that it did, in words."""
        files = make(self.seeds, self.kind, self.seed, number)
        size = sum(map(len, files.values()))
        self._write(files)
        self.memory.start()
        began = time.process_time()
        self.actions.start()
        error = self._read()
        executed = self.actions.stop()
        seconds, peak = time.process_time() - began, self.memory.stop()
        self.counts[error is None] += 1
        self.figures["share read"] = self.counts[True] / sum(self.counts)
        limit = max(FREE_MEMORY, EXPANSION * size)
        self._measure(seconds=seconds, MiB=peak / MIB, **{"memory / limit": peak / limit})
        failures = [f"code: {action}" for action in executed]
        if isinstance(error, UserError | BadSample):
            if not self.reader.is_open and str(self.inputs) not in str(error):
                failures.append(f"message without a file: {error}")
        elif error is not None:
            failures.append(f"traceback: {''.join(traceback.format_exception(error))}")
        if os.path.exists(CANARY) or os.path.exists(self.inputs / CANARY):
            failures.append("code: the canary was executed")
        if peak > limit:
            failures.append(f"memory: {peak / MIB:.0f} MiB for {size} bytes")
        return failures

    def _read(self) -> BaseException | None:
        """Read the input, and return what was raised."""
        try:
            with contextlib.redirect_stdout(None):
                self.reader.read(self.inputs)
        except BaseException as error:  # a finding, SystemExit included
            return error
        return None

    def _measure(self, **figures: float) -> None:
        for name, value in figures.items():
            self.figures[name] = max(self.figures[name], value)

    def _write(self, files: Files) -> None:
        """Make the folder of inputs hold these files alone."""
        for name in set(self.written) - set(files):
            os.remove(self.inputs / name)
        for name, content in files.items():
            if self.written.get(name) != content:
                path = self.inputs / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        self.written = files


def make(valid: Sequence[Files], kind: str, seed: int, number: int) -> Files:
    """Return the files of an input: valid ones, of which one or two are mutated one to four times."""
    rng = random.Random(f"{kind}/{seed}/{number}")
    files = dict(rng.choice(valid))
    for _ in range(rng.choice((1, 1, 1, 1, 2))):
        name = rng.choice([name for name in files if not name.endswith(UNREAD)])
        if rng.random() < 0.005:
            files = {other: content for other, content in files.items() if other != name or len(files) == 1}
            break
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            files[name] = _mutate(rng, name, files[name], valid)
    return files


def _mutate(rng: random.Random, name: str, content: bytes, valid: Sequence[Files]) -> bytes:
    draw = rng.random()
    if draw < 0.05:
        others = [files[name] for files in valid if name in files] or [content]
        mutated = mutations.splice(rng, content, rng.choice(others))
    else:
        structure = STRUCTURE.get(os.path.splitext(name)[1], ())
        mutated = (rng.choice(structure) if structure and draw < 0.6 else mutations.mutate_bytes)(rng, content)
    return mutated[: mutations.MAX_SIZE]


def _limit_address_space() -> None:
    """Let an allocation of many gigabytes fail, instead of the machine."""
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESS_SPACE,) * 2)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
