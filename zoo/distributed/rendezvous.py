"""Rendezvous of the processes of a run: rank 0 accepts two connections from every other rank.

Rank 0 listens on one of a few ports that all ranks derive from the address of rank 0 and the job. The handshake tells
runs with the same ports apart, and refuses ranks that do not belong together.
"""

import errno
import json
import os
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from data.errors import UserError
from zoo.distributed.addresses import address_family, candidate_ports, resolve
from zoo.distributed.control_group import Group
from zoo.distributed.heartbeat import Heartbeat
from zoo.distributed.wire import ConnectionLost, receive, send
from zoo.trainer.protocol import Launch

TIMEOUT = 60.0  # seconds until all processes must have joined
HANDSHAKE_TIMEOUT = 5  # seconds
RETRY_INTERVAL = 0.2  # seconds

CONTROL, HEARTBEAT = "control", "heartbeat"  # the two connections of a rank
# Replies of rank 0, beside {"refused": reason}.
ACCEPTED, OTHER_JOB, ALL_JOINED = {"accepted": True}, {"refused": "another run"}, {"all_joined": True}


class Peer(NamedTuple):
    """Accepted connection of another rank. name: rank, host and process, for messages."""

    connection: socket.socket
    name: str


Peers = dict[str, dict[int, Peer]]  # connection type -> rank -> peer


class Rendezvous(NamedTuple):
    """Where and until when the processes meet. address: of rank 0, resolved; end: monotonic clock, seconds."""

    launch: Launch
    address: str
    timeout: float
    end: float

    @property
    def remaining(self) -> float:
        return self.end - time.monotonic()


def connect(launch: Launch, straggler_timeout: float, timeout: float = TIMEOUT) -> Group:
    """Join the process group of the run.

    Args:
        launch: Rank, world size and address of rank 0, as the launcher gave them.
        straggler_timeout: Seconds after which a process that stays behind the others is given up.
        timeout: Seconds until all processes must have joined.

    Raises:
        UserError: Lists the ranks that are missing, or names what does not agree between them.
    """
    if launch.size == 1:
        return Group(launch, {}, None)
    end = time.monotonic() + timeout
    rendezvous = Rendezvous(launch, resolve(launch), timeout, end)
    if launch.rank == 0:
        return _accept_ranks(rendezvous, straggler_timeout)
    return _join(rendezvous, straggler_timeout)


def _accept_ranks(rendezvous: Rendezvous, straggler_timeout: float) -> Group:
    """Accept all other ranks, on rank 0."""
    launch, address = rendezvous.launch, rendezvous.address
    peers: Peers = {CONTROL: {}, HEARTBEAT: {}}
    with _listen(launch, address) as listener:
        while any(len(joined) < launch.size - 1 for joined in peers.values()):
            listener.settimeout(max(rendezvous.remaining, 0.001))
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                missing = sorted(set(range(1, launch.size)) - set(peers[HEARTBEAT]))
                _abort(
                    peers,
                    f"rank {', '.join(map(str, missing))} of {launch.size} did not join rank 0 at {launch.address} "
                    f"within {rendezvous.timeout:.0f} s; look for the reason in its own output",
                )
            _accept(connection, launch, peers)
    _reply_all(peers, ALL_JOINED)
    names = {0: _name(launch), **{rank: peer.name for rank, peer in peers[HEARTBEAT].items()}}
    heartbeat = Heartbeat(
        0, {rank: peer.connection for rank, peer in peers[HEARTBEAT].items()}, names, straggler_timeout
    )
    connections = {rank: peers[CONTROL][rank].connection for rank in range(1, launch.size)}
    return Group(replace(launch, address=address, local_address=address), connections, heartbeat)


def _accept(connection: socket.socket, launch: Launch, peers: Peers) -> None:
    """Add one connection to `peers` if it is of this run. Raises UserError if its rank or world size contradicts it."""
    connection.settimeout(HANDSHAKE_TIMEOUT)
    try:
        request = json.loads(receive(connection))
        rank, joined = int(request["rank"]), peers[request["type"]]
        job, size, name = request["job"], int(request["size"]), str(request["name"])
    except (ConnectionLost, ValueError, KeyError, TypeError):
        connection.close()  # not a process of the zoo
        return
    if job != launch.job:
        _reply(connection, OTHER_JOB)
        connection.close()
        return
    conflict = None
    if size != launch.size:
        conflict = f"{name} was started as one of {size} processes, {_name(launch)} as one of {launch.size}"
    elif rank in joined or rank == 0:
        first = _name(launch) if rank == 0 else joined[rank].name
        conflict = f"two processes were started as rank {rank}: {first} and {name}"
    if conflict:
        conflict += f"; start all of them with one launcher (this one was detected as {launch.launcher})"
        _reply(connection, {"refused": conflict})
        _abort(peers, conflict)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _reply(connection, ACCEPTED)
    joined[rank] = Peer(connection, name)


def _abort(peers: Peers, reason: str) -> None:
    """Refuse the ranks that have joined so far and raise UserError."""
    _reply_all(peers, {"refused": reason})
    raise UserError(reason)


def _reply_all(peers: Peers, reply: dict[str, Any]) -> None:
    for joined in peers.values():
        for peer in joined.values():
            _reply(peer.connection, reply)


def _reply(connection: socket.socket, reply: dict[str, Any]) -> None:
    with suppress(ConnectionLost):  # the heartbeat or the timeout will report it
        send(connection, json.dumps(reply).encode())


def _join(rendezvous: Rendezvous, straggler_timeout: float) -> Group:
    """Connect to rank 0, on the other ranks."""
    launch, address = rendezvous.launch, rendezvous.address
    control = _handshake(rendezvous, candidate_ports(launch), CONTROL)
    heartbeat_connection = _handshake(rendezvous, [control.getpeername()[1]], HEARTBEAT)
    for connection in (control, heartbeat_connection):
        connection.settimeout(rendezvous.timeout + 10)  # rank 0 times out first, and sends the reason
        try:
            reply = json.loads(receive(connection))
        except ConnectionLost:
            raise UserError(
                f"rank 0 at {launch.address} ended before all processes had joined; see its output for the cause"
            ) from None
        if reply != ALL_JOINED:
            raise UserError(reply["refused"])
        connection.settimeout(None)
    names = {launch.rank: _name(launch), 0: f"rank 0 ({launch.address})"}
    heartbeat = Heartbeat(launch.rank, {0: heartbeat_connection}, names, straggler_timeout)
    return Group(replace(launch, address=address, local_address=control.getsockname()[0]), {0: control}, heartbeat)


def _handshake(rendezvous: Rendezvous, ports: Iterable[int], connection_type: str) -> socket.socket:
    """Return a connection that rank 0 has accepted.

    Raises:
        UserError: Rank 0 refuses this process, or is not reached in time.
    """
    launch, ports = rendezvous.launch, list(ports)
    reason = "nothing listens there"
    while rendezvous.remaining > 0:
        for port in ports:
            try:
                connect_timeout = max(min(3, rendezvous.remaining), 0.1)
                connection = socket.create_connection((rendezvous.address, port), timeout=connect_timeout)
                reply = _request(connection, launch, connection_type)
            except (OSError, ConnectionLost, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error) or reason
                continue
            if reply == ACCEPTED:
                return connection
            if reply != OTHER_JOB:
                raise UserError(reply["refused"])
        time.sleep(RETRY_INTERVAL)
    raise UserError(
        f"rank {launch.rank} on {socket.gethostname()} cannot reach rank 0 at {launch.address}, ports {ports[0]} to "
        f"{ports[-1]}, within {rendezvous.timeout:.0f} s ({reason}); check that rank 0 is running, that this is its "
        "host, and that firewalls let these ports pass"
    )


def _request(connection: socket.socket, launch: Launch, connection_type: str) -> dict[str, Any]:
    """Ask rank 0 to accept this process, and return its reply."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = {
        "job": launch.job,
        "rank": launch.rank,
        "size": launch.size,
        "name": _name(launch),
        "type": connection_type,
    }
    send(connection, json.dumps(request).encode())
    reply = json.loads(receive(connection))
    if not isinstance(reply, dict):
        raise ConnectionLost("the listening process is not a rank of the zoo")
    return reply


def _listen(launch: Launch, address: str) -> socket.socket:
    """Listen on the first port of this run that is free."""
    ports = candidate_ports(launch)
    for port in ports:
        listener = socket.socket(address_family(address), socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
            listener.listen(2 * launch.size)
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
            _check_duplicate_root(launch, address, port)
    raise UserError(
        f"the ports {ports[0]} to {ports[-1]} of {launch.address} are all in use; choose another MASTER_PORT"
    )


def _check_duplicate_root(launch: Launch, address: str, port: int) -> None:
    """Raise UserError if the port is held by another process that was started as rank 0 of this run."""
    try:
        with socket.create_connection((address, port), timeout=1) as connection:
            reply = _request(connection, launch, CONTROL)
    except (OSError, ConnectionLost, ValueError):
        return
    if reply != OTHER_JOB and "refused" in reply:
        raise UserError(reply["refused"])


def _name(launch: Launch) -> str:
    return f"rank {launch.rank} ({socket.gethostname()}, process {os.getpid()})"
