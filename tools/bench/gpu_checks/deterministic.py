"""Run the same training twice with --deterministic, and compare losses and weights to the last bit."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from zoo.bench.gpu_checks.resume import WEIGHTS, largest_difference, losses, train
from zoo.bench.matrix.cases import CHECKOUT
from zoo.bench.matrix.folder import write
from zoo.data.errors import UserError

STEPS = 12


def main(argv: list[str] | None = None) -> int:
    """Run the command line; what it does not know are options of train.py. Return 1 if the two runs differ."""
    parser = argparse.ArgumentParser(prog="zoo.bench.gpu_checks.deterministic", description=__doc__)
    parser.add_argument("--folder", metavar="DIR", required=True, help="receives both runs; must not exist")
    parser.add_argument("--json", metavar="FILE", required=True, help="receives what was found")
    arguments, options = parser.parse_known_args(argv)
    try:
        found = check(Path(arguments.folder), options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write(Path(arguments.json), json.dumps(found, indent=1))
    print(json.dumps(found))
    return 0 if found["equal_losses"] and found["equal_weights"] else 1


def check(folder: Path, options: Sequence[str]) -> dict[str, Any]:
    """Run both, and return how they differ.

    Raises:
        UserError: a run failed.
    """
    command = [sys.executable, str(CHECKOUT / "train.py"), *options, "--deterministic", "--max-steps", str(STEPS)]
    command += ["-o", "train.log_every=1"]
    runs = folder / "first", folder / "second"
    for run in runs:
        train([*command, "--out", str(run)])
    return compare(*runs)


def compare(first: Path, second: Path) -> dict[str, Any]:
    """Return how the losses and the last weights of two runs differ."""
    expected, found = losses(first), losses(second)
    a, b = load_file(first / WEIGHTS), load_file(second / WEIGHTS)
    return {
        "steps": len(expected),
        "largest_difference": largest_difference(found, expected),
        "equal_losses": found == expected,
        "equal_weights": a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a),
    }


if __name__ == "__main__":
    sys.exit(main())
