"""Time this project's input pipelines against bare loops, DALI and other projects' loaders, on the same files."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from zoo import program
from zoo.bench.peers import passes, report, tasks
from zoo.bench.peers.machine import describe_machine
from zoo.bench.peers.upstream import require_clones
from zoo.commands.new_file import require_new
from zoo.data.errors import UserError

EPILOG = """\
Each task runs in a process of its own, and its loaders in turn: first with two worker processes, then in one thread,
about ten minutes in all on two idle cores.
The files are made at first use (0.6 GB, minutes). docs/performance.md says what to clone and install for the loaders
of other projects; one that is missing is left out and named.

examples
  python tools/bench/peers/loading.py --upstream ~/clones
  python tools/bench/peers/loading.py --upstream ~/clones --task imagenet faces --json loading.json"""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--upstream", required=True, metavar="DIR", help="folder of the copies of other projects")
    add("--task", nargs="+", choices=tasks.TASKS, default=list(tasks.TASKS), help="default: all")
    add("--files", default="datasets/peers", metavar="DIR", help="folder of the files to read; default %(default)s")
    add("--passes", type=int, default=7, metavar="N", help="turns of each loader; default %(default)s")
    add("--json", metavar="FILE", help="write what was measured to a new file, too")
    arguments = parser.parse_args(argv)
    try:
        _check(arguments)
        report_of = _run_one if len(arguments.task) == 1 else _run_each
        measured = report_of(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        with open(arguments.json, "x", encoding="utf-8") as file:
            json.dump(measured, file, indent=1)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    if arguments.passes < 1:
        raise UserError(f"--passes {arguments.passes}: must be at least 1")
    require_clones(arguments.upstream)
    require_new(arguments.json, "--json")


def _run_each(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run each task in a process of its own, where the libraries of the others are not loaded."""
    measured: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for task in arguments.task:
            path = os.path.join(folder, f"{task}.json")
            command = program.command("bench", "peers", "--task", task, "--json", path)
            command += ["--upstream", arguments.upstream, "--files", arguments.files, "--passes", str(arguments.passes)]
            if subprocess.run(command, check=False).returncode:
                raise UserError(f"--task {task} failed; its output above has the cause")
            with open(path, encoding="utf-8") as file:
                measured |= json.load(file)
    return measured


def _run_one(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)  # as in worker processes
    (name,) = arguments.task
    os.makedirs(arguments.files, exist_ok=True)
    task = tasks.TASKS[name](arguments.files, arguments.upstream)
    loads = [os.getloadavg()[0]]
    in_thread, in_workers = task.batches
    print(f"{name}: {len(task.contenders)} loaders, {arguments.passes} passes ...", flush=True)
    # Worker processes first: they are forked, and this process has not read anything yet.
    of_workers = passes.worker_processes(task.contenders, task.batch, in_workers, arguments.passes)
    one_thread = passes.one_thread(task.contenders, task.batch, in_thread, arguments.passes)
    rows = report.rows(task.contenders, one_thread, of_workers)
    loads.append(os.getloadavg()[0])
    lines = [
        f"{name}: medians of {arguments.passes} passes in turn, batches of {task.batch}; load of the machine "
        f"{loads[0]:.1f} before and {loads[1]:.1f} after",
        *report.table(rows),
        *report.between_files(rows),
        *(f"left out: {reason}" for reason in task.skipped),
    ]
    print("\n".join(lines), flush=True)
    facts = {"passes_per_loader": arguments.passes, **describe_machine(arguments.upstream)}
    return {name: {"rows": rows, "batch": task.batch, "skipped": task.skipped, "load": loads, **facts}}
