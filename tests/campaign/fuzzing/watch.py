"""What one input does beside raising an error: code that runs, memory that is touched."""

import os
import re
import sys
from collections.abc import Sequence

MIB = 1 << 20
STATUS = re.compile(r"Vm(?:HWM|RSS):\s+(\d+)")
RESET_PEAK = "5"  # to /proc/self/clear_refs, see proc(5)
# Events of Python's audit hooks that no reader has a reason for, or beginnings of their names.
EVENTS = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.startfile",
    "os.putenv",
    "os.chmod",
    "os.chown",
    "os.kill",
    "subprocess.",
    "socket.",
    "pty.",
    "webbrowser.",
    "urllib.",
    "ftplib.",
    "http.",
    "smtplib.",
    "ctypes.dlopen",
    "pickle.find_class",
    "marshal.",
    "code.__new__",
    "function.__new__",
    "compile",
    "exec",
    "import",
    "shutil.",
    "sys.settrace",
    "builtins.input",
)
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
