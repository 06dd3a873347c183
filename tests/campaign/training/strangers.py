"""Hostile connections to all ports on which the ranks of a run listen."""

import contextlib
import itertools
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

import psutil

MAX_OPEN = 300  # connections that are kept open
TIMEOUT = 0.05  # seconds to connect, and for an answer; other processes of this machine need less
PAUSE = 0.001  # seconds between two connections, and between two looks for ports
Attack = Callable[[socket.socket], None]  # the connection stays open


class Strangers(threading.Thread):
    """Connects to each port again and again, until the run has ended.

    Attributes:
        count: connections so far.
        ports: that were attacked.
    """

    def __init__(self, launcher: subprocess.Popen[str], program: str, attack: Attack, begins: Callable[[], bool]):
        """Start nothing yet.

        Args:
            launcher: of the run.
            program: word in the command lines of the ranks.
            attack: done with each connection.
            begins: whether to connect already.
        """
        super().__init__(daemon=True)
        self.count, self.ports = 0, set[int]()
        self._launcher, self._program, self._attack, self._begins = launcher, program, attack, begins

    def run(self) -> None:
        opened: deque[socket.socket] = deque()
        for address in self._addresses():
            time.sleep(PAUSE)
            try:
                connection = socket.create_connection(address, timeout=TIMEOUT)
            except OSError:  # it listens no more, or its queue is full
                continue
            self.count += 1
            self.ports.add(address[1])
            opened.append(connection)
            with contextlib.suppress(OSError):  # dropped while it was speaking
                self._attack(connection)
            if len(opened) > MAX_OPEN:
                opened.popleft().close()
        for connection in opened:
            connection.close()

    def _addresses(self) -> Iterator[tuple[str, int]]:
        """Yield the addresses where ranks listen now, in turns, until the run has ended."""
        while self._launcher.poll() is None:
            found = listening(self._launcher.pid, self._program) if self._begins() else []
            if not found:
                time.sleep(PAUSE)
            yield from itertools.chain.from_iterable([found] * 4)  # looking is slower than connecting


def listening(launcher: int, program: str) -> list[tuple[str, int]]:
    """Return the addresses on which the ranks of a run, and what they have started, listen."""
    found = []
    for process in _ranks(launcher, program):
        with contextlib.suppress(psutil.Error):
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(connection.laddr.ip, connection.laddr.ip)
                    found.append((host, connection.laddr.port))
    return sorted(set(found))


def _ranks(launcher: int, program: str) -> Iterator[psutil.Process]:
    """Yield the processes whose command line has a word, and all that they have started.

    A process that the launcher has forked is none before it runs a program of its own: until then its command line and
    ports are the launcher's.
    """
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(launcher)
        for process in parent.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.exe() != parent.exe() and any(program in word for word in process.cmdline()):
                    yield process
                    yield from process.children(recursive=True)
