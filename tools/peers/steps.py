"""Time an update of this trainer against other projects' training loops and against the convolutions alone."""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from data.errors import UserError
from tools.bench import sample_batch, trainer_loop
from tools.new_file import require_new
from tools.peers.machine import describe_machine
from tools.peers.updates import turns
from tools.peers.updates.layers import Layer, of_task
from tools.peers.updates.tasks import TASKS
from tools.peers.upstream import require_clones
from zoo.run import cli
from zoo.run.job import assemble, join

EPILOG = """\
Each task runs in a process of its own, and its contenders in turn, update by update, on the same synthetic batch: this
trainer as train.py runs it, the training loop of the project, and forward and backward pass of the model's convolutions
and matrix products alone. The machine should do nothing else: ten minutes in all on two cores. docs/performance.md says
what to clone and install; a project that is missing is left out and named.

examples
  python tools/peers/steps.py --upstream ~/clones
  python tools/peers/steps.py --upstream ~/clones --task tsm_224 arcface --passes 15 --json steps.json"""
LAYERS = "layers.json"


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--upstream", required=True, metavar="DIR", help="folder of the copies of other projects")
    add("--task", nargs="+", choices=TASKS, default=list(TASKS), help="default: all")
    add("--passes", type=int, default=9, metavar="N", help="updates of each contender that count; default %(default)s")
    add("--warm-up", type=int, default=2, metavar="N", help="updates of each before; default %(default)s")
    add("--json", metavar="FILE", help="write what was measured to a new file, too")
    add("--layers", metavar="FILE", help=argparse.SUPPRESS)  # of the task, for the process that measures it
    arguments = parser.parse_args(argv)
    try:
        _check(arguments)
        measured = _run_one(arguments) if arguments.layers else _run_each(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        with open(arguments.json, "x", encoding="utf-8") as file:
            json.dump(measured, file, indent=1)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    if arguments.passes < 1 or arguments.warm_up < 0:
        raise UserError(f"--passes {arguments.passes} --warm-up {arguments.warm_up}: at least 1, and at least 0")
    require_clones(arguments.upstream)
    require_new(arguments.json, "--json")


def _run_each(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run each task in a process of its own, which loads no other framework."""
    measured: dict[str, Any] = {"machine": describe_machine(arguments.upstream), "tasks": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.task:
            path, layers = os.path.join(folder, f"{name}.json"), os.path.join(folder, f"{name}-{LAYERS}")
            with open(layers, "w", encoding="utf-8") as file:
                json.dump(of_task(TASKS[name]), file)
            command = [sys.executable, os.path.abspath(__file__), "--task", name, "--json", path, "--layers", layers]
            command += ["--upstream", arguments.upstream, "--passes", str(arguments.passes)]
            if subprocess.run([*command, "--warm-up", str(arguments.warm_up)], check=False).returncode:
                raise UserError(f"--task {name} failed; its output above has the cause")
            with open(path, encoding="utf-8") as file:
                measured["tasks"][name] = json.load(file)
    rows = [line for name, task in measured["tasks"].items() for line in turns.table(name, task["rows"])]
    print("\n".join([*turns.HEADER, *rows]))
    return measured


def _run_one(arguments: argparse.Namespace) -> dict[str, Any]:
    (name,) = arguments.task
    task = TASKS[name]
    request = cli.request(f"configs/{task.recipe}.yaml", task.overrides, framework=task.framework, device="cpu")
    job = assemble(request, join(request, os.environ), measure=True)
    batch = sample_batch(job)
    updates: dict[str, turns.Update] = {turns.OURS: trainer_loop(job, batch)}
    skipped = None
    try:
        peer = importlib.import_module(f"tools.peers.updates.{task.peer}")
        updates[peer.NAME] = peer.update(os.path.abspath(arguments.upstream), job, batch)
    except UserError as error:
        skipped = str(error)
    with open(arguments.layers, encoding="utf-8") as file:
        rows: list[list[Any]] = json.load(file)
    layers = [Layer(*map(_plain, row)) for row in rows]
    updates.update(importlib.import_module(f"tools.peers.updates.convolutions_{task.framework}").loops(layers))
    load = os.getloadavg()[0]
    print(f"{name}: {', '.join(updates)}; load of the machine {load:.1f}", flush=True)
    times = turns.measure(updates, arguments.warm_up, arguments.passes)
    lines = [*job.choice.notes, *turns.HEADER, *turns.table(name, turns.rows(times))]
    print("\n".join([*lines, *([f"left out: {skipped}"] if skipped else [])]), flush=True)
    mode = job.plan.mode._asdict()
    return {"rows": turns.rows(times), "times": times, "mode": mode, "skipped": skipped, "load": load}


def _plain(value: Any) -> Any:
    """Return a field of a layer as it was before JSON, which has no tuples."""
    return tuple(value) if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
