"""Gives turns to several speed runs, so that one of them computes while the others wait (zoo/run/turns.py)."""

import selectors
import shutil
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from zoo.run.turns import GIVE

POLL_INTERVAL = 0.1  # seconds


class TurnGiver:
    """Listens at a socket of its own, as a context manager.

    Attributes:
        path: of the socket.
    """

    def __enter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="turns-")  # the path of a socket has 107 characters at most
        self.path = str(Path(self._folder, "socket"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._runs: list[socket.socket] = []  # that are connected
        self._asking: set[socket.socket] = set()
        self._lap: list[socket.socket] = []  # that have their turns before the next lap begins
        self._laps = 0
        self._computing: socket.socket | None = None
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for end in (*self._runs, self._listener):
            end.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def serve(self, running: Callable[[], int]) -> None:
        """Give turns until no run is left.

        All runs have one turn in every lap; every other lap is in reverse order, so that a steady drift of the machine
        cancels. The first lap begins when all runs have asked.

        Args:
            running: returns how many runs have not ended.
        """
        while count := running():
            for key, _ in self._selector.select(POLL_INTERVAL):
                self._receive(key.fileobj)  # type: ignore[arg-type]
            if self._computing is None:
                self._give(count)

    def _receive(self, end: socket.socket) -> None:
        if end is self._listener:
            run, _ = self._listener.accept()
            self._runs.append(run)
            self._selector.register(run, selectors.EVENT_READ)
            return
        data = b""
        with suppress(OSError):
            data = end.recv(1)
        if self._computing is end:
            self._computing = None
        if data:
            self._asking.add(end)
            return
        self._selector.unregister(end)
        self._runs.remove(end)
        self._asking.discard(end)
        self._lap = [run for run in self._lap if run is not end]
        end.close()

    def _give(self, count: int) -> None:
        """Give the next turn, if there is one. count: runs that have not ended."""
        if not self._lap and len(self._asking) >= count:
            self._lap = self._runs[:: 1 if self._laps % 2 == 0 else -1]
            self._laps += 1
        if not self._lap:
            return
        run = self._lap.pop(0)
        self._asking.discard(run)
        with suppress(OSError):  # it has ended, which is seen when it is read from
            run.sendall(GIVE)
        self._computing = run
