"""Watch over the reading processes of a stream: which of them died while it read what, and the memory they hold."""

import multiprocessing
import re
import signal
import threading
import warnings
from multiprocessing.process import BaseProcess

from zoo.data import host, reader_board, shared_memory
from zoo.data.errors import UserError

INTERVAL = 1.0  # seconds between two looks
PATIENCE = 5  # looks after a death before it is told, if the stream has not ended with it by then


class DeadWorker(UserError):
    """A worker process has died; `cause` says how, and what helps."""

    def __init__(self, cause: str):
        super().__init__(f"a data loading process {cause}. Continue the run with --resume")
        self.cause = cause


class ReaderWatch:
    """A thread that looks after the reading processes of a stream until it is closed.

    A dead process is noticed here at once, and by the stream only when the batch that it owes is needed, which may be
    many updates later.

    Attributes:
        exceeds_cap: whether a process holds more memory of its own than it may.
    """

    def __init__(self, token: str, stream: int, memory_cap: float | None):
        """Start the thread.

        Args:
            token: of this process's shared memory.
            stream: its number.
            memory_cap: bytes; None for no limit.
        """
        self.exceeds_cap = False
        self._token, self._stream, self._cap = token, stream, memory_cap
        self._processes: dict[int, BaseProcess] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader-watch", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise DeadWorker if a process has died."""
        dead = self._dead()
        if dead:
            raise dead

    def explain(self, error: RuntimeError) -> DeadWorker | None:
        """Return what to tell the user if the error is Grain's about a dead process, else None."""
        match = re.search(r"terminated unexpectedly with exit code (-?\d+)", str(error))
        if match is None:
            return None
        numbers = reader_board.processes(self._token, self._stream)
        dead = [number for number in numbers if not host.is_running(number)]
        samples = [sample for number in dead for sample in reader_board.read(self._token, self._stream, number)]
        return DeadWorker(cause(int(match[1]), samples))

    def close(self) -> None:
        """End the thread, and remove what the processes, which have ended, left in shared memory."""
        self._stopped.set()
        self._thread.join()
        for number in reader_board.processes(self._token, self._stream):
            shared_memory.discard(self._token, number)

    def _run(self) -> None:
        looks = 0  # since a death
        while not self._stopped.wait(INTERVAL):
            self._find()
            dead = self._dead()
            looks += dead is not None
            if dead and looks == PATIENCE:
                warnings.warn(f"a data loading process {dead.cause}; the run ends when it needs a batch", stacklevel=1)
            if self._cap is not None and not self.exceeds_cap:
                self.exceeds_cap = any(host.private_memory(number) > self._cap for number in self._processes)

    def _find(self) -> None:
        new = reader_board.processes(self._token, self._stream) - self._processes.keys()
        if new:
            found = {process.pid: process for process in multiprocessing.active_children()}
            self._processes |= {number: found[number] for number in new if number in found}

    def _dead(self) -> DeadWorker | None:
        for number, process in list(self._processes.items()):
            if process.exitcode:
                return DeadWorker(cause(process.exitcode, reader_board.read(self._token, self._stream, number)))
        return None


def cause(code: int, samples: list[str]) -> str:
    """Return how a process died, by its exit code, and while it read which samples."""
    reading = f" while it read {' and '.join(samples)}" if samples else ""
    if code == -signal.SIGKILL:
        return (
            f"was killed (SIGKILL){reading}, as the kernel does when memory runs out: see `dmesg`, and use fewer "
            "data.workers or data.threads, or a smaller train.batch"
        )
    if code == -signal.SIGBUS:
        return (
            f"was killed (SIGBUS){reading}, as the kernel does when {host.SHARED_MEMORY} is full, which has "
            f"{shared_memory.megabytes(host.free_shared_memory())} free now: {shared_memory.REMEDY}"
        )
    if code < 0:
        return (
            f"was killed by signal {-code} ({signal.strsignal(-code)}){reading}, perhaps by a file that crashes its "
            "decoder: zoo data check -c RECIPE --deep reads every file and names it"
        )
    return f"exited with code {code}{reading}; its output above has the cause"
