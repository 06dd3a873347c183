"""Peak resident memory of this process and of all processes that it has started."""

import os
import re
from pathlib import Path

import psutil

PROC = Path("/proc")


class HostMemory:
    """Peak over the run so far of the sum over processes.

    A process that has ended, such as a worker of an evaluation, counts as long as it was seen. Pages that processes
    share, such as batches in shared memory, count in each of them.
    """

    def __init__(self) -> None:
        self._peak = 0

    def read(self) -> int:
        """Return the bytes."""
        self._peak = max(self._peak, sum(_peak_of(pid) for pid in family(os.getpid())))
        return self._peak


def family(pid: int) -> list[int]:
    """Return a process and all of its descendants."""
    pids, found = [pid], []
    while pids:
        found.append(pids.pop())
        pids += _children(found[-1])
    return found


def _children(pid: int) -> list[int]:
    """Return the children of a process; the kernel lists them by the thread that has started them."""
    tasks = list((PROC / str(pid) / "task").glob("*"))
    if tasks and not any((task / "children").exists() for task in tasks):  # a kernel without these lists
        return [child.pid for child in psutil.Process(pid).children()] if psutil.pid_exists(pid) else []
    return [int(child) for task in tasks for child in _read(task / "children").split()]


def _peak_of(pid: int) -> int:
    """Return the peak resident memory of a process in bytes, 0 if it has ended."""
    match = re.search(r"^VmHWM:\s*(\d+) kB$", _read(PROC / str(pid) / "status"), re.MULTILINE)
    return 1024 * int(match[1]) if match else 0


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # the process has ended
        return ""
