"""Collectives over TCP between the processes of a run, independent of the framework.

Every framework's own collectives hang or abort in their own way when a process is missing, and none of them adds
integers or float64 everywhere. So rank 0 has two connections to each of the others, made by
zoo/distributed/rendezvous.py: one for collectives, one for heartbeats (zoo/distributed/heartbeat.py). Only JSON and
safetensors travel.

Rank 0 sends to and receives from every other rank, which takes it longer the more there are (docs/distributed.md has
what was measured), so Polling lets many ranks exchange less often than every step.
"""

import hashlib
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from safetensors.numpy import load, save

from zoo import program
from zoo.config import loader
from zoo.data.errors import UserError
from zoo.distributed.wire import Channel, ConnectionLost
from zoo.trainer.protocol import Trainer
from zoo.trainer.world import Launch

if TYPE_CHECKING:
    from zoo.distributed.heartbeat import Heartbeat

EMPTY = b"[]"
HEARTBEAT_GRACE = 10  # seconds in which the heartbeat thread reports a lost process and exits this one

SMALL_WORLD = 16  # ranks; up to this world size ranks poll after every step
SECONDS_PER_RANK = 0.01  # between two polls of a larger world
RANK_SPECIFIC_KEYS = ("device", "out")  # of a recipe; all others must be the same on all ranks

T = TypeVar("T")


class Group:
    """Process group of a run.

    `all_gather`, `concatenate`, `gather`, `sum`, `time_limit` and `close` are collective: all ranks call them in the
    same order. They wait for each other, but in `gather` rank 0 alone waits. Rank 0 has connections to all other ranks,
    by rank, and the others one to rank 0; a single process has neither connections nor a heartbeat.
    """

    def __init__(
        self,
        launch: Launch,
        connections: Mapping[int, Channel] = MappingProxyType({}),
        heartbeat: "Heartbeat | None" = None,
    ):
        self.launch, self.rank, self.size = launch, launch.rank, launch.size
        self._connections, self._heartbeat = connections, heartbeat

    def all_gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, by rank, on every rank. value: anything that JSON can represent."""
        message = json.dumps(value).encode()
        if self.size == 1:
            return [json.loads(message)]
        self.set_status("waiting for the other processes")
        return json.loads(self._guard(lambda: self._gather_and_broadcast(message, _listed)))

    def concatenate(self, items: list[Any]) -> list[Any]:
        """Return the items of all ranks, in the order of the ranks, on every rank: cheap where most have none."""
        if self.size == 1:
            return items

        def join(messages: list[bytes]) -> bytes:
            full = [message for message in messages if message != EMPTY]
            return json.dumps([item for message in full for item in json.loads(message)]).encode() if full else EMPTY

        self.set_status("waiting for the other processes")
        message = json.dumps(items).encode()
        joined: list[Any] = json.loads(self._guard(lambda: self._gather_and_broadcast(message, join)))
        return joined

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, by rank, on rank 0; on the others, which do not wait, their own alone."""
        if self.rank:
            self.send_to_root(json.dumps(value).encode())
            return [value]
        if self.size > 1:
            self.set_status("waiting for the other processes")
        others = [self.receive_from(rank) for rank in range(1, self.size)]
        return [value, *json.loads(_listed(others))]  # at once, which is quicker

    def sum(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Sum arrays over ranks by name, in the arrays' own dtype and in the order of the ranks."""
        if self.size == 1:
            return dict(arrays)

        def add(messages: list[bytes]) -> bytes:  # on rank 0, so that arrays travel once each way
            per_rank = [load(received) for received in messages]
            totals = {name: sum((other[name] for other in per_rank[1:]), per_rank[0][name]) for name in arrays}
            return save({name: np.asarray(total) for name, total in totals.items()})  # of shape () they are scalars

        message = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
        self.set_status("waiting for the other processes")
        return load(self._guard(lambda: self._gather_and_broadcast(message, add)))

    def send_to_root(self, message: bytes) -> None:
        """Send rank 0 a message that it fetches by `receive_from`. Not for rank 0."""
        self._guard(lambda: self._connections[0].send(message))

    def receive_from(self, rank: int) -> bytes:
        """Receive the next message that `rank` sends by `send_to_root`. For rank 0 only."""
        return self._guard(lambda: self._connections[rank].read())

    def set_status(self, status: str) -> None:
        """Set the operation that this process is about to start, for the message if it hangs there."""
        if self._heartbeat:
            self._heartbeat.set_status(status)

    @contextmanager
    def time_limit(self, seconds: float, operation: str) -> Iterator[None]:
        """Exit this process with a message if the `with` block takes longer; a single process has no limit."""
        if self._heartbeat is None:
            yield
            return
        self._heartbeat.set_deadline(seconds, operation)
        yield
        self._heartbeat.set_deadline(None, operation)

    def fail(self, reason: str) -> None:
        """Broadcast why this process ends; the others exit with the same message."""
        if self._heartbeat:
            self._heartbeat.fail(reason)

    def close(self) -> None:
        """Wait until all ranks have finished, then sign off."""
        if self._heartbeat:
            self.all_gather(None)
            self._heartbeat.stop()

    def _gather_and_broadcast(self, message: bytes, combine: Callable[[list[bytes]], bytes]) -> bytes:
        """Return what `combine` makes on rank 0 of the messages of all ranks."""
        if self.rank:
            self._connections[0].send(message)
            return self._connections[0].read()
        combined = combine([message] + [self._connections[rank].read() for rank in range(1, self.size)])
        for connection in self._connections.values():
            connection.send(combined)
        return combined

    def _guard(self, operation: Callable[[], T]) -> T:
        """Run an operation on the connections; if one is lost, let the heartbeat thread report the cause and exit."""
        try:
            return operation()
        except ConnectionLost:
            time.sleep(HEARTBEAT_GRACE)
            raise UserError("lost the connection to the other processes; see their output for the cause") from None


def _listed(messages: list[bytes]) -> bytes:
    """Return values in JSON as a list in JSON."""
    return b"[" + b",".join(messages) + b"]"


class Polling:
    """Periodic exchange of what may happen to any rank at any step, such as a signal, as lists.

    An exchange takes rank 0 longer the more ranks there are. In a large world it comes so seldom that it costs the same
    share of the time whatever a step takes; rank 0 announces with each exchange after how many steps the next follows.
    """

    def __init__(self, group: Group):
        self._group = group
        self._next = 0  # step
        self._previous: tuple[int, float] | None = None  # step and time, monotonic clock in seconds, of an exchange

    def is_due(self, done: int) -> bool:
        """Return whether the ranks exchange after `done` steps; the same on all ranks."""
        return done >= self._next

    def exchange(self, done: int, items: list[Any]) -> list[Any]:
        """Return the items of all ranks, in the order of the ranks; collective."""
        mine = items if self._group.rank else [self._steps_ahead(done), *items]
        ahead, *everywhere = self._group.concatenate(mine)
        self._next = done + ahead
        return everywhere

    def _steps_ahead(self, done: int) -> int:
        """Return after how many steps the next exchange follows, by the time of the steps since the last one."""
        size, now, previous = self._group.size, time.monotonic(), self._previous
        self._previous = done, now
        if size <= SMALL_WORLD or previous is None or done == previous[0]:
            return 1
        step = (now - previous[1]) / (done - previous[0])
        return min(max(int(size * SECONDS_PER_RANK / max(step, 1e-6)), 1), size)


def assert_same(group: Group, name: str, value: Any) -> None:
    """Check that all ranks have the same value of something, whose name is for the message. A collective call."""
    gathered = group.all_gather([value, socket.gethostname()])
    root_value, root_host = gathered[0]
    deviating = [
        f"rank {rank} ({host}): {rank_value}"
        for rank, (rank_value, host) in enumerate(gathered)
        if rank_value != root_value
    ]
    if deviating:
        lines = [f"rank 0 ({root_host}): {root_value}", *deviating]
        raise UserError(f"{name} is not the same on all processes.\n  " + "\n  ".join(lines))


def assert_same_recipe(group: Group, resolved: loader.Entries) -> None:
    """Check that all ranks have the same recipe. Raises UserError listing the keys that differ. A collective call."""
    recipes = group.all_gather(
        {key: str(entry.value) for key, entry in resolved.items() if key not in RANK_SPECIFIC_KEYS}
    )
    root = recipes[0]
    for rank, recipe in enumerate(recipes):
        differing = sorted(key for key in {*root, *recipe} if root.get(key) != recipe.get(key))
        if differing:
            lines = [f"{key}: {root.get(key)} on rank 0, {recipe.get(key)} on rank {rank}" for key in differing]
            raise UserError("the recipe is not the same on all processes:\n  " + "\n  ".join(lines))


def code_version() -> str:
    """Return a digest of the sources, which differs between two versions of this project."""
    digest = hashlib.md5()
    for path in sorted(program.PACKAGE.rglob("*.py")):
        digest.update(
            json.dumps([path.relative_to(program.PACKAGE).as_posix(), path.read_text(encoding="utf-8")]).encode()
        )
    return digest.hexdigest()


def describe_ranks(group: Group, device: str, framework: str) -> list[dict[str, str]]:
    return group.all_gather({"host": socket.gethostname(), "device": device, "framework": framework})


def nonfinite_report(group: Group, trainer: Trainer) -> str:
    """Return the non-finite tensors of all ranks as one line for a message. A collective call."""
    reports = sorted(set(group.all_gather(trainer.nonfinite_report())))
    return "; ".join(report for report in reports if report != "all finite") or "all finite"
