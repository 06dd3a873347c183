"""That every process of a run is alive and moves on: a thread beside each.

A process that ends closes its connection, so rank 0 hears of it at once, tells the others, and all end. A machine that
is gone closes nothing, but its signs of life stop; a process that hangs gives signs of life, but stays behind.
"""

import json
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from zoo.distributed.wire import ConnectionLost, receive, send

EVERY, SILENCE = 1.0, 60.0  # seconds between signs of life, and without one until a process counts as gone


class _Seen(NamedTuple):
    count: int  # of things begun
    doing: str
    since: float  # when this was first heard
    heard: float  # last sign of life


class Heartbeat(threading.Thread):
    """Ends this process with exit code 1 and a message when another one ends, falls silent, or stays behind."""

    def __init__(
        self, rank: int, peers: Mapping[int, socket.socket], names: Mapping[int, str], straggler_timeout: float
    ):
        super().__init__(daemon=True)
        now = time.monotonic()
        self.rank, self.peers, self.names, self.straggler_timeout = rank, dict(peers), names, straggler_timeout
        self._count, self._doing, self._since = 0, "starting", now
        self._seen: dict[int, _Seen] = {peer: _Seen(0, "starting", now, now) for peer in peers}
        self._limit: tuple[float, float, str] | None = None  # until when, seconds, for what
        self._stopped = threading.Event()
        self._sending = threading.Lock()
        self.start()

    def set_status(self, what: str) -> None:
        self._count, self._doing, self._since = self._count + 1, what, time.monotonic()

    def limit(self, seconds: float | None, what: str) -> None:
        """From now on, end after so many seconds; None: no more."""
        self.set_status(what)
        self._limit = None if seconds is None else (time.monotonic() + seconds, seconds, what)

    def fail(self, reason: str) -> None:
        self._stopped.set()  # first, because what is told comes back
        self._broadcast({"failed": f"{self.names[self.rank]}: {reason}"})

    def stop(self) -> None:
        """Leave in peace."""
        self._stopped.set()
        self._broadcast({"bye": True})  # the connections stay open until the process ends, which may be at once

    def run(self) -> None:
        while not self._stopped.is_set():
            self._broadcast({"count": self._count, "doing": self._doing})
            self._listen(time.monotonic() + EVERY)
            if not self._stopped.is_set():
                self._check_peers()

    def _broadcast(self, message) -> None:
        text = json.dumps(message).encode()
        with self._sending:
            for link in list(self.peers.values()):
                try:
                    send(link, text)
                except ConnectionLost:
                    pass  # _listen will notice

    def _listen(self, until: float) -> None:
        while not self._stopped.is_set() and time.monotonic() < until:
            links = {link: peer for peer, link in self.peers.items()}
            ready, _, _ = select.select(list(links), [], [], max(until - time.monotonic(), 0))
            for link in ready:
                self._hear(links[link], link)

    def _hear(self, peer: int, link: socket.socket) -> None:
        try:
            message = json.loads(receive(link))
        except (ConnectionLost, ValueError):
            if not self._stopped.is_set():
                self._end(f"{self.names[peer]} ended without a word: killed, or see its own output")
            return
        if "failed" in message:
            if not self._stopped.is_set():
                self._end(message["failed"])
        elif "bye" in message:
            del self.peers[peer], self._seen[peer]
        else:
            now, old = time.monotonic(), self._seen[peer]
            since = old.since if message["count"] == old.count else now
            self._seen[peer] = _Seen(message["count"], message["doing"], since, now)

    def _check_peers(self) -> None:
        now, limit = time.monotonic(), self._limit
        if limit and now > limit[0]:
            self._late(*limit[1:])
        for peer, seen in self._seen.items():
            if now - seen.heard > SILENCE:
                self._end(f"no sign of life from {self.names[peer]} for {SILENCE:.0f} s")
        if self.rank:
            return
        everyone = {**self._seen, 0: _Seen(self._count, self._doing, self._since, now)}
        ahead = max(seen.count for seen in everyone.values())
        for peer, seen in everyone.items():
            if seen.count < ahead and now - seen.since > self.straggler_timeout:
                self._end(
                    f"{self.names[peer]} has been {seen.doing} for {now - seen.since:.0f} s while others wait "
                    "for it (train.straggler_timeout)"
                )

    def _late(self, seconds: float, what: str) -> None:
        """Rank 0 names those who have not come so far; the others leave it the first word."""
        if self.rank:
            time.sleep(2 * EVERY)
        behind = [self.names[peer] for peer, seen in sorted(self._seen.items()) if seen.count < self._count]
        whose = f": {', '.join(behind)} did not come so far" if self.rank == 0 and behind else ""
        self._end(f"{what} took more than {seconds:.0f} s{whose}")

    def _end(self, reason: str) -> None:
        if self.rank == 0:
            self._broadcast({"failed": reason})
        sys.stderr.write(f"error: {reason}\n")
        sys.stderr.flush()
        os._exit(1)
