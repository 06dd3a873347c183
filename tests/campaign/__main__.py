"""Run a campaign for some hours, or go on with it.

python -m tests.campaign CAMPAIGN [--hours H] [--trials N] [--only KIND] [--out DIR]

Every trial becomes a line of <out>/<campaign>.jsonl, and a second call goes on with the next number. At the end, and
with --hours 0, the table for docs/reliability.md is printed. Exit code 1: an attack did harm.
"""

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.campaign import Trial
from zoo.table import table as formatted

NAMES = ("fuzz", "kills", "network", "power_cut", "soak")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description="Run a campaign, or go on with it.")
    parser.add_argument("campaign", choices=NAMES)
    parser.add_argument("--hours", type=float, default=1.0, help="after which no trial is begun (default: 1)")
    parser.add_argument("--trials", type=int, help="number of trials after which to stop")
    parser.add_argument("--only", metavar="KIND", help="trials of this kind alone")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/campaign"), help="folder of the results, and of what a campaign keeps"
    )
    args = parser.parse_args(arguments)
    campaign = importlib.import_module(f"tests.campaign.{args.campaign}")
    if args.only not in (None, *campaign.KINDS):
        parser.error(f"--only: there is no kind {args.only}; there are: {', '.join(campaign.KINDS)}")
    folder = args.out / args.campaign
    folder.mkdir(parents=True, exist_ok=True)
    path = args.out / f"{args.campaign}.jsonl"
    end = time.monotonic() + args.hours * 3600
    trials = read(path)
    number, done = len(trials), 0
    while time.monotonic() < end and (args.trials is None or done < args.trials):
        if args.only is None or kind_of(number, campaign.KINDS) == args.only:
            with tempfile.TemporaryDirectory(prefix="trial-", dir=folder.resolve()) as scratch:
                trial = campaign.trial(number, Path(scratch))
            print(f"{number}: {trial.kind}: {'; '.join(trial.failures) or 'no harm'}", flush=True)
            done += 1
        else:
            trial = Trial(kind_of(number, campaign.KINDS), 0, [], {})  # keeps the numbers of lines and trials equal
        trials.append(trial)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(trial._asdict()) + "\n")
        number += 1
    print("\n".join(table(trials)))
    return 1 if any(trial.failures for trial in trials) else 0


def kind_of(number: int, kinds: Sequence[str]) -> str:
    """Return the kind of a trial: all kinds take turns."""
    return kinds[number % len(kinds)]


def read(path: Path) -> list[Trial]:
    """Read the trials of earlier calls."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Trial(**json.loads(line)) for line in lines]


def table(trials: Sequence[Trial]) -> list[str]:
    """Return a Markdown table: for each kind the attacks, those that did harm, and the largest of each figure."""
    names = sorted({name for trial in trials for name in trial.figures})
    rows = []
    for kind in dict.fromkeys(trial.kind for trial in trials if trial.count):
        mine = [trial for trial in trials if trial.kind == kind]
        largest = [
            max((trial.figures[name] for trial in mine if name in trial.figures), default=None) for name in names
        ]
        cells = ("" if value is None else f"{value:,.3g}" for value in largest)
        harm = sum(len(trial.failures) for trial in mine)
        rows.append((kind, f"{sum(trial.count for trial in mine):,}", harm, *cells))
    return formatted(rows, ("attack", "number", "harm", *(f"largest {name}" for name in names)), markdown=True)


if __name__ == "__main__":
    sys.exit(main())
