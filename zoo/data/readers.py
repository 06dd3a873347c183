"""Read-ahead by worker processes or threads.

A worker is a new Python process, not a fork. It gets numbers over a socket, reads their elements in threads, and
answers with one anonymous file in memory (memfd) for each, which this process maps without a copy. Such a file has no
name and is not part of /dev/shm: the kernel frees it with the last process that uses it, however that ends. (On macOS
it lies on a disk.) A worker exits when its socket is closed, so it never outlives this process.
"""

import mmap
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import wait
from typing import Any, Generic, TypeVar

import numpy as np

from zoo.data import addresses, host
from zoo.data.errors import Option, UserError

Element = TypeVar("Element")

READY_PER_WORKER = 2  # elements that may be ready for each worker, beside those that its threads read
MIN_SHARED = 1 << 16  # bytes of an array; smaller ones are copied, lest one that is kept keeps its whole batch
ALIGNMENT = 64  # bytes, of arrays
NUMBER = 8  # bytes
NOTHING = -1  # in place of the index of a sample
PROGRAM = "import sys; sys.path[:] = {path!r}; from zoo.data import readers; readers.serve{arguments!r}"


class DeadWorker(UserError):
    """A worker process has died; `cause` has the reason, and what helps."""

    def __init__(self, cause: str):
        super().__init__(f"a data loading process {cause}. Continue the run with ", Option("--resume"))
        self.cause = cause


def batches_per_worker(threads: int) -> int:
    """Return the largest number of elements per worker that have been begun and not been taken."""
    return threads + READY_PER_WORKER


class Readers(Generic[Element]):
    """Worker processes that read elements by their number, for one consumer; with 0 workers, threads of this process.

    They start with the first `read`, and wait for the next one after its last element.
    """

    def __init__(
        self,
        read: Callable[[int], Element],
        workers: int,
        threads: int,
        name: Callable[[int], str] = str,
    ):
        """Start nothing yet.

        Args:
            read: returns the element of a number. Workers get it by pickle.
            name: of the sample of an index, which `read` has passed to `reading`.
        """
        self.workers, self.threads = workers, threads
        self._read, self._name = read, name
        self._running: list[_Worker] = []

    def read(self, first: int, last: int) -> Generator[Element, None, None]:
        """Return the elements first .. last - 1 in order. Closing the generator before its end ends the workers.

        Raises:
            DeadWorker: a worker process died.
        """
        if self.workers == 0:
            return _by_threads(self._read, range(first, last), self.threads)
        return self._by_processes(first, last)

    def close(self) -> None:
        """End the workers at once."""
        for worker in self._running:
            worker.close()
        self._running = []

    def _by_processes(self, first: int, last: int) -> Generator[Element, None, None]:
        self._start()
        begun, room = first, self.workers * batches_per_worker(self.threads)
        ready: dict[int, tuple[Any, bool]] = {}
        try:
            for number in range(first, last):
                while True:
                    begun = self._assign(begun, min(last, number + room))
                    self._receive(ready, block=number not in ready)
                    if number in ready:
                        break
                element, is_error = ready.pop(number)
                if is_error:
                    raise element
                yield element
                del element  # not kept while the next one is awaited
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        """Start the workers, or those that died since the last `read`."""
        for worker in [worker for worker in self._running if worker.process.poll() is not None]:
            warnings.warn(f"an idle data loading process {self._cause(worker)}; a new one goes on", stacklevel=1)
            self._running.remove(worker)
            worker.close()
        while len(self._running) < self.workers:
            self._running.append(_Worker(self._read, self.threads))

    def _assign(self, begin: int, end: int) -> int:
        """Give numbers from `begin` on to the workers that have least to do; return the first one that is left."""
        for number in range(begin, end):
            worker = min(self._running, key=lambda worker: len(worker.numbers))
            if len(worker.numbers) > self.threads:  # one more than it reads at a time
                return number
            worker.assign(number)
        return max(begin, end)

    def _receive(self, ready: dict[int, tuple[Any, bool]], block: bool) -> None:
        """Take the answers that are there, and wait for one if there is none and `block`."""
        by_socket = {worker.socket: worker for worker in self._running}
        for connection in wait(list(by_socket), None if block else 0):
            worker = by_socket[connection]  # type: ignore[index]
            answer = worker.receive()
            if answer is None:
                raise DeadWorker(self._cause(worker))
            number, is_error, content = answer
            ready[number] = content, is_error

    def _cause(self, worker: "_Worker") -> str:
        return _cause(worker.process.wait(), [self._name(index) for index in worker.samples()])


class _Worker:
    """A worker process, seen by its parent."""

    def __init__(self, read: Callable[[int], Any], threads: int):
        self.numbers: set[int] = set()
        setup, sizes = _store((addresses.Known(), read))
        board = host.anonymous_file("samples")
        os.write(board, np.full(threads, NOTHING, np.int64).tobytes())
        self._board = np.frombuffer(mmap.mmap(board, 0), np.int64)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        descriptors = theirs.fileno(), board, setup
        program = PROGRAM.format(path=sys.path, arguments=(*descriptors, sizes))
        # In a process group of its own, Ctrl-C does not reach it.
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.DEVNULL, pass_fds=descriptors, process_group=0
        )
        for descriptor in (theirs.detach(), board, setup):
            os.close(descriptor)

    def assign(self, number: int) -> None:
        self.numbers.add(number)
        with suppress(OSError):  # it is dead, which `receive` finds
            self.socket.send(number.to_bytes(NUMBER, "little"))

    def receive(self) -> tuple[int, bool, Any] | None:
        """Return number, whether it is an error, and the element or error; None from the dead."""
        descriptors, packet, length = list[int](), b"", 0
        with suppress(OSError):
            head, descriptors, _, _ = socket.recv_fds(self.socket, NUMBER, 1, socket.MSG_WAITALL)
            length = int.from_bytes(head, "little")
            packet = self.socket.recv(length, socket.MSG_WAITALL)
        if not descriptors or len(packet) < length:
            return None
        number, is_error, sizes = pickle.loads(packet)
        self.numbers.discard(number)
        return number, is_error, _load(descriptors[0], sizes)

    def samples(self) -> list[int]:
        """Return the indices of the samples that its threads have begun to read."""
        return self._board[self._board != NOTHING].tolist()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.socket.close()


def serve(connection: int, board: int, setup: int, sizes: Sequence[int]) -> None:
    """Read elements in this process, a worker, until its parent closes the socket.

    Args:
        board: descriptor of a file with the index of the sample that each thread reads, int64 (threads,).
        setup, sizes: as `_store` returns them, of what is known of files, and the function that reads.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # may come to all processes; the run stops after its step
        signal.signal(number, signal.SIG_IGN)
    samples, parent = np.frombuffer(mmap.mmap(board, 0), np.int64), socket.socket(fileno=connection)
    _, read = _load(setup, sizes)
    numbers, answering = queue.SimpleQueue[int](), threading.Lock()
    for thread in range(len(samples)):
        arguments = read, numbers, samples[thread : thread + 1], parent, answering
        threading.Thread(target=_serve_thread, args=arguments, daemon=True).start()
    with suppress(ConnectionError):  # if the parent was killed
        while packet := parent.recv(NUMBER, socket.MSG_WAITALL):
            numbers.put(int.from_bytes(packet, "little"))
    os._exit(0)  # whatever the threads are doing


class _Thread(threading.local):
    sample: np.ndarray | None = None


_thread = _Thread()


def reading(index: int) -> None:
    """Note that this thread begins to read a sample, for the message should that kill the process."""
    if _thread.sample is not None:
        _thread.sample[0] = index


def _serve_thread(
    read: Callable[[int], Any],
    numbers: "queue.SimpleQueue[int]",
    sample: np.ndarray,
    parent: socket.socket,
    answering: threading.Lock,
) -> None:
    _thread.sample = sample
    try:
        while True:
            number, is_error = numbers.get(), False
            try:
                content = read(number)
            except UserError as error:
                content, is_error = error, True
            except Exception as error:
                text = "".join(traceback.format_exception(error))
                content, is_error = RuntimeError(f"in a data loading process:\n{text}"), True
            sample[0] = NOTHING
            descriptor, sizes = _store(content)
            del content
            packet = pickle.dumps((number, is_error, sizes))
            with answering:  # answers of several threads do not mix
                socket.send_fds(parent, [len(packet).to_bytes(NUMBER, "little")], [descriptor])
                parent.sendall(packet)
            os.close(descriptor)
    except ConnectionError:  # the parent is gone
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _store(content: Any) -> tuple[int, list[int]]:
    """Write an object to an anonymous file; return its descriptor, and the sizes of its pickle and large arrays."""
    parts = [memoryview(b"")]

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes >= MIN_SHARED:
            parts.append(buffer.raw())
        return buffer.raw().nbytes < MIN_SHARED

    parts[0] = memoryview(pickle.dumps(content, 5, buffer_callback=is_small))
    descriptor = host.anonymous_file("element")
    with open(descriptor, "wb", closefd=False) as file:
        for part in parts:
            file.seek(-file.tell() % ALIGNMENT, os.SEEK_CUR)
            file.write(part)
    return descriptor, [len(part) for part in parts]


def _load(descriptor: int, sizes: Sequence[int]) -> Any:
    """Return the object that `_store` has written. Its arrays keep the file's memory; the descriptor is closed."""
    content, parts, begin = memoryview(mmap.mmap(descriptor, 0)), [], 0
    os.close(descriptor)
    for size in sizes:
        begin += -begin % ALIGNMENT
        parts.append(content[begin : begin + size])
        begin += size
    return pickle.loads(parts[0], buffers=parts[1:])


def _by_threads(read: Callable[[int], Element], numbers: range, threads: int) -> Generator[Element, None, None]:
    pool, left = ThreadPoolExecutor(threads, "reader"), iter(numbers)
    try:
        ahead = deque(pool.submit(read, number) for number in islice(left, threads))
        while ahead:
            ahead.extend(pool.submit(read, number) for number in islice(left, 1))
            yield ahead.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _cause(code: int, samples: list[str]) -> str:
    """Return how a process died, by its exit code, and while it read which samples."""
    reading = f" while it read {' and '.join(samples)}" if samples else ""
    if code == -signal.SIGKILL:
        return (
            f"was killed (SIGKILL){reading}, as the kernel does when memory runs out: see `dmesg`, and use fewer "
            "data.workers or data.threads, or a smaller train.batch"
        )
    if code < 0:
        return (
            f"was killed by signal {-code} ({signal.strsignal(-code)}){reading}, perhaps by a file that crashes its "
            "decoder: zoo data check -c RECIPE --deep reads every file and names it"
        )
    return f"exited with code {code}{reading}; its output above has the cause"
