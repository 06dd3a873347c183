"""Read-ahead of batches by worker processes or threads. The only module that imports Grain."""

import errno
import gc
import itertools
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from zoo.data import host, reader_board, shared_memory
from zoo.data.batch import Allocate
from zoo.data.errors import UserError
from zoo.data.reader_watch import ReaderWatch

Element = TypeVar("Element")
Read = Callable[[int, Allocate], Element]  # number of an element, and how to allocate its arrays -> the element

BUFFERED_PER_WORKER = 2  # batches that are ready in a buffer of Grain, which has two
TERM_GRACE = 60.0  # seconds after SIGTERM in which a worker still reads, for the step after which the run stops
MIN_ELEMENTS = 100  # read by each worker between two starts of them that their memory is the reason for

logging.getLogger("absl").setLevel(logging.ERROR)  # Grain warns at every start that there is no JAX profiler
_streams = itertools.count()


def read_ahead(
    read: Read[Element], first: int, last: int, workers: int, threads: int, memory_cap: float | None = None
) -> Generator[Element, None, None]:
    """Read the elements first .. last - 1 in order, ahead of the consumer.

    Element k is read by worker (k - first) % workers. Its arrays are allocated in shared memory, which passes to this
    process without a copy, or with 0 workers in this process's own.

    Args:
        read: picklable by cloudpickle.
        workers: processes; 0: threads of this process.
        threads: reading threads per process.
        memory_cap: bytes of a worker's own memory above which all workers are started anew; None for no limit.

    Raises:
        DeadWorker: a worker process died.
        UserError: there is no room in shared memory; also those that `read` raises.
    """
    if workers == 0:
        iterator = iter(_elements(read, np.empty, first, last, threads))
        try:
            yield from iterator
        finally:
            iterator.close()
        return
    capped_from = first  # the element from which the cap may count again
    while first < last:
        first += yield from _read_by_processes(read, first, last, workers, threads, memory_cap)
        if first < last and memory_cap is not None:
            if first < capped_from:
                warnings.warn(
                    f"data loading processes soon need more than {memory_cap / 1e9:g} GB each again; they go on "
                    "without a limit, raise data.worker_memory_gb",
                    stacklevel=1,
                )
                memory_cap = None
            capped_from = first + MIN_ELEMENTS * workers


def _read_by_processes(
    read: Read[Element], first: int, last: int, workers: int, threads: int, memory_cap: float | None
) -> Generator[Element, None, int]:
    """Read as `read_ahead` does, but end when the workers hold too much memory; return how many elements were read."""
    import grain.python as grain

    token, stream = shared_memory.claim(), next(_streams)
    # Python's resource tracker frees the batches that are still in the buffer when a run ends, and warns about it.
    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning")
    elements = _elements(read, partial(shared_array, token), first, last, threads).mp_prefetch(
        grain.MultiprocessingOptions(workers, per_worker_buffer_size=BUFFERED_PER_WORKER),
        worker_init_fn=partial(_init_worker, os.getpid(), token, stream),
    )
    iterator, watch, count = iter(elements), ReaderWatch(token, stream, memory_cap), 0
    try:
        while not watch.exceeds_cap:
            watch.check()
            taken = list(islice(iterator, 1))
            if not taken:
                break
            yield taken.pop()  # which is not held here while the next one is awaited
            count += 1
        return count
    except RuntimeError as error:
        raise watch.explain(error) or error from None
    except OSError as error:  # semaphores of the processes need room too
        if error.errno != errno.ENOSPC:
            raise
        raise UserError(f"{host.SHARED_MEMORY} is full: {error.strerror}; {shared_memory.REMEDY}") from None
    finally:
        iterator.close()  # frees the shared memory of batches that were not consumed
        del iterator, elements
        gc.collect()  # Grain's end of data refers to the last batches and to the queues of the workers, in a cycle
        watch.close()


def _elements(read: Read[Element], allocate: Allocate, first: int, last: int, threads: int) -> Any:
    """Return Grain's data set of the elements, read by threads."""
    import grain.python as grain  # takes a second, which `--print-config` does not need

    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads)
    elements = grain.MapDataset.range(first, last).map(partial(_read_into, read, allocate))
    return elements.to_iter_dataset(options)


def batches_per_worker(threads: int) -> int:
    """Return the largest number of batches of a worker that have been begun and not been taken."""
    # Grain buffers them on both sides, the worker's and this process's; one waits for room in front of each buffer.
    return 2 * (BUFFERED_PER_WORKER + 1) + threads


def shared_array(token: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Allocate an array in shared memory. Grain passes it to the parent process, which frees it after use.

    Raises:
        UserError: there is no room.
    """
    import grain.python as grain

    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size == 0:
        return np.empty(shape, dtype)
    memory = shared_memory.create(token, size)
    array: np.ndarray = grain.SharedMemoryArray.from_shared_memory(memory, shape, np.dtype(dtype))
    return array


def _read_into(read: Read[Element], allocate: Allocate, number: int) -> Element:
    try:
        return read(number, allocate)
    finally:
        reader_board.end()


def _init_worker(parent: int, token: str, stream: int, *_: int) -> None:
    """Let the run answer Ctrl-C and SIGTERM, which may come to all processes, and exit when the run is gone.

    Args:
        parent: Process id of the run. It is an argument because the run may already be gone when the worker starts.
        token: of the run's shared memory.
        stream: number of the stream that this process reads for.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: _start(_exit_after_grace))

    host.end_with_parent(parent)
    reader_board.open_board(token, stream)


def _exit_after_grace() -> None:
    time.sleep(TERM_GRACE)
    os._exit(128 + signal.SIGTERM)


def _start(function: Callable[[], None]) -> None:
    threading.Thread(target=function, daemon=True).start()
