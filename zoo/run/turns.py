"""Turns of several speed runs that are timed in the same minutes: each computes while the others wait.

The program that gives the turns (tools/bench/matrix/turns.py) listens at a Unix socket. A run asks for a turn, waits
for it, times a block of updates, and ends its turn by asking for the next one. What makes a machine faster or slower
for seconds so acts on all of them alike.
"""

import socket

from zoo.data.errors import UserError
from zoo.distributed.group import Group

ASK, GIVE = b"?", b"!"
BLOCK = 10  # updates of a turn


class Turns:
    """This run's side.

    Args:
        path: of the socket.
        group: all ranks; the first one asks.

    Raises:
        UserError: nobody listens there.
    """

    def __init__(self, path: str, group: Group):
        self._group, self._path = group, path
        self._socket: socket.socket | None = None
        if group.rank == 0:
            self._socket = socket.socket(socket.AF_UNIX)
            try:
                self._socket.connect(path)
            except OSError as error:
                raise UserError(f"--turns {path}: nobody listens there ({error.strerror})") from None

    def wait(self) -> None:
        """End the turn, if there was one, and wait for the next. A collective call.

        Raises:
            UserError: the program that gives the turns has ended.
        """
        self._group.set_status("waiting for a turn")
        if self._socket:
            try:
                self._socket.sendall(ASK)
                answer = self._socket.recv(1)
            except OSError:
                answer = b""
            if answer != GIVE:
                raise UserError(f"--turns {self._path}: the program that gives the turns has ended")
        self._group.all_gather(None)
