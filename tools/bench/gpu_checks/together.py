"""Two speed runs on one device at the same time, and one alone before."""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from zoo.bench.matrix.cases import CHECKOUT
from zoo.bench.matrix.folder import write
from zoo.data.errors import UserError
from zoo.logs import journal


def main(argv: list[str] | None = None) -> int:
    """Run the command line; what it does not know are options of train.py. Return the exit code."""
    parser = argparse.ArgumentParser(prog="zoo.bench.gpu_checks.together", description=__doc__)
    parser.add_argument("--folder", metavar="DIR", required=True, help="receives the runs; must not exist")
    parser.add_argument("--json", metavar="FILE", required=True, help="receives what was measured")
    arguments, options = parser.parse_known_args(argv)
    folder = Path(arguments.folder)
    try:
        (alone,) = run_at_once([folder / "alone"], options)
        together = run_at_once([folder / "first", folder / "second"], options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    values = {"alone": alone, "together": together, "gain": sum(together) / alone}
    write(Path(arguments.json), json.dumps(values, indent=1))
    print(json.dumps(values))
    return 0


def run_at_once(folders: Sequence[Path], options: Sequence[str]) -> list[float]:
    """Start a speed run in each folder, and return their samples per second.

    Raises:
        UserError: one failed.
    """
    command = [sys.executable, str(CHECKOUT / "train.py"), *options, "--speed", "--out"]
    processes = [subprocess.Popen([*command, str(folder)]) for folder in folders]
    failed = [folder for folder, process in zip(folders, processes) if process.wait()]
    if failed:
        raise UserError(f"{failed[0]}: the run failed; the lines above tell why")
    return [speed(folder) for folder in folders]


def speed(folder: Path) -> float:
    """Return the samples per second of a speed run.

    Raises:
        UserError: it recorded none.
    """
    for event in journal.history(str(folder)):
        if event["event"] == "speed":
            return float(event["samples_per_s"])
    raise UserError(f"{folder}: the run has no event `speed`")


if __name__ == "__main__":
    sys.exit(main())
