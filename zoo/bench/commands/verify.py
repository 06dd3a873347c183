"""Recompute the numbers of a bundle of `zoo publish` from its journals, and evaluate its weights again."""

import os
import tempfile
from pathlib import Path
from typing import Any

from zoo import program
from zoo.bench import bundle
from zoo.commands.options import add_override_argument
from zoo.data.errors import UserError, printable
from zoo.data.extras import NotInstalled
from zoo.logs import journal
from zoo.run.folder import RECIPE
from zoo.weights.files import sha256

EPILOG = """\
It finds any change of a file, of a number and of their order, and numbers that do not follow from the journal of their
run. With weights and data at hand, the evaluation is repeated, in the framework of the run or in another one.

examples
  %(prog)s tsm_demo.zip
  %(prog)s tsm_demo.zip --weights runs/tsm_demo/checkpoints/best -o framework=paddle

Exit codes: 0 verified, 1 something contradicts, 2 an error to fix on your side."""
TOLERANCE, FLIPPED = 1e-3, 1.5  # of a metric that is computed elsewhere, and in samples that rounding classifies anew


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    if not os.path.isfile(arguments.bundle):
        raise UserError(f"{arguments.bundle}: there is no such file; write one with zoo publish")
    with tempfile.TemporaryDirectory() as folder:
        try:
            manifest = bundle.unpack(arguments.bundle, folder)
            problems = bundle.verify(manifest, Path(folder))
        except NotInstalled:  # scipy, with which a matrix is recomputed
            raise
        except UserError as error:
            print(printable(str(error)))
            return 1
        if not problems:
            print(f"{arguments.bundle}: {len(manifest['runs'])} runs, every number follows from their journals")
        if arguments.weights and not problems:
            problems = evaluate(manifest, Path(folder), arguments.weights, arguments.override)
    print("\n".join(map(printable, problems)), end="\n" if problems else "")
    return int(bool(problems))


def evaluate(manifest: dict[str, Any], folder: Path, weights: str, overrides: list[str]) -> list[str]:
    """Evaluate the weights of a bundle's run again; return a line if the metric is another one."""
    from zoo.run.recipe import resolve_recipe  # and all that trains, which other uses do without
    from zoo.run.request import Options
    from zoo.run.training import execute

    path = Path(weights) / bundle.MODEL if os.path.isdir(weights) else Path(weights)
    if not path.is_file():
        raise UserError(f"--weights {weights}: there is no {bundle.MODEL}; give the folder of a checkpoint")
    digest = sha256(str(path))
    found = [
        (run, name) for run, of_run in manifest["weights"].items() for name, each in of_run.items() if each == digest
    ]
    if not found:
        return [f"--weights {weights}: not weights of this bundle, whose SHA-256 are {manifest['weights']}"]
    run, name = found[0]
    events = journal.history(str(folder / run))
    recorded = next(
        (each for each in events if each["event"] == "eval" and each["step"] == int(name.rpartition("-")[2])), None
    )
    if recorded is None:
        raise UserError(f"--weights {weights}: {run} was not evaluated at {name}")
    request = resolve_recipe(Options(str(folder / run / RECIPE), overrides, weights=weights, eval_only=True))
    metrics = execute(request).metrics or {}
    # Of pixels, which miou counts, rounding changes a few of each sample.
    tolerance = TOLERANCE if "miou" in recorded else max(TOLERANCE, FLIPPED / recorded["samples"])
    text = f"{run}, {name}: {metrics['accuracy']:.6f}, recorded {recorded['accuracy']:.6f}"
    if abs(metrics["accuracy"] - recorded["accuracy"]) <= tolerance:
        print(text)
        return []
    return [f"{text}; rounding explains {tolerance:.2g}"]


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    parser.add_argument("bundle", metavar="BUNDLE", help="file of zoo publish")
    parser.add_argument("--weights", metavar="FOLDER", help="a checkpoint of the run, to evaluate it again")
    add_override_argument(parser, "change one key of the recipe for it, such as -o data.root=/data; repeatable")
    return parser
