"""Rendezvous of the processes of a run: rank 0 accepts two connections from every other rank.

Rank 0 listens on one of a few ports that all ranks derive from the address of rank 0 and the job. The handshake
distinguishes runs with the same ports, drops connections of other programs, and refuses ranks of another run.
"""

import errno
import json
import os
import socket
import sys
import threading
import time
import zlib
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, NoReturn

from zoo.data.errors import UserError
from zoo.distributed.group import Group
from zoo.distributed.heartbeat import Heartbeat
from zoo.distributed.wire import (
    ALL_JOINED,
    CONTROL,
    FILE,
    HEARTBEAT,
    HELLO_TIMEOUT,
    VARIABLE,
    Channel,
    ConnectionLost,
    Hello,
    derive_key,
    greet,
    receive_hello,
    receive_reply,
)
from zoo.trainer.world import BEGIN_TIMEOUT, WAIT_REPORT, Launch

RETRY_INTERVAL = 0.2  # seconds

FIRST_PORT, PORT_RANGE, PORT_TRIES = 20000, 12000, 8  # below the ephemeral ports of common systems
SPARE_FILES = 512  # open files beside the connections: libraries, devices, data workers


class Peer(NamedTuple):
    """Accepted connection of another rank. name: rank, host and process, for messages."""

    channel: Channel
    name: str


class Accepted(NamedTuple):
    """Connection that rank 0 has accepted. end: of the wait for the others, by the monotonic clock, in seconds."""

    channel: Channel
    end: float


class Rendezvous(NamedTuple):
    """Meeting point of the processes, and its time limit."""

    launch: Launch
    address: str  # of rank 0, numeric
    timeout: float  # seconds in all
    end: float  # monotonic clock, in seconds
    key: bytes  # secret of the run

    @property
    def remaining(self) -> float:
        return self.end - time.monotonic()


def connect(launch: Launch, straggler_timeout: float, timeout: float = BEGIN_TIMEOUT) -> Group:
    """Join the group of the processes of a run, of which there are several.

    Args:
        straggler_timeout: Seconds after which a process that stays behind the others is given up.
        timeout: Seconds until all processes must have joined, and in which a slow one is waited for.
    """
    end = time.monotonic() + timeout
    rendezvous = Rendezvous(launch, resolve(launch), timeout, end, derive_key(launch.job, os.environ))
    if launch.rank:
        return _join(rendezvous, straggler_timeout)
    root = Root(rendezvous)
    root.accept_ranks()
    control, heartbeats = root.peers[CONTROL], root.peers[HEARTBEAT]
    names = {0: _name(launch), **{rank: peer.name for rank, peer in heartbeats.items()}}
    connections = {rank: peer.channel for rank, peer in heartbeats.items()}
    heartbeat = Heartbeat(0, connections, names, straggler_timeout, launch.size, end)
    launch = replace(launch, address=rendezvous.address, local_address=rendezvous.address)
    return Group(launch, {rank: control[rank].channel for rank in range(1, launch.size)}, heartbeat)


class Root:
    """Rank 0 until all others have joined. peers: connection type -> rank -> peer that has joined."""

    def __init__(self, rendezvous: Rendezvous):
        self.rendezvous, self.launch = rendezvous, rendezvous.launch
        self.peers: dict[str, dict[int, Peer]] = {CONTROL: {}, HEARTBEAT: {}}
        self._hellos: SimpleQueue[tuple[Channel, Hello]] = SimpleQueue()
        self._strangers, self._is_complete = 0, False

    def accept_ranks(self) -> None:
        """Accept all other ranks. Raises UserError if one is missing or contradicts another."""
        raise_file_limit(2 * self.launch.size)
        report = time.monotonic() + WAIT_REPORT
        with _listen(self.rendezvous, 2 * self.launch.size + SPARE_FILES) as listener:
            threading.Thread(target=self._serve, args=(listener,), daemon=True).start()
            try:
                while any(len(joined) < self.launch.size - 1 for joined in self.peers.values()):
                    if self.rendezvous.remaining <= 0:
                        self._abort(self._describe_missing())
                    if time.monotonic() >= report:
                        report += WAIT_REPORT
                        self._report_wait()
                    with suppress(Empty):
                        seconds = min(self.rendezvous.remaining, report - time.monotonic())
                        self._admit(*self._hellos.get(timeout=max(seconds, 0.001)))
            finally:
                self._is_complete = True
                listener.shutdown(socket.SHUT_RDWR)  # which ends the thread
        self._reply_all(ALL_JOINED)

    def _serve(self, listener: socket.socket) -> None:
        """Read every connection in a thread of its own, which ends within HELLO_TIMEOUT."""
        while not self._is_complete:
            try:
                connection, _ = listener.accept()
                threading.Thread(target=self._read, args=(connection,), daemon=True).start()
            except (OSError, RuntimeError):  # the peer is gone already, or there are too many; a rank comes again
                time.sleep(0.01)

    def _read(self, connection: socket.socket) -> None:
        try:
            hello, channel = receive_hello(connection, self.rendezvous.key, time.monotonic() + HELLO_TIMEOUT)
        except ConnectionLost:
            self._strangers += 1
            connection.close()
            return
        self._hellos.put((channel, hello))

    def _admit(self, channel: Channel, hello: Hello) -> None:
        """Add a rank of this run to `peers`. Raises UserError if its rank or world size contradicts it."""
        launch, joined = self.launch, self.peers[hello.type]
        peer, previous, conflict = Peer(channel, hello.name), joined.get(hello.rank), None
        if hello.size != launch.size:
            conflict = (
                f"{hello.name} was started as one of {hello.size} processes, {_name(launch)} as one of {launch.size}"
            )
        elif hello.rank == 0 or (
            previous and previous.name != hello.name and not _is_abandoned(previous.channel.socket)
        ):
            first = previous.name if previous else _name(launch)
            conflict = f"two processes were started as rank {hello.rank}: {first} and {hello.name}"
        channel.socket.settimeout(HELLO_TIMEOUT)
        if conflict:
            conflict += f"; start all of them with one launcher (this one was detected as {launch.launcher})"
            self._reply(peer, {"refused": conflict})
            self._abort(conflict)
        if previous:
            previous.channel.socket.close()
        channel.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reply(peer, {"accepted": max(self.rendezvous.remaining, 0)})
        channel.socket.settimeout(None)
        joined[hello.rank] = peer

    def _missing(self) -> str:
        """Return the ranks that have not joined, such as `rank 1, 3 of 4`."""
        ranks = sorted(set(range(1, self.launch.size)) - (set(self.peers[HEARTBEAT]) & set(self.peers[CONTROL])))
        return f"rank {', '.join(map(str, ranks))} of {self.launch.size}"

    def _report_wait(self) -> None:
        timeout = self.rendezvous.timeout
        seconds = f"{timeout - self.rendezvous.remaining:.0f} of at most {timeout:.0f} s"
        print(f"waiting for {self._missing()} to join ({seconds})", file=sys.stderr, flush=True)

    def _describe_missing(self) -> str:
        reason = (
            f"{self._missing()} did not join rank 0 at {self.launch.address} "
            f"within {self.rendezvous.timeout:.0f} s; look for the reason in its own output"
        )
        if self._strangers:
            reason += (
                f" ({self._strangers} connections did not prove the secret of this run: {VARIABLE}, ~/{FILE} and the "
                "variables of the launcher have to be the same everywhere)"
            )
        return reason

    def _abort(self, reason: str) -> NoReturn:
        """Refuse the ranks that have joined so far and raise UserError."""
        self._reply_all({"refused": reason})
        raise UserError(reason)

    def _reply_all(self, reply: dict[str, Any]) -> None:
        for joined in self.peers.values():
            for peer in joined.values():
                self._reply(peer, reply)

    def _reply(self, peer: Peer, reply: dict[str, Any]) -> None:
        with suppress(ConnectionLost):  # the heartbeat or the timeout will report it
            peer.channel.send(json.dumps(reply).encode())


def _is_abandoned(connection: socket.socket) -> bool:
    """Return whether the other side of an accepted connection has closed it."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _join(rendezvous: Rendezvous, straggler_timeout: float) -> Group:
    """Connect to rank 0, on the other ranks."""
    launch, address = rendezvous.launch, rendezvous.address
    control = _connect(rendezvous, candidate_ports(launch), CONTROL)
    heartbeat = _connect(rendezvous, [control.channel.socket.getpeername()[1]], HEARTBEAT)
    for connection in (control, heartbeat):
        try:
            reply = receive_reply(connection.channel, connection.end)
        except ConnectionLost:
            raise UserError(
                f"rank 0 at {launch.address} ended before all processes had joined; see its output for the cause"
            ) from None
        if reply != ALL_JOINED:
            raise UserError(reply.get("refused", "rank 0 accepts this process twice"))
        connection.channel.socket.settimeout(None)
    names = {launch.rank: _name(launch), 0: f"rank 0 ({launch.address})"}
    thread = Heartbeat(launch.rank, {0: heartbeat.channel}, names, straggler_timeout, launch.size, rendezvous.end)
    local_address = control.channel.socket.getsockname()[0]
    return Group(replace(launch, address=address, local_address=local_address), {0: control.channel}, thread)


def _connect(rendezvous: Rendezvous, ports: Iterable[int], connection_type: str) -> Accepted:
    """Return a connection that rank 0 has accepted."""
    launch, ports = rendezvous.launch, list(ports)
    reason = "nothing listens there"
    while rendezvous.remaining > 0:
        for port in ports:
            try:
                return _request(rendezvous, port, connection_type)
            except (OSError, ConnectionLost, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error) or reason
        time.sleep(max(min(RETRY_INTERVAL, rendezvous.remaining), 0))
    raise UserError(
        f"rank {launch.rank} on {socket.gethostname()} cannot reach rank 0 at {launch.address}, ports {ports[0]} to "
        f"{ports[-1]}, within {rendezvous.timeout:.0f} s ({reason}); check that rank 0 is running, that this is its "
        "host, and that firewalls let these ports pass"
    )


def _request(rendezvous: Rendezvous, port: int, connection_type: str) -> Accepted:
    """Ask what listens on a port of rank 0 to accept this process. Raises UserError if rank 0 refuses it."""
    launch = rendezvous.launch
    end = min(time.monotonic() + HELLO_TIMEOUT, rendezvous.end)
    timeout = max(end - time.monotonic(), 0.1)
    with ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((rendezvous.address, port), timeout))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello = Hello(launch.rank, launch.size, connection_type, _name(launch))
        channel = greet(connection, rendezvous.key, hello, end)
        reply = receive_reply(channel, end)
        if "refused" in reply:
            raise UserError(reply["refused"])
        if "accepted" not in reply:
            raise ConnectionLost("not a reply")
        stack.pop_all()
        # Rank 0 may have started later; it gives up first, and sends the reason.
        return Accepted(channel, time.monotonic() + reply["accepted"] + 1)


def _listen(rendezvous: Rendezvous, backlog: int) -> socket.socket:
    """Listen on the first port of this run that is free."""
    launch, address = rendezvous.launch, rendezvous.address
    ports = candidate_ports(launch)
    for port in ports:
        listener = socket.socket(address_family(address), socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
            listener.listen(backlog)
            return listener
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRNOTAVAIL:
                raise UserError(
                    f"{launch.launcher} gives {launch.address} as the host of rank 0, but that is not an address of "
                    f"{socket.gethostname()}, where rank 0 runs; give the launcher the address of that host"
                ) from None
            if error.errno != errno.EADDRINUSE:
                raise UserError(f"rank 0 cannot listen at {launch.address}:{port}: {error.strerror}") from None
            with suppress(OSError, ConnectionLost, ValueError):  # another process that is rank 0 of this run refuses it
                _request(rendezvous, port, CONTROL).channel.socket.close()
    raise UserError(
        f"the ports {ports[0]} to {ports[-1]} of {launch.address} are all in use; choose another MASTER_PORT"
    )


def _name(launch: Launch) -> str:
    return f"rank {launch.rank} ({socket.gethostname()}, process {os.getpid()})"


def resolve(launch: Launch) -> str:
    """Return the numeric address of rank 0. Raises UserError if its host name is unknown."""
    try:
        return str(socket.getaddrinfo(launch.address, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:  # the latter: an empty or overlong label
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"{launch.launcher} gives {launch.address!r} as the host of rank 0: {reason}; give the launcher "
            "a name that every host can resolve, or a numeric address"
        ) from None


def candidate_ports(launch: Launch) -> list[int]:
    """Return the ports that rank 0 may listen on: the same on all ranks, most likely others for another run."""
    offset = zlib.crc32(f"{launch.address} {launch.job}".encode()) % (PORT_RANGE - PORT_TRIES)
    return [FIRST_PORT + offset + number for number in range(PORT_TRIES)]


def free_port(address: str) -> int:
    with socket.socket(address_family(address), socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def address_family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def raise_file_limit(connections: int) -> None:
    """Raise the soft limit of open files of this process, as far as the hard one allows, if it is too low."""
    try:
        import resource  # not at the top: Windows lacks it, and such a limit
    except ImportError:
        return
    needed, (soft, hard) = connections + SPARE_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != soft < needed:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else min(needed, hard), hard)
        )
