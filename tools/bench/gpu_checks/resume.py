"""Kill a run with SIGKILL after its first checkpoint, resume it, and compare it with a run that was not killed."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from zoo.bench.matrix.cases import CHECKOUT
from zoo.bench.matrix.folder import write
from zoo.data.errors import UserError
from zoo.logs import journal

STEPS, SAVE_EVERY = 12, 3
WAIT = 300.0  # seconds for the first checkpoint
POLL_INTERVAL = 0.02  # seconds
WEIGHTS = "checkpoints/last/model.safetensors"
LIMIT = 1e-3  # of a loss: a GPU adds in an order of its own, and rounding grows from update to update


def main(argv: list[str] | None = None) -> int:
    """Run the command line; what it does not know are options of train.py. Return 1 if the two runs differ."""
    parser = argparse.ArgumentParser(prog="zoo.bench.gpu_checks.resume", description=__doc__)
    parser.add_argument("--folder", metavar="DIR", required=True, help="receives both runs; must not exist")
    parser.add_argument("--json", metavar="FILE", required=True, help="receives what was found")
    arguments, options = parser.parse_known_args(argv)
    folder = Path(arguments.folder)
    try:
        found = check(folder, options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write(Path(arguments.json), json.dumps(found, indent=1))
    print(json.dumps(found))
    return 0 if found["largest_difference"] <= LIMIT else 1


def check(folder: Path, options: Sequence[str]) -> dict[str, Any]:
    """Run both, and return how they differ.

    Raises:
        UserError: a run failed, or wrote no checkpoint in time.
    """
    settings = [f"train.{key}={value}" for key, value in (("log_every", 1), ("save_every", SAVE_EVERY))]
    command = [sys.executable, str(CHECKOUT / "train.py"), *options, "--max-steps", str(STEPS)]
    settings.append("train.channels_last=false")  # null is measured anew by each run, which may choose another format
    command += [word for setting in settings for word in ("-o", setting)]
    whole, killed = folder / "whole", folder / "killed"
    train([*command, "--out", str(whole)])
    killed_at = kill_after_a_checkpoint([*command, "--out", str(killed)], killed)
    train([*command, "--resume", str(killed)])
    expected, found = losses(whole), losses(killed)
    if not found.keys() == expected.keys() == set(range(1, STEPS + 1)):
        raise UserError(f"the runs have other updates: {sorted(expected)} and {sorted(found)}")
    a, b = load_file(whole / WEIGHTS), load_file(killed / WEIGHTS)
    return {
        "steps": STEPS,
        "killed_after_step": killed_at,
        "largest_difference": largest_difference(found, expected),
        "equal_losses": found == expected,
        "equal_weights": a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a),
    }


def kill_after_a_checkpoint(command: Sequence[str], folder: Path) -> int:
    """Start a run, kill it once it has saved, and return the last update that it logged.

    Raises:
        UserError: it ended before, or saved nothing in time.
    """
    process = subprocess.Popen(command)
    deadline = time.monotonic() + WAIT
    try:
        while not (folder / "checkpoints" / "last").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise UserError(f"{folder}: no checkpoint to kill the run after")
            time.sleep(POLL_INTERVAL)
        if process.poll() is not None:
            raise UserError(f"{folder}: the run ended before it was killed")
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    return max(losses(folder), default=0)


def losses(folder: Path) -> dict[int, float]:
    """Return the loss of each update; the last one of an update counts."""
    return {event["step"]: event["loss"] for event in journal.history(str(folder)) if event["event"] == "train"}


def largest_difference(found: Mapping[int, float], expected: Mapping[int, float]) -> float:
    """Return the largest relative difference of a loss; inf if one is not finite."""
    values = [abs(found[step] - loss) / abs(loss) for step, loss in expected.items()]
    return max(values) if np.isfinite(values).all() else float("inf")


def train(command: Sequence[str]) -> None:
    """Run a command line of train.py. Raises UserError if it fails."""
    if subprocess.run(command, check=False).returncode:
        raise UserError("a run failed; the lines above tell why")


if __name__ == "__main__":
    sys.exit(main())
