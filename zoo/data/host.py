"""Means of this host: CPU cores and memory, within the limits of the container, and a folder that runs share."""

import ctypes
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
LOADS = Path("/proc/loadavg")  # Linux: 0.52 0.58 0.59 2/345 6789
PROCESSORS = Path("/proc/cpuinfo")
SHARED_MEMORY = "/dev/shm"
PARENT_POLL_INTERVAL = 0.5  # seconds between two looks at the parent process
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl


def home(*names: str) -> str:
    """Return a path in the folder that runs share: $ZOO_HOME, by default `vision-zoo` in the user's cache folder."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(os.environ.get("ZOO_HOME") or os.path.join(caches, "vision-zoo"), *names)


def end_with_parent(parent: int, by_kernel: bool = False) -> None:
    """End this process when its parent has ended, at once if that has happened already.

    Args:
        by_kernel: have the kernel kill this process, which needs no Python thread that runs; Linux alone does. Only for
            a process that the parent's main thread has started: it is killed when the thread ends that started it.
    """
    if by_kernel:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_INTERVAL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def prctl(option: int, value: int) -> None:
    """Set a property of this process where the system is Linux."""
    function = getattr(ctypes.CDLL(None), "prctl", None)
    if function is not None:
        function(option, value)


def cores() -> list[int]:
    """Return the numbers of the CPU cores that this process may run on; macOS binds none."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def anonymous_file(name: str) -> int:
    """Return the descriptor of a file without a path, which goes with its last user: in memory, on macOS on a disk."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@contextmanager
def readable_path(content: bytes) -> Iterator[str]:
    """Give bytes a path for as long as the block lasts."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("content")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def core_share(cores_of_ranks: Sequence[Sequence[int]], local_rank: int, quota: float | None) -> float:
    """Return how many cores a process has for itself.

    Args:
        cores_of_ranks: `cores` of each process of the run on this host. Launchers may bind each to its own.
        quota: cores that all of them may use together, None without a limit.
    """
    users = [core for cores_of_rank in cores_of_ranks for core in cores_of_rank]
    share = sum(1 / users.count(core) for core in cores_of_ranks[local_rank])
    return share if quota is None else min(share, quota / len(cores_of_ranks))


def cpu_quota() -> float | None:
    """Return the limit of the container in cores, None without one."""
    text = _read(CGROUP / "cpu.max").split()  # cgroup v2: microseconds per period, and the period
    if len(text) == 2 and text[0] != "max":
        return int(text[0]) / int(text[1])
    quota, period = _read(CGROUP / "cpu/cpu.cfs_quota_us"), _read(CGROUP / "cpu/cpu.cfs_period_us")
    if quota and period and int(quota) > 0:
        return int(quota) / int(period)
    return None


@cache
def x264_parameters() -> tuple[str, ...]:
    """Return parameters that make x264 deterministic: its AVX-512 code gives different bytes in every run."""
    return ("asm=avx2",) if "avx512" in _read(PROCESSORS) else ()


def running() -> int:
    """Return how many threads of this host compute or are ready to, this one included; 0 where it is not known."""
    fields = _read(LOADS).split()
    return int(fields[3].partition("/")[0]) if len(fields) > 3 else 0


def available_memory() -> int:
    """Return the bytes that this process can use without swapping."""
    import psutil  # not at the top: zoo.parity runs sides in environments that lack it

    free = psutil.virtual_memory().available
    limit, used = _read(CGROUP / "memory.max"), _read(CGROUP / "memory.current")
    return min(free, max(int(limit) - int(used), 0)) if limit.isdigit() and used.isdigit() else free


def free_shared_memory() -> int | None:
    """Return the bytes that are free in /dev/shm; None on macOS, which has none."""
    return shutil.disk_usage(SHARED_MEMORY).free if os.path.isdir(SHARED_MEMORY) else None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
