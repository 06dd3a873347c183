"""The processes of a run beside the framework: that all are there, what each of them knows, and sums over them.

Every framework's own collectives hang or abort in their own way when a process is missing, and none of them adds whole
numbers or float64 everywhere. So rank 0 listens, the others connect twice: one connection to ask on, one that tells
that its process is alive (zoo/distributed/heartbeat.py). Only JSON and safetensors travel, at most once per step.
"""

import errno
import json
import os
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save

from data.errors import UserError
from zoo.distributed.heartbeat import Heartbeat
from zoo.distributed.wire import ConnectionLost, pack, receive, send, unpack
from zoo.trainer.protocol import Launch

DEADLINE = 60.0  # seconds until all processes must have come
FIRST, SPAN, TRIES = 20000, 12000, 8  # ports: below the range that systems give away themselves
# What rank 0 answers, beside {"refused": why}: stay, look elsewhere, all have come.
WELCOME, ELSEWHERE, COME = {"welcome": True}, {"refused": "another run"}, {"come": True}


class Group:
    """All ranks of a run. Every method but `at` and `fail` is called by all ranks alike, and waits for them."""

    def __init__(self, launch: Launch, links: Mapping[int, socket.socket], watch: Heartbeat | None):
        self.launch, self.rank, self.size = launch, launch.rank, launch.size
        self._links, self._watch = links, watch  # rank 0: rank -> connection; the others: {0: connection}

    def all_gather(self, value: Any) -> list[Any]:
        """What each rank gave, by rank, on every rank. value: anything JSON can hold."""
        return [json.loads(part) for part in self._exchange(json.dumps(value).encode())]

    def sum(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The sum over ranks by name, in the arrays' own dtype and in the order of the ranks."""
        if self.size == 1:
            return dict(arrays)
        parts = [
            load(part)
            for part in self._exchange(save({name: np.asarray(array, order="C") for name, array in arrays.items()}))
        ]
        return {name: sum((part[name] for part in parts[1:]), parts[0][name]) for name in arrays}

    def send_to_root(self, message: bytes) -> None:
        """Give rank 0, which takes it, a message. Called by one of the others."""
        self._over(lambda: send(self._links[0], message))

    def receive_from(self, rank: int) -> bytes:
        """The message that a rank hands over. Called by rank 0."""
        return self._over(lambda: receive(self._links[rank]))

    def set_status(self, what: str) -> None:
        """Note what this process is about to do, for the message should it never come back."""
        if self._watch:
            self._watch.set_status(what)

    @contextmanager
    def limit(self, seconds: float, what: str) -> Iterator[None]:
        """End this process with a message if `what` takes longer, unless it is alone."""
        if self._watch is None:
            yield
            return
        self._watch.limit(seconds, what)
        yield
        self._watch.limit(None, what)

    def fail(self, reason: str) -> None:
        """Tell the others why this process ends; theirs end too."""
        if self._watch:
            self._watch.fail(reason)

    def close(self) -> None:
        """Part in peace, when all have come this far."""
        if self._watch:
            self.all_gather(None)
            self._watch.stop()

    def _exchange(self, mine: bytes) -> list[bytes]:
        if self.size == 1:
            return [mine]
        self.set_status("waiting for the others")
        return self._over(lambda: self._round(mine))

    def _round(self, mine: bytes) -> list[bytes]:
        if self.rank:
            send(self._links[0], mine)
            return unpack(receive(self._links[0]))
        parts = [mine] + [receive(self._links[rank]) for rank in range(1, self.size)]
        everything = pack(parts)
        for link in self._links.values():
            send(link, everything)
        return parts

    def _over(self, exchange: Callable[[], Any]) -> Any:
        try:
            return exchange()
        except ConnectionLost:
            time.sleep(10)  # the watch knows who is gone, says so and ends this process
            raise UserError("lost the connection to the other processes") from None


class _Peer(NamedTuple):
    link: socket.socket
    name: str


def connect(launch: Launch, straggler_timeout: float, deadline: float = DEADLINE) -> Group:
    """Meet the other processes. Raises UserError that says who is missing after `deadline` seconds, or what is wrong.

    straggler_timeout: seconds after which a process that stays behind the others is given up.
    """
    if launch.size == 1:
        return Group(launch, {}, None)
    end = time.monotonic() + deadline
    address = _resolve(launch)
    if launch.rank == 0:
        return _accept_ranks(launch, address, end, deadline, straggler_timeout)
    return _join(launch, address, end, deadline, straggler_timeout)


def free_port(address: str) -> int:
    """A port of this host that nothing listens at just now."""
    with socket.socket(_family(address), socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def _accept_ranks(launch: Launch, address: str, end: float, deadline: float, straggler_timeout: float) -> Group:
    guests: dict[str, dict[int, _Peer]] = {"ask": {}, "life": {}}
    with _listen(launch, address) as listener:
        while any(len(found) < launch.size - 1 for found in guests.values()):
            listener.settimeout(max(end - time.monotonic(), 0.001))
            try:
                link, _ = listener.accept()
            except TimeoutError:
                missing = sorted(set(range(1, launch.size)) - set(guests["life"]))
                _refuse(
                    guests,
                    f"rank {', '.join(map(str, missing))} of {launch.size} did not come within "
                    f"{deadline:.0f} s to rank 0 at {launch.address}; its own output may tell why",
                )
            _welcome(link, launch, guests)
    for found in guests.values():
        for guest in found.values():
            _answer(guest.link, COME)
    names = {0: _me(launch), **{rank: guest.name for rank, guest in guests["life"].items()}}
    watch = Heartbeat(0, {rank: guest.link for rank, guest in guests["life"].items()}, names, straggler_timeout)
    links = {rank: guests["ask"][rank].link for rank in range(1, launch.size)}
    return Group(replace(launch, address=address, here=address), links, watch)


def _welcome(link: socket.socket, launch: Launch, guests: dict[str, dict[int, _Peer]]) -> None:
    """Take in one connection, if it is of this run. Raises UserError if this run contradicts itself."""
    link.settimeout(5)
    try:
        hello = json.loads(receive(link))
        rank, found = int(hello["rank"]), guests[hello["use"]]
        job, size, name = hello["job"], int(hello["size"]), str(hello["name"])
    except (ConnectionLost, ValueError, KeyError, TypeError):
        link.close()  # not one of ours
        return
    if job != launch.job:
        _answer(link, ELSEWHERE)
        link.close()
        return
    wrong = None
    if size != launch.size:
        wrong = f"{name} was told of {size} processes, {_me(launch)} of {launch.size}"
    elif rank in found or rank == 0:
        other = _me(launch) if rank == 0 else found[rank].name
        wrong = f"two processes were started as rank {rank}: {other} and {name}"
    if wrong:
        wrong += f"; start all with one launcher (this one looked like {launch.kind})"
        _answer(link, {"refused": wrong})
        _refuse(guests, wrong)
    link.settimeout(None)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _answer(link, WELCOME)
    found[rank] = _Peer(link, name)


def _refuse(guests: dict[str, dict[int, _Peer]], reason: str) -> None:
    for found in guests.values():
        for guest in found.values():
            _answer(guest.link, {"refused": reason})
    raise UserError(reason)


def _answer(link: socket.socket, answer: dict[str, Any]) -> None:
    try:
        send(link, json.dumps(answer).encode())
    except ConnectionLost:
        pass  # it is gone; the watch or the deadline will say so


def _join(launch: Launch, address: str, end: float, deadline: float, straggler_timeout: float) -> Group:
    ask = _handshake(launch, address, _ports(launch), "ask", end, deadline)
    life = _handshake(launch, address, [ask.getpeername()[1]], "life", end, deadline)
    for link in (ask, life):
        link.settimeout(deadline + 10)  # rank 0 gives up first, and says why
        try:
            answer = json.loads(receive(link))
        except ConnectionLost:
            raise UserError(f"rank 0 at {launch.address} went away before all processes had come") from None
        if answer != COME:
            raise UserError(answer["refused"])
        link.settimeout(None)
    watch = Heartbeat(
        launch.rank, {0: life}, {launch.rank: _me(launch), 0: f"rank 0 ({launch.address})"}, straggler_timeout
    )
    return Group(replace(launch, address=address, here=ask.getsockname()[0]), {0: ask}, watch)


def _handshake(launch: Launch, address: str, ports: list[int], use: str, end: float, deadline: float) -> socket.socket:
    """A connection on which rank 0 has welcomed us. Raises UserError if it refuses, or is not found in time."""
    reason = "nothing listens there"
    while time.monotonic() < end:
        for port in ports:
            try:
                link = socket.create_connection((address, port), timeout=max(min(3, end - time.monotonic()), 0.1))
                answer = _greet(link, launch, use)
            except (OSError, ConnectionLost, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error) or reason
                continue
            if answer == WELCOME:
                return link
            if answer != ELSEWHERE:
                raise UserError(answer["refused"])
        time.sleep(0.2)
    raise UserError(
        f"rank {launch.rank} on {socket.gethostname()} cannot reach rank 0 at {launch.address}, ports "
        f"{ports[0]} to {ports[-1]}, within {deadline:.0f} s ({reason}); does rank 0 run, "
        f"is that its host, and do firewalls let these ports pass?"
    )


def _greet(link: socket.socket, launch: Launch, use: str) -> dict[str, Any]:
    """Say who we are; what rank 0 answers."""
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    hello = {"job": launch.job, "rank": launch.rank, "size": launch.size, "name": _me(launch), "use": use}
    send(link, json.dumps(hello).encode())
    answer = json.loads(receive(link))
    if not isinstance(answer, dict):
        raise ConnectionLost("not one of ours")
    return answer


def _listen(launch: Launch, address: str) -> socket.socket:
    for port in _ports(launch):
        listener = socket.socket(_family(address), socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
            listener.listen(2 * launch.size)
            return listener
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRNOTAVAIL:
                raise UserError(
                    f"{launch.kind} says that rank 0 is at {launch.address}, but that is not an address of "
                    f"{socket.gethostname()}, where rank 0 runs"
                ) from None
            if error.errno != errno.EADDRINUSE:
                raise UserError(f"rank 0 cannot listen at {launch.address}:{port}: {error.strerror}") from None
            _meet_double(launch, address, port)
    raise UserError(
        f"the ports {_ports(launch)[0]} to {_ports(launch)[-1]} of {launch.address} are all in use; choose "
        "another MASTER_PORT"
    )


def _meet_double(launch: Launch, address: str, port: int) -> None:
    """Raises UserError if it is another rank 0 of this very run that holds the port."""
    try:
        with socket.create_connection((address, port), timeout=1) as link:
            answer = _greet(link, launch, "ask")
    except (OSError, ConnectionLost, ValueError):
        return
    if answer != ELSEWHERE and "refused" in answer:
        raise UserError(answer["refused"])


def _resolve(launch: Launch) -> str:
    try:
        return socket.getaddrinfo(launch.address, None, type=socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        raise UserError(f"{launch.kind} says that rank 0 is at {launch.address!r}: {error.strerror}") from None


def _ports(launch: Launch) -> list[int]:
    """Where rank 0 may listen: the same for all ranks of a run, most likely others for another run."""
    first = zlib.crc32(f"{launch.address} {launch.job}".encode()) % (SPAN - TRIES)
    return [FIRST + first + number for number in range(TRIES)]


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _me(launch: Launch) -> str:
    return f"rank {launch.rank} ({socket.gethostname()}, process {os.getpid()})"
