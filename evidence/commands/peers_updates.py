"""Time an update of this trainer against other projects' training loops."""

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from evidence.peers import copies, updates
from zoo import program
from zoo.bench import upstream
from zoo.bench.commands.update import trainer_loop
from zoo.bench.interleave import Seconds, median_ratio, rotated, timed
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.data.errors import UserError
from zoo.program import count, natural
from zoo.run.job import assemble, join, sample_batch
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.table import table

EPILOG = """\
Contenders have a process each, and so the memory allocator, environment and threads that they have by themselves. They
compute in turn, update by update, on the same synthetic batch: this trainer as zoo train runs it, and the training loop
of the project. The machine should do nothing else: ten minutes in all on two cores. docs/performance.md says what to
clone and install; a project that is missing is left out and named.

examples
  %(prog)s --upstream ~/clones
  %(prog)s --upstream ~/clones --task tsm_224 arcface -n 15 --json updates.json"""
OURS = "this trainer"
# Values that a trainer of this project leaves alone and that change nothing: zoo/trainer/device.py.
NO_SETTINGS = {"MALLOC_ARENA_TEST": "8", "MKL_DEBUG_CPU_TYPE": ""}
REST = 0.3  # seconds before each update, in which the threads of the others fall asleep
COLUMNS = ("task", "", "ms", "this trainer's time / its", "CPU ms", "this trainer's CPU time / its")


class Task(NamedTuple):
    """A recipe on synthetic data, beside the project that its model comes from.

    Attributes:
        options: changes of it.
        update: function of (folder of the copies, job, batch) that returns its update.
    """

    framework: str
    recipe: str
    options: tuple[str, ...]
    peer: str
    update: Callable[[str, Any, Any], Callable[[], None]]

    @property
    def overrides(self) -> list[str]:
        """All changes of the recipe: whatever the data set is, nothing is read and nothing is downloaded."""
        return ["data.name=synthetic", "data.train_samples=64", "data.workers=0", *self.options]


CLIP = ("data.kind=clip", "data.segments=8", "model.pretrained=null", "data.num_classes=400")
SMALL_CLIP = (*CLIP, "data.size=112", "train.batch=2")
FACE = (
    *("data.kind=face", "data.size=112", "data.num_classes=10000", "model.depth=50", "train.batch=8"),
    *("task.m2=0.5", "task.m3=0", "optim.weight_decay=5e-4"),  # insightface's and PLSC's recipes of MS1MV3
)
IMAGE = ("data.kind=image", "data.size=224", "data.num_classes=1000", "train.global_batch=null", "train.batch=8")
SCENE = ("data.kind=scene", "data.crop=[256,512]", "model.pretrained=null", "train.sync_bn=false")
TASKS = {
    "tsm_224": Task("torch", "tsm_k400", (*CLIP, "data.size=224", "train.batch=1"), "mit-han-lab", updates.mit_han_lab),
    "tsm_112": Task("torch", "tsm_k400", SMALL_CLIP, "mit-han-lab", updates.mit_han_lab),
    "deeplabv3plus": Task("torch", "deeplabv3plus_cityscapes", SCENE, "mmsegmentation", updates.mmsegmentation),
    "arcface": Task("torch", "arcface_glint360k", FACE, "insightface", updates.insightface),
    "resnet50": Task("torch", "resnet50_imagenet", IMAGE, "torchvision", updates.torchvision),
    "resnet50_mindspore": Task(
        "mindspore", "resnet50_imagenet", (*IMAGE, "task.label_smoothing=0.1"), "mindcv", updates.mindcv
    ),
    "resnet50_jax": Task("jax", "resnet50_imagenet", (*IMAGE, "task.label_smoothing=0"), "flax", updates.flax),
    "tsm_paddle": Task("paddle", "tsm_k400", SMALL_CLIP, "PaddleVideo", updates.paddlevideo),
    "arcface_paddle": Task("paddle", "arcface_glint360k", FACE, "PLSC", updates.plsc),
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add("--upstream", required=True, metavar="DIR", help="folder of the copies of other projects")
    add("--task", nargs="+", choices=TASKS, default=list(TASKS), help="default: all")
    add("-n", "--passes", type=count, default=9, metavar="N", help="updates of each that count; default %(default)s")
    add("--warm-up", type=natural, default=2, metavar="N", help="updates of each before; default %(default)s")
    add_json_argument(parser)
    arguments = parser.parse_args(argv)
    upstream.require_clones(arguments.upstream)
    require_new(arguments.json, "--json")
    tasks = {name: _measure(TASKS[name], arguments) for name in arguments.task}
    cells = [cell for name, task in tasks.items() for cell in _cells(name, task["rows"])]
    skipped = [f"left out: {task['skipped']}" for task in tasks.values() if task["skipped"]]
    report = {"machine": copies.describe_machine(arguments.upstream), "tasks": tasks}
    print_report([*table(cells, COLUMNS, markdown=True), *skipped], report, arguments.json)
    return 0


def _measure(task: Task, arguments: argparse.Namespace) -> dict[str, Any]:
    """Time the updates of a task; return what was measured, of JSON's types."""
    with started(task, arguments.upstream) as (updates, skipped):
        times: dict[str, list[Seconds]] = {name: [] for name in updates}
        for number in range(arguments.warm_up + arguments.passes):
            for name in rotated(list(updates), number):
                seconds = updates[name]()
                times[name] += [seconds] if number >= arguments.warm_up else []
    return {"rows": rows(times), "times": times, "skipped": skipped, "load": os.getloadavg()[0]}


def rows(times: dict[str, list[Seconds]]) -> list[dict[str, Any]]:
    """Return medians, and the median over the passes of this trainer's time divided by each contender's."""
    found = []
    for name, passes in times.items():
        ratio = median_ratio(times[OURS], passes)
        wall, cpu = (1e3 * statistics.median(values) for values in zip(*passes))
        found.append({"name": name, "wall_ms": wall, "cpu_ms": cpu, "wall_ratio": ratio.wall, "cpu_ratio": ratio.cpu})
    return found


def _cells(name: str, measured: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    cells: list[tuple[str, ...]] = []
    for row in measured:
        wall, cpu = ("" if row["name"] == OURS else f"{row[key]:.2f}" for key in ("wall_ratio", "cpu_ratio"))
        title = name if row["name"] == OURS else ""
        cells.append((title, row["name"], f"{row['wall_ms']:.0f}", wall, f"{row['cpu_ms']:.0f}", cpu))
    return cells


def build(task: Task, clones: str, is_peer: bool) -> Callable[[], object]:
    """Return an update of this trainer, or of the other project.

    Raises:
        UserError: the other project, or something that it needs, is not installed.
    """
    if is_peer:
        os.environ.update(NO_SETTINGS)
    request = resolve_recipe(
        Options(f"configs/{task.recipe}.yaml", task.overrides, framework=task.framework, device="cpu")
    )
    job = assemble(request, join(request, os.environ))
    batch = sample_batch(job)
    if not is_peer:
        return trainer_loop(job, batch)
    return task.update(os.path.abspath(clones), job, batch)


@contextmanager
def started(task: Task, clones: str) -> Iterator[tuple[dict[str, Callable[[], Seconds]], str | None]]:
    """Start a process for each contender, one after the other, and end them on the way out.

    Yields:
        By name functions that run an update and return its time, and why the other project is left out, else None.

    Raises:
        UserError: a process has ended; the other project's is left out where it says why.
    """
    spawn = multiprocessing.get_context("spawn")  # no framework survives a fork
    connections: list[Connection] = []
    updates: dict[str, Callable[[], Seconds]] = {}
    skipped = None
    try:
        for name, is_peer in ((OURS, False), (task.peer, True)):
            connection, remote = spawn.Pipe()
            connections.append(connection)
            spawn.Process(target=_serve, args=(remote, task, clones, is_peer), daemon=True).start()
            remote.close()
            error = _receive(connection)
            if error is None:
                updates[name] = partial(_ask, connection)
            elif is_peer:
                skipped = error
            else:
                raise UserError(error)
        yield updates, skipped
    finally:
        for connection in connections:
            connection.close()


def _serve(connection: Connection, task: Task, clones: str, is_peer: bool) -> None:
    """Build a contender, send None, then run an update for each message, until the other end closes."""
    try:
        update = build(task, clones, is_peer)
    except UserError as error:
        connection.send(str(error))
        return
    connection.send(None)
    while True:
        try:
            connection.recv()
        except EOFError:
            os._exit(0)  # a framework's own end may take long, or crash
        connection.send(timed(update))


def _ask(connection: Connection) -> Seconds:
    time.sleep(REST)
    connection.send("update")
    return _receive(connection)


def _receive(connection: Connection) -> Any:
    try:
        return connection.recv()
    except EOFError:
        raise UserError("a contender's process has ended; its output above has the cause") from None
