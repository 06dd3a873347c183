"""Train or evaluate any model of the zoo in any framework: python train.py -c configs/tsm_k400.yaml --amp"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import fields

from zoo import program
from zoo.commands.options import TRAINING_FLAGS, add_recipe_arguments
from zoo.config import loader
from zoo.config.schema import Config, Optim, Train
from zoo.data.dataset import LoaderSettings
from zoo.data.errors import UserError, similar_name
from zoo.logs import trackers
from zoo.program import count
from zoo.run.recipe import resolve_recipe
from zoo.run.request import NEWEST, Options, Request, Window
from zoo.run.session import Run
from zoo.run.training import execute
from zoo.table import table, terminal_width

EPILOG = """\
examples
  %(prog)s -c configs/tsm_demo.yaml --amp                       a small job on data it makes itself
  %(prog)s -c configs/tsm_k400.yaml --amp -o data.root=/data/k400
  %(prog)s -c configs/tsm_k400.yaml -o train.batch=8 -o optim.lr=0.01 --print-config
  %(prog)s --resume runs/tsm_k400                               continue where a run was stopped or killed
  %(prog)s --eval-only --weights runs/tsm_k400/checkpoints/best
  %(prog)s --eval-only --weights tsm_k400.onnx                  an exported model, by ONNX Runtime alone

A run writes to its folder: config.yaml (the resolved recipe), events.jsonl (every event), airank.log,
a file for TensorBoard, and checkpoints/. --explain KEY shows what a key of a recipe means (docs/keys.md has all of
them), --print-config the value of each with the file and line it comes from.
Exit codes: 0 done, 2 something to fix on your side, 130 and 143 stopped by Ctrl-C and SIGTERM after saving."""


def main(argv: list[str]) -> int:
    """Run the command line and return the exit code; zoo/run/training.py has the loop."""
    arguments = parse(argv)
    if arguments.list:
        rows = list(loader.shipped_recipes().items())
        print("\n".join(table(rows, ("recipe", "what it is"), width=terminal_width())))
        return 0
    if arguments.schema:
        from zoo.commands import json_schema  # as the others here, which a training does without

        print(json.dumps(json_schema.schema(), indent=1))
        return 0
    if arguments.explain is not None:
        from zoo.commands import keys

        has_recipe = arguments != parse(["--explain", arguments.explain])  # or a change to one, which needs it
        resolved = read(arguments).resolved if has_recipe else None
        print(keys.explain(arguments.explain, resolved, terminal_width() or 80))
        return 0
    request = read(arguments)
    if arguments.print_config:
        print(loader.render(request.resolved), end="")
    elif arguments.plan:
        from zoo.commands import plan

        print(plan.table(request, arguments.plan), end="")
    else:
        run = execute(request)
        if run.folder and request.resume and not run.exit_code and _wants_page(run):
            from zoo.visualization.page import page_line  # and what draws, which trainings do without

            print(page_line(run.folder), flush=True)
        run.job.world.exit_process(run.exit_code)  # where a framework does not end safely by itself
        return run.exit_code
    return 0


def _wants_page(run: Run) -> bool:
    """Return whether `zoo finetune`, which writes a page at the end, began the run, and there is none of this end."""
    begin = run.journal.last("begin") or {}
    is_old = run.first_step < run.last_step or not os.path.exists(os.path.join(run.folder or "", "report.html"))
    return is_old and "finetune" in begin.get("command", ())[1:2]


def parser() -> program.Parser:
    parser = program.parser("Train or evaluate a model of the zoo.", EPILOG)
    add = parser.add_argument
    add_recipe_arguments(parser, TRAINING_FLAGS, required=False)
    add("--seed", type=int, metavar="N", help="of weights, order, augmentation and dropout; default 1")
    add("--out", metavar="DIR", help="folder of the run; default runs/<recipe>, or the next free number behind it")
    add(
        "--resume",
        metavar="DIR",
        nargs="?",
        const=NEWEST,
        help="continue the run in DIR; without DIR: the one in --out, which is started if it has not begun, or the "
        "newest of runs/<recipe>",
    )
    add(
        "--accept-changed-data",
        action="store_true",
        help="go on with --resume although samples were added, removed or changed since; events.jsonl records it",
    )
    add(
        "--deterministic",
        action="store_true",
        help="repeat a run to the last bit (train.deterministic=true), on a GPU by slower kernels",
    )
    add(
        "--weights",
        metavar="FILE",
        help="start from, or evaluate, these weights: .safetensors, a checkpoint folder or a name of zoo weights list; "
        "with --eval-only also .onnx",
    )
    add("--eval-only", action="store_true", help="evaluate --weights or the last checkpoint of --resume, train nothing")
    add("--max-steps", type=count, metavar="N", help="stop after update N, evaluate, save; the schedule is unchanged")
    add(
        "--track",
        metavar="NAME[:PROJECT]",
        action="append",
        default=[],
        help=f"log to an experiment tracker, too: {', '.join(trackers.TRACKERS)}; repeatable; default project "
        f"{trackers.DEFAULT_PROJECT}",
    )
    add("--verbose", action="store_true", help="print every event: log lines, all metrics, checkpoints")
    add("--until-target", action="store_true", help="stop at the evaluation whose accuracy reaches `target`")
    add(
        "--speed",
        action="store_true",
        help="time updates and do nothing else: no evaluation, no checkpoint; see docs/benchmarking.md",
    )
    add("--drop", type=count, metavar="N", help="updates before the clock of --speed starts; default 20")
    add("--count", type=count, metavar="N", help="updates that --speed times; default 100")
    add("--turns", metavar="SOCKET", help="take turns with other runs of --speed (for zoo bench matrix)")
    add(
        "--global-batch",
        metavar="N",
        help="samples per update over all processes, divided into micro-batches of at most train.batch; `keep`: as the "
        "run to resume had it, in a new run optim.base_batch",
    )
    add(
        "--plan",
        metavar="WORLDS",
        help="show batch, learning rate and lengths for 8, 4x8 (hosts x processes) or 1,8,4x8 processes, and stop",
    )
    add(
        "--check-only",
        action="store_true",
        help="check data, device, precision, model, weights and lengths as the run does, write nothing, and stop",
    )
    add("--print-config", action="store_true", help="show the resolved recipe with the origin of each value, and stop")
    add(
        "--explain",
        metavar="KEY",
        help="show what a key means, such as train.batch, or all keys of a section, such as optim, and stop; with -c "
        "also the value",
    )
    add("--schema", action="store_true", help="print the JSON Schema of recipes, for editors, and stop")
    add("--list", action="store_true", help="list the recipes of the zoo, and stop")
    return parser


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    arguments, unknown = (options := parser()).parse_known_args(argv)
    if unknown:
        raise UserError(_explain(unknown, [name for action in options._actions for name in action.option_strings]))
    return arguments


def _explain(words: Sequence[str], options: Sequence[str]) -> str:
    """Return a message on words that are no options: perhaps a key of a recipe without -o, or one in another spelling.

    Args:
        words: the first one is explained, which may have its value in the second one.
    """
    from zoo.config.suggestions import nearest  # for mistakes alone

    key, equals, value = words[0].lstrip("-").partition("=")
    if not equals and not words[0].startswith("-"):
        return f"{words[0]}: a recipe is named by -c: -c {words[0]}"
    if not equals and len(words) > 1 and not words[1].startswith("-"):
        value = words[1]
    name, known = key.replace("-", "_"), _keys()
    word = words[0].partition("=")[0]
    option = similar_name(word, options)
    meant = nearest(name, known)
    if meant and (meant.rpartition(".")[2] == name.rpartition(".")[2] or not option):
        return f"{words[0]}: a key of the recipe is changed by -o: -o {meant}={value or 'VALUE'}"
    return f"{words[0]}: there is no such option{option or '; see --help'}"


def _keys() -> list[str]:
    sections = {"": Config, "train.": Train, "optim.": Optim, "data.": LoaderSettings}
    return [f"{section}{field.name}" for section, settings in sections.items() for field in fields(settings)]


def read(arguments: argparse.Namespace) -> Request:
    """Resolve the recipe of a command line."""
    if arguments.eval_only and not (arguments.weights or arguments.resume):
        raise UserError("--eval-only: name what to evaluate with --weights FILE or --resume DIR")
    if arguments.accept_changed_data and not arguments.resume:
        raise UserError("--accept-changed-data: belongs to --resume; a new run takes the data as they are")
    window = _window(arguments)
    for key in ("eval_only", "speed"):
        if arguments.track and getattr(arguments, key):
            raise UserError(f"--track: logs training, and --{key.replace('_', '-')} trains nothing; leave one out")
    track = trackers.projects(arguments.track)
    names = ("amp", "exact", "deterministic", "framework", "device", "seed", "out", "weights", "resume", "global_batch")
    flags = {key: getattr(arguments, key) for key in (*names, "eval_only")}
    resolved = resolve_recipe(Options(arguments.config, arguments.override, **flags))
    if arguments.until_target and (arguments.eval_only or resolved.config.target is None):
        reason = "--eval-only trains nothing" if arguments.eval_only else "the recipe has none"
        raise UserError(f"--until-target: trains up to a target, but {reason}; leave it out, or give -o target=0.9")
    if window and resolved.config.train.profile:
        raise UserError("--speed: times updates, and train.profile slows them; leave one of them out")
    return resolved._replace(
        check_only=arguments.check_only,
        max_steps=arguments.max_steps,
        until_target=arguments.until_target,
        track=track,
        verbose=arguments.verbose,
        speed=window,
        turns=arguments.turns,
        accept_changed_data=arguments.accept_changed_data,
    )


def _window(arguments: argparse.Namespace) -> Window | None:
    """Return the updates of --speed, None without it."""
    given = {key: getattr(arguments, key) for key in ("drop", "count") if getattr(arguments, key) is not None}
    if not arguments.speed:
        for key in (*given, *(["turns"] if arguments.turns else [])):
            raise UserError(f"--{key}: belongs to --speed; give both, or leave it out")
        return None
    for key in ("resume", "eval_only", "max_steps", "until_target"):
        if getattr(arguments, key):
            raise UserError(f"--speed: is a new run of its own length; leave --{key.replace('_', '-')} out")
    return Window(**given)
