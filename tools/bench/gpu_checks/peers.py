"""Time updates of this trainer and of another project's loop on one device, in turn, on the same batch."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from zoo.bench.commands.update import trainer_loop
from zoo.bench.matrix.folder import write
from zoo.bench.peers.updates import turns
from zoo.data.errors import UserError
from zoo.run import cli, restore
from zoo.run.job import assemble, join, sample_batch

WARM_UP, PASSES = 10, 50
DTYPES = {"fp16": "float16", "bf16": "bfloat16"}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="zoo.bench.gpu_checks.peers", description=__doc__)
    cli.add_recipe_arguments(parser)
    add = parser.add_argument
    add(
        "--peer",
        metavar="MODULE",
        required=True,
        help="module with NAME and update(), such as zoo.bench.peers.updates.X",
    )
    add("--upstream", metavar="DIR", required=True, help="folder of the copies of other projects")
    add("--no-autocast", action="store_true", help="the other project's code casts to 16 bits itself")
    add("--json", metavar="FILE", required=True, help="receives what was measured")
    add("--warm-up", type=int, metavar="N", default=WARM_UP, help="updates of each that do not count")
    add("--passes", type=int, metavar="N", default=PASSES, help="updates of each that count")
    arguments = parser.parse_args(argv)
    try:
        values = measure(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write(Path(arguments.json), json.dumps(values, indent=1))
    print("\n".join([*turns.HEADER, *turns.table(arguments.config, values["rows"])]))
    return 0


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time both.

    Raises:
        UserError: the recipe is wrong, or something that the other project needs is missing.
    """
    request = cli.request_of(arguments)
    job = assemble(request, join(request, {}))
    restore.restore(request.config, job, None, print)
    batch = sample_batch(job)
    import torch

    peer = importlib.import_module(arguments.peer)
    device, compute = job.trainer.device, job.plan.mode.compute  # type: ignore[attr-defined]
    with torch.device(device):  # where the other project's network and tensors are made
        update = peer.update(os.path.abspath(arguments.upstream), job, batch)
    if not arguments.no_autocast:
        update = _under_autocast(update, str(device.type), compute)
    loops: dict[str, turns.Update] = {turns.OURS: trainer_loop(job, batch), peer.NAME: update}
    updates = {name: partial(turns.timed, loop) for name, loop in loops.items()}
    times = turns.measure(updates, arguments.warm_up, arguments.passes)
    ours, theirs = turns.rows(times)
    return {
        "device": job.world.device,
        "compute": compute,
        "batch": job.clock.global_batch,
        "peer": peer.NAME,
        "ours_ms": ours["wall_ms"],
        "peer_ms": theirs["wall_ms"],
        "ratio": theirs["wall_ratio"],
        "rows": [ours, theirs],
    }


def _under_autocast(update: Callable[[], object], device: str, compute: str) -> Callable[[], object]:
    """Return the update of another project in this job's type of numbers, without a loss scale, which takes no time."""
    import torch

    if compute not in DTYPES:
        return update

    def mixed() -> None:
        with torch.autocast(device, getattr(torch, DTYPES[compute])):
            update()

    return mixed


if __name__ == "__main__":
    sys.exit(main())
