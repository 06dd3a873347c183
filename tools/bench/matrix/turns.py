"""Gives turns to several speed runs, so that one of them computes while the others wait."""

import shutil
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from zoo.run.speed import ASK, GIVE

POLL_INTERVAL = 0.1  # seconds


class TurnGiver:
    """Listens at a socket of its own, whose path is `path`, as a context manager."""

    def __enter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="turns-")  # the path of a socket has 107 characters at most
        self.path = str(Path(self._folder, "socket"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._listener.settimeout(POLL_INTERVAL)
        self._connected: list[socket.socket] = []
        return self

    def __exit__(self, *_: object) -> None:
        for end in (*self._connected, self._listener):
            end.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def serve(self, running: Callable[[], int]) -> None:
        """Give turns until no run is left.

        All runs have one turn in every lap; every other lap is in reverse order, so that a steady drift of the machine
        cancels. The first lap begins when all runs have asked.

        Args:
            running: returns how many runs have not ended.
        """
        new: list[socket.socket] = []
        while running():
            with suppress(TimeoutError):
                run, _ = self._listener.accept()
                run.settimeout(None)
                self._connected.append(run)
                new.append(run)
            if new and len(new) >= running():
                lap, new = [run for run in new if _asks(run)], []
                while lap:
                    lap = [run for run in reversed(lap) if _take_turn(run)]


def _take_turn(run: socket.socket) -> bool:
    """Give a run its turn and wait for its end; return whether the run asks for another one, else it has ended."""
    with suppress(OSError):
        run.sendall(GIVE)
        return _asks(run)
    return False


def _asks(run: socket.socket) -> bool:
    with suppress(OSError):
        return run.recv(1) == ASK
    return False
