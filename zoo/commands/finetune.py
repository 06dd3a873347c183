"""Train on a folder of your own files: find out what it is, write a recipe for it, train, evaluate."""

import os
from types import SimpleNamespace

from zoo import program
from zoo.commands.options import add_override_argument
from zoo.config import loader
from zoo.data.convert import plain
from zoo.data.datasets import common
from zoo.data.errors import Option, UserError, printable
from zoo.finetune import folder, recipe
from zoo.frameworks import FRAMEWORKS
from zoo.program import count
from zoo.run.folder import numbered, require_new
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.run.training import execute
from zoo.table import table, terminal_width, wrapped
from zoo.visualization.page import page_line

EPILOG = f"""\
The folder holds one of
{folder.ACCEPTED}
Where there is no validation split, a part of the samples is held out, by their contents. A model is chosen by the
device and the weights at hand; length, batch, learning rate and size by the samples and the memory. Each choice is
printed with its reason, and -o changes it. The recipe is written beside the run: runs/photos.yaml and runs/photos.

examples
  %(prog)s photos
  %(prog)s photos --dry-run                                  show the recipe
  %(prog)s clips --epochs 50 -o data.flip=false
  %(prog)s faces --task faces --weights ms1mv3_r50.safetensors
  zoo train -c runs/photos.yaml                              train again with this recipe, as it is or changed

Exit codes: 0 done, 2 an error to fix on your side, 130 and 143 stopped by Ctrl-C and SIGTERM after saving."""


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    found = folder.examine(arguments.folder, arguments.task)
    changes = {"framework": arguments.framework, "train.epochs": arguments.epochs}
    flags = {key: loader.Entry(value, Option(f"--{key.rpartition('.')[2]}")) for key, value in changes.items() if value}
    plan = recipe.plan(found, {**flags, **loader.overrides(arguments.override)}, arguments.weights)
    chosen = {key: entry for key, entry in plan.chosen.items() if entry.value is not None}
    rows = [(key, plain(entry.value), entry.origin) for key, entry in chosen.items()]
    lines = [
        f"{arguments.folder}: {found.task}: {found.layout}",
        *plan.notes,
        *table(rows, ("key", "value", "because"), width=terminal_width()),
    ]
    print(wrapped(printable("\n".join(lines)), terminal_width()), flush=True)
    if arguments.dry_run:
        print(f"\n{plan.text}", end="")
        return 0
    name = common.root_name(SimpleNamespace(**found.settings))
    is_here = os.path.isdir(arguments.folder) and os.path.samefile(arguments.folder, os.curdir)
    parent = os.pardir if is_here else ""  # runs/ is no class
    out, path = write_recipe(plan.text, arguments.out, os.path.join(parent, "runs", name))
    try:
        run = execute(resolve_recipe(Options(path, out=out)))
    except UserError:
        if not os.path.exists(out):
            os.remove(path)  # the next try gets this name
        raise
    if not run.exit_code:
        print(f"{'':<12}zoo export {out} --out {out}.onnx\n{'recipe':<12}{path}")
        print(page_line(out), flush=True)
    else:
        print(f"{'go on with':<12}zoo train --resume {out}", flush=True)
    run.job.world.exit_process(run.exit_code)
    return run.exit_code


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="your files")
    names = tuple(folder.DATASETS)
    add("--task", choices=names, metavar="NAME", help=f"of {', '.join(names)}, where the folder does not show it")
    add("--framework", choices=FRAMEWORKS, metavar="NAME", help=f"of {', '.join(FRAMEWORKS)}; default torch")
    add("--weights", metavar="W", help="start from a run, a checkpoint, a file of zoo convert or published weights")
    add(
        "--out",
        metavar="RUN",
        help="folder of the run; default runs/<name of FOLDER>, for . in ../runs, or the next free number",
    )
    add("--epochs", type=count, metavar="N", help="length of the run")
    add_override_argument(parser, "change one key of the recipe, such as -o model.depth=50; repeatable")
    add("--dry-run", action="store_true", help="show what was found and the recipe, and stop")
    return parser


def write_recipe(text: str, out: str | None, stem: str) -> tuple[str, str]:
    """Write the recipe of a run beside its folder; return that and the path of the recipe.

    Args:
        out: folder of the run; None for the first of stem, stem-2, stem-3 ... without a run and a recipe. The new file
            keeps other processes from taking the same one.
    """
    if out:
        require_new(out)
    for run in [out] if out else numbered(stem):
        path = f"{run.rstrip('/')}.yaml"
        if not out and (os.path.lexists(run) or os.path.lexists(path)):
            continue
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(path, "x", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
            return run, path
        except OSError as error:
            if out or not isinstance(error, FileExistsError):
                raise UserError(f"--out {path}: {error.strerror}") from None
    raise AssertionError("there are infinitely many numbers")
