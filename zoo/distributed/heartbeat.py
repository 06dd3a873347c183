"""Heartbeats between the processes of a run: a thread in each process that detects failed and straggling ranks.

A process that ends closes its connection, so rank 0 notices at once and broadcasts the failure; every process then
exits. A machine that crashes closes nothing, but its heartbeats stop. A process that hangs still sends heartbeats, but
its status does not change while the others wait for it.

Rank 0 has a connection to every other rank. So that heartbeats cost it the same at any world size, they are rarer with
more ranks; a connection that is closed, and a failure that is sent, are noticed at once nevertheless.
"""

import json
import os
import selectors
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from zoo.distributed.wire import Channel, ConnectionLost

CHECK_INTERVAL = 1.0  # seconds between two checks of deadlines and peers
HEARTBEATS_PER_SECOND = 64  # that rank 0 receives, and sends, at most
MAX_INTERVAL = 15.0  # seconds between two heartbeats of a process; several are to fit into HEARTBEAT_TIMEOUT
HEARTBEAT_TIMEOUT = 60.0  # seconds without a heartbeat after which a process counts as dead


class PeerState(NamedTuple):
    """Last known state of a process; times are those of this process's monotonic clock, in seconds."""

    changes: int  # status changes so far
    status: str
    status_since: float
    last_heartbeat: float


class Deadline(NamedTuple):
    """Time limit of an operation that all ranks take part in."""

    at: float  # monotonic clock, seconds
    seconds: float
    operation: str


def interval_of(size: int, straggler_timeout: float) -> float:
    """Return the seconds between two heartbeats of a process: a second, or more in a large world.

    Several are to fit into the time after which a rank counts as a straggler, because its status comes with them.
    """
    rarest = min(MAX_INTERVAL, max(straggler_timeout / 4, CHECK_INTERVAL))
    return min(max(size / HEARTBEATS_PER_SECOND, CHECK_INTERVAL), rarest)


class Heartbeat(threading.Thread):
    """Thread that exits this process with code 1 and a message when another one ends, stops responding or straggles."""

    def __init__(
        self,
        rank: int,
        peers: Mapping[int, Channel],  # by rank: of rank 0 all others, of the others rank 0
        names: Mapping[int, str],  # by rank, of the peers and of this process, for messages
        straggler_timeout: float,  # seconds after which rank 0 gives up a process that stays behind the others
        size: int,
        patient_until: float,  # monotonic clock, in seconds; before it, no process is given up for being slow
    ):
        super().__init__(daemon=True)
        now = time.monotonic()
        self.rank = rank
        self.peers = dict(peers)
        self.names = names
        self.straggler_timeout = straggler_timeout
        self.interval = interval_of(size, straggler_timeout)
        self.patient_until = patient_until
        self._selector = selectors.DefaultSelector()  # not select(), which ends at descriptor 1023
        for peer, connection in peers.items():
            self._selector.register(connection.socket, selectors.EVENT_READ, peer)
        self._changes, self._status, self._status_since = 0, "starting", now
        self._states = {peer: PeerState(0, "starting", now, now) for peer in peers}
        self._deadline: Deadline | None = None
        self._stopped = threading.Event()
        self._send_lock = threading.Lock()
        self.start()

    def set_status(self, status: str) -> None:
        """Set the operation that this process is about to start, for messages such as "reading step 7"."""
        self._changes, self._status, self._status_since = self._changes + 1, status, time.monotonic()

    def set_deadline(self, seconds: float | None, operation: str) -> None:
        """Exit the process if `operation` takes more than `seconds` from now; None removes the deadline."""
        self.set_status(operation)
        self._deadline = None if seconds is None else Deadline(time.monotonic() + seconds, seconds, operation)

    def fail(self, reason: str) -> None:
        """Broadcast why this process ends; the other processes exit with the same message."""
        self._stopped.set()  # first, because rank 0 sends the message back
        self._broadcast({"failed": f"{self.names[self.rank]}: {reason}"})

    def stop(self) -> None:
        """Sign off, so that the end of this process is not a failure."""
        self._stopped.set()
        self._broadcast({"closing": True})  # the connections stay open until the process ends, which may be at once

    def run(self) -> None:
        next_heartbeat = time.monotonic()
        while not self._stopped.is_set():
            if time.monotonic() >= next_heartbeat:
                next_heartbeat = time.monotonic() + self.interval
                self._broadcast({"changes": self._changes, "status": self._status})
            self._listen(time.monotonic() + CHECK_INTERVAL)
            if not self._stopped.is_set():
                self._check_peers()

    def _broadcast(self, message: Mapping[str, Any]) -> None:
        payload = json.dumps(message).encode()
        with self._send_lock:
            for connection in list(self.peers.values()):
                with suppress(ConnectionLost):  # _listen will notice
                    connection.send(payload)

    def _listen(self, until: float) -> None:
        while not self._stopped.is_set() and time.monotonic() < until:
            for event, _ in self._selector.select(max(until - time.monotonic(), 0)):
                self._process_message(event.data, self.peers[event.data])

    def _process_message(self, rank: int, connection: Channel) -> None:
        try:
            message = json.loads(connection.receive())
        except (ConnectionLost, ValueError):
            if not self._stopped.is_set():
                self._exit(
                    f"{self.names[rank]} ended without an error message: killed, or its own output has the reason"
                )
            return
        if "failed" in message:
            if not self._stopped.is_set():
                self._exit(message["failed"])
        elif "closing" in message:
            self._selector.unregister(connection.socket)
            del self.peers[rank], self._states[rank]
        else:
            now, previous = time.monotonic(), self._states[rank]
            since = previous.status_since if message["changes"] == previous.changes else now
            self._states[rank] = PeerState(message["changes"], message["status"], since, now)

    def _check_peers(self) -> None:
        """Exit if a deadline has passed, a peer has sent no heartbeat for too long, or (on rank 0) a rank straggles."""
        now, deadline = time.monotonic(), self._deadline
        if deadline and now > deadline.at:
            self._exit_late(deadline)
        if now < self.patient_until:
            return
        for peer, state in self._states.items():
            if now - state.last_heartbeat > HEARTBEAT_TIMEOUT:
                self._exit(f"no heartbeat from {self.names[peer]} for {HEARTBEAT_TIMEOUT:.0f} s")
        if self.rank == 0:
            self._check_stragglers(now)

    def _check_stragglers(self, now: float) -> None:
        states = {**self._states, 0: PeerState(self._changes, self._status, self._status_since, now)}
        max_changes = max(state.changes for state in states.values())
        for rank, state in states.items():
            if state.changes < max_changes and now - state.status_since > self.straggler_timeout:
                self._exit(
                    f"{self.names[rank]} has been {state.status} for {now - state.status_since:.0f} s while the other "
                    "processes wait for it (train.straggler_timeout)"
                )

    def _exit_late(self, deadline: Deadline) -> None:
        """Exit because of a deadline. Rank 0 lists the missing ranks; the others wait for its message first."""
        if self.rank:
            time.sleep(2 * CHECK_INTERVAL)
        missing = [self.names[rank] for rank, state in sorted(self._states.items()) if state.changes < self._changes]
        suffix = f": {', '.join(missing)} did not get this far" if self.rank == 0 and missing else ""
        self._exit(f"{deadline.operation} took more than {deadline.seconds:.0f} s{suffix}")

    def _exit(self, reason: str) -> None:
        if self.rank == 0:
            self._broadcast({"failed": reason})
        self._end_process(reason)

    def _end_process(self, reason: str) -> None:
        sys.stderr.write(f"error: {reason}\n")
        sys.stderr.flush()
        os._exit(1)
