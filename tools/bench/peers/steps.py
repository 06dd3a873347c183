"""Time an update of this trainer against other projects' training loops and against the convolutions alone."""

import argparse
import json
import os
import sys
from typing import Any

from zoo.bench.peers.machine import describe_machine
from zoo.bench.peers.updates import contenders, turns
from zoo.bench.peers.updates.layers import of_task
from zoo.bench.peers.updates.tasks import TASKS
from zoo.bench.peers.upstream import require_clones
from zoo.commands.new_file import require_new
from zoo.data.errors import UserError

EPILOG = """\
Contenders have a process each and compute in turn, update by update, on the same synthetic batch: this trainer as
train.py runs it, the training loop of the project, and forward and backward pass of the model's convolutions and matrix
products alone. The machine should do nothing else: ten minutes in all on two cores. docs/performance.md says
what to clone and install; a project that is missing is left out and named.

examples
  python tools/bench/peers/steps.py --upstream ~/clones
  python tools/bench/peers/steps.py --upstream ~/clones --task tsm_224 arcface --passes 15 --json steps.json"""


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
    arguments = parser.parse_args(argv)
    try:
        _check(arguments)
        measured = _measure(arguments)
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


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    measured: dict[str, Any] = {"machine": describe_machine(arguments.upstream), "tasks": {}}
    for name in arguments.task:
        measured["tasks"][name] = _measure_task(name, arguments)
    rows = [line for name, task in measured["tasks"].items() for line in turns.table(name, task["rows"])]
    print("\n".join([*turns.HEADER, *rows]))
    return measured


def _measure_task(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    task = TASKS[name]
    with contenders.started(task, arguments.upstream, of_task(task)) as all_of_task:
        updates, notes, mode, skipped = all_of_task
        load = os.getloadavg()[0]
        print(f"{name}: {', '.join(updates)}; load of the machine {load:.1f}", flush=True)
        times = turns.measure(updates, arguments.warm_up, arguments.passes)
    lines = [*notes, *turns.HEADER, *turns.table(name, turns.rows(times))]
    print("\n".join([*lines, *([f"left out: {skipped}"] if skipped else [])]), flush=True)
    return {"rows": turns.rows(times), "times": times, "mode": mode, "skipped": skipped, "load": load}
