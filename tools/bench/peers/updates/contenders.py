"""Contenders of a task in processes of their own, which compute when they are asked to.

So each has the memory allocator, the environment and the threads that it has by itself: what this trainer sets for its
process is not set for another project.
"""

import importlib
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from zoo.bench.commands.update import trainer_loop
from zoo.bench.peers.updates.layers import Layer
from zoo.bench.peers.updates.tasks import Task
from zoo.bench.peers.updates.turns import OURS, Seconds, TimedUpdate, Update, timed
from zoo.data.errors import UserError
from zoo.run import cli
from zoo.run.job import Job, assemble, join, sample_batch
from zoo.trainer import load_backend
from zoo.trainer.world import Launch

# Values that a trainer of this project leaves alone and that change nothing: zoo/trainer/malloc.py, zoo/trainer/mkl.py.
NO_SETTINGS = {"MALLOC_ARENA_TEST": "8", "MKL_DEBUG_CPU_TYPE": ""}
REST = 0.3  # seconds before each update, in which the threads of the others fall asleep


class Contenders(NamedTuple):
    """What a process computes.

    Attributes:
        updates: by name.
        notes: lines for the report.
        mode: of this trainer, if it is the one that computes.
    """

    updates: Mapping[str, Update]
    notes: tuple[str, ...] = ()
    mode: Mapping[str, Any] | None = None


def of_trainer(task: Task, clones: str, layers: Sequence[Layer]) -> Contenders:
    """Return an update of this trainer, as train.py runs it."""
    job = _job(task)
    return Contenders({OURS: trainer_loop(job, sample_batch(job))}, (), job.plan.mode._asdict())


def of_peer(task: Task, clones: str, layers: Sequence[Layer]) -> Contenders:
    """Return an update of the other project."""
    os.environ.update(NO_SETTINGS)
    job, peer = _job(task), importlib.import_module(f"zoo.bench.peers.updates.{task.peer}")
    return Contenders({peer.NAME: peer.update(os.path.abspath(clones), job, sample_batch(job))})


def of_convolutions(task: Task, clones: str, layers: Sequence[Layer]) -> Contenders:
    """Return the convolutions alone, with the settings of this trainer's process."""
    load_backend(task.framework).start(Launch(), "cpu", 0)
    return Contenders(importlib.import_module(f"zoo.bench.peers.updates.convolutions_{task.framework}").loops(layers))


KINDS = (of_trainer, of_peer, of_convolutions)


class Started(NamedTuple):
    """Contenders that are ready.

    Attributes:
        updates: by name; each returns its times.
        notes: of all.
        mode: of this trainer.
        skipped: why the other project is left out; None if it is not.
    """

    updates: Mapping[str, TimedUpdate]
    notes: tuple[str, ...]
    mode: Mapping[str, Any]
    skipped: str | None


@contextmanager
def started(task: Task, clones: str, layers: Sequence[Layer]) -> Iterator[Started]:
    """Start a process for each kind of contenders, one after the other, and end them on the way out.

    Raises:
        UserError: a process has ended; the other project's is left out where it says why.
    """
    spawn = multiprocessing.get_context("spawn")  # no framework survives a fork
    connections: list[Connection] = []
    updates: dict[str, TimedUpdate] = {}
    notes: list[str] = []
    mode: Mapping[str, Any] = {}
    skipped = None
    try:
        for kind in KINDS:
            connection, remote = spawn.Pipe()
            connections.append(connection)
            spawn.Process(target=_serve, args=(remote, kind, task, clones, layers), daemon=True).start()
            remote.close()
            error, names, more, its_mode = _receive(connection)
            if error is not None and kind is not of_peer:
                raise UserError(error)
            skipped = error or skipped
            updates.update((name, _remote(connection, name)) for name in names)
            notes, mode = [*notes, *more], its_mode or mode
        yield Started(updates, tuple(notes), mode, skipped)
    finally:
        for connection in connections:
            connection.close()


def _job(task: Task) -> Job:
    request = cli.request(f"configs/{task.recipe}.yaml", task.overrides, framework=task.framework, device="cpu")
    return assemble(request, join(request, os.environ))


def _serve(connection: Connection, kind: Any, task: Task, clones: str, layers: Sequence[Layer]) -> None:
    """Build contenders, send their names, then run an update for each name received, until the other end closes."""
    try:
        contenders = kind(task, clones, layers)
    except UserError as error:
        connection.send((str(error), (), (), None))
        return
    connection.send((None, tuple(contenders.updates), contenders.notes, contenders.mode))
    while True:
        try:
            name = connection.recv()
        except EOFError:
            os._exit(0)  # a framework's own end may take long, or crash
        connection.send(timed(contenders.updates[name]))


def _remote(connection: Connection, name: str) -> TimedUpdate:
    def update() -> Seconds:
        time.sleep(REST)
        connection.send(name)
        return _receive(connection)

    return update


def _receive(connection: Connection) -> Any:
    try:
        return connection.recv()
    except EOFError:
        raise UserError("a contender's process has ended; its output above has the cause") from None
