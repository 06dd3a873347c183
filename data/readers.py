"""Read-ahead of batches by worker processes or threads. The only module that imports Grain."""

import gc
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

import numpy as np

from data import host
from data.batch import Allocate
from data.errors import UserError

Element = TypeVar("Element")
Read = Callable[[int, Allocate], Element]  # number of an element, and how to allocate its arrays -> the element

BUFFERED_PER_WORKER = 2  # batches that are ready in a buffer of Grain, which has two
PARENT_POLL_INTERVAL = 0.5  # seconds between two looks at the parent process
TERM_GRACE = 60.0  # seconds after SIGTERM in which a worker still reads, for the step after which the run stops
SHARED_MEMORY_REMEDY = (
    "make it larger (docker run --shm-size 8g), or use fewer data.workers, a smaller train.batch, or threads of the "
    "training process with data.workers=0"
)


class DeadWorker(UserError):
    """A worker process has died; `cause` says how, and what helps."""

    def __init__(self, cause: str):
        super().__init__(f"a data loading process {cause}. Continue the run with --resume")
        self.cause = cause


logging.getLogger("absl").setLevel(logging.ERROR)  # Grain warns at every start that there is no JAX profiler


def read_ahead(
    read: Read[Element], first: int, last: int, workers: int, threads: int
) -> Generator[Element, None, None]:
    """Read the elements first .. last - 1 in order, ahead of the consumer.

    Element k is read by worker (k - first) % workers. Its arrays are allocated in shared memory, which passes to this
    process without a copy, or with 0 workers in this process's own.

    Args:
        read: picklable by cloudpickle.
        workers: processes; 0: threads of this process.
        threads: reading threads per process.

    Raises:
        DeadWorker: a worker process died.
        UserError: there is no room in shared memory; also those that `read` raises.
    """
    import grain.python as grain  # takes a second, which `--print-config` does not need

    if first >= last:
        return
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads)
    allocate = shared_array if workers else np.empty
    elements: Any = grain.MapDataset.range(first, last).map(partial(_read_into, read, allocate))
    elements = elements.to_iter_dataset(options)
    if workers:
        # Python's resource tracker frees the batches that are still in the buffer when a run ends, and warns about it.
        os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning")
        elements = elements.mp_prefetch(
            grain.MultiprocessingOptions(workers, per_worker_buffer_size=BUFFERED_PER_WORKER),
            worker_init_fn=partial(_init_worker, os.getpid()),
        )
    iterator = iter(elements)
    try:
        yield from iterator
    except RuntimeError as error:
        raise _explain(error) or error from None
    finally:
        iterator.close()  # frees the shared memory of batches that were not consumed
        del iterator, elements
        if workers:
            gc.collect()  # Grain's end of data refers to the last batches and to the queues of the workers, in a cycle


def batches_per_worker(threads: int) -> int:
    """Return the largest number of batches of a worker that have been begun and not been taken."""
    # Grain buffers them on both sides, the worker's and this process's; one waits for room in front of each buffer.
    return 2 * (BUFFERED_PER_WORKER + 1) + threads


def shared_array(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Allocate an array in shared memory. Grain passes it to the parent process, which frees it after use.

    Raises:
        UserError: there is no room.
    """
    import grain.python as grain

    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size == 0:
        return np.empty(shape, dtype)
    # The kernel lets a file be larger than what is free, and kills the process when it writes there.
    free = host.free_shared_memory()
    if size > free:
        raise UserError(
            f"{host.SHARED_MEMORY} has {_megabytes(free)} free, and an array of a batch takes {_megabytes(size)}; "
            f"{SHARED_MEMORY_REMEDY}"
        )
    return grain.SharedMemoryArray(shape, dtype)


def _read_into(read: Read[Element], allocate: Allocate, number: int) -> Element:
    return read(number, allocate)


def _explain(error: RuntimeError) -> DeadWorker | None:
    """Return what to tell the user if the error is Grain's about a dead worker, else None."""
    match = re.search(r"terminated unexpectedly with exit code (-?\d+)", str(error))
    if match is None:
        return None
    code = int(match[1])
    if code == -signal.SIGKILL:
        cause = (
            "was killed (SIGKILL), as the kernel does when memory runs out: see `dmesg`, and use fewer data.workers or "
            "data.threads, or a smaller train.batch"
        )
    elif code == -signal.SIGBUS:
        cause = (
            f"was killed (SIGBUS), as the kernel does when {host.SHARED_MEMORY} is full, which has "
            f"{_megabytes(host.free_shared_memory())} free now: {SHARED_MEMORY_REMEDY}"
        )
    elif code < 0:
        cause = (
            f"was killed by signal {-code} ({signal.strsignal(-code)}), perhaps by a file that crashes its decoder: "
            "python tools/check_data.py -c RECIPE --deep reads every file and names it"
        )
    else:
        cause = f"exited with code {code}; its output above has the cause"
    return DeadWorker(cause)


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.1f} MB"


def _init_worker(parent: int, *_: int) -> None:
    """Let the run answer Ctrl-C and SIGTERM, which may come to all processes, and exit when the run is gone.

    Args:
        parent: Process id of the run. It is an argument because the run may already be gone when the worker starts.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: _start(_exit_after_grace))

    def exit_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_INTERVAL)
        os._exit(1)

    _start(exit_with_parent)


def _exit_after_grace() -> None:
    time.sleep(TERM_GRACE)
    os._exit(128 + signal.SIGTERM)


def _start(function: Callable[[], None]) -> None:
    threading.Thread(target=function, daemon=True).start()
