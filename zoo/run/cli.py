"""The command line of train.py, and the recipe that results from it."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from zoo import data, losses, optim, program, tasks
from zoo.config import loader
from zoo.config.loader import Entry
from zoo.config.schema import Config, Optim, Train
from zoo.config.suggestions import nearest
from zoo.data.dataset import LoaderSettings
from zoo.data.errors import UserError, similar_name
from zoo.data.parsing import natural
from zoo.frameworks import FRAMEWORKS
from zoo.logs import listeners, trackers
from zoo.models import load_spec
from zoo.run import folder
from zoo.run import weights as given
from zoo.run.checkpoint import latest, load_record

NEWEST = "newest"  # --resume without a folder
RECIPE_FLAGS = ("amp", "framework", "device")  # that most tools take
TRAINING_FLAGS = ("amp", "exact", "framework", "device")
FLAG_KEYS = {"amp": "train.precision", "exact": "train.precision", "deterministic": "train.deterministic"}


def _task_settings(model: str, loss: str = "") -> type[Any]:
    """Return the class of section `task:` of a model with a loss, the usual one if none is given."""
    task = load_spec(model).TASK
    return losses.load_loss(task, loss) if loss else tasks.load_task(task).Settings


# Section of a recipe -> the keys that name its module and a variant, the settings class for their values, and who else
# has a key of the section.
FIND: dict[str, loader.Lookup] = {
    "model": (("model.name",), lambda name: load_spec(name).Arch),
    "data": (("data.name",), lambda name: data.find(name).Settings),
    "task": (("model.name", "task.loss"), _task_settings, losses.owner),
    "optim": (("optim.name",), optim.load_settings, optim.owner),
}

EPILOG = """\
examples
  %(prog)s -c configs/tsm_demo.yaml --amp                       a small job on data it makes itself
  %(prog)s -c configs/tsm_k400.yaml --amp -o data.root=/data/k400
  %(prog)s -c configs/tsm_k400.yaml -o train.batch=8 -o optim.lr=0.01 --print-config
  %(prog)s --resume runs/tsm_k400                               continue where a run was stopped or killed
  %(prog)s --eval-only --weights runs/tsm_k400/checkpoints/best
  %(prog)s --eval-only --weights tsm_k400.onnx                  an exported model, by ONNX Runtime alone

A run writes to its folder: config.yaml (the resolved recipe), events.jsonl (every event), airank.log,
a file for TensorBoard, and checkpoints/. Every key of a recipe, with its meaning, is in zoo/config/schema.py,
zoo/models/<model>/spec.py, zoo/tasks/<task>.py and data/datasets/<data set>.py; --print-config shows all of them with
the file and line each value comes from.
Exit codes: 0 done, 2 something to fix on your side, 130 and 143 stopped by Ctrl-C and SIGTERM after saving."""


@dataclass(frozen=True)
class Window:
    """Updates of a speed run.

    Attributes:
        drop: updates before the clock starts, at least 1: the first one compiles and warms up.
        count: updates that are timed.
    """

    drop: int = 20
    count: int = 100

    @property
    def steps(self) -> int:
        """Updates of the whole run."""
        return self.drop + self.count


class Request(NamedTuple):
    """A resolved recipe and what to do with it."""

    config: Config
    resolved: loader.Entries  # value and origin of every key; `weights` as they were named, in config as a path
    recipe: str  # name of the recipe
    resume: str | None  # folder of the run to continue, None for a new run
    changed: list[str]  # what differs from the recipe that the run to continue began with
    notes: list[str]  # what the recipe takes from its weights
    eval_only: bool = False
    max_steps: int | None = None  # stop after this many updates
    until_target: bool = False  # stop at the evaluation that reaches the target
    speed: Window | None = None  # time these updates and do nothing else
    track: Mapping[str, str] = MappingProxyType({})  # project by name of an experiment tracker
    turns: str | None = None  # socket of the program that gives turns to several speed runs
    verbose: bool = False  # print every event
    accept_changed_data: bool = False  # resume although the data are not those that the run was trained on


def add_recipe_arguments(
    parser: argparse.ArgumentParser, flags: Sequence[str] = RECIPE_FLAGS, *, required: bool = True
) -> None:
    """Add the options that select a recipe and change it: -c, -o and those of `flags`.

    Args:
        parser: receives the options; request() takes their values.
        flags: any of TRAINING_FLAGS.
        required: whether -c must be given.
    """
    add = parser.add_argument
    add(
        "-c",
        "--config",
        metavar="FILE",
        required=required,
        help="recipe, such as configs/tsm_k400.yaml"
        + ("" if required else "; not needed with --resume DIR, or if --weights is a checkpoint"),
    )
    add_override_argument(
        parser, "change one key of the recipe, such as -o optim.lr=0.01; repeatable, the last one counts"
    )
    if "amp" in flags:
        add(
            "--amp",
            action="store_true",
            help="mixed precision (train.precision=amp): fp16 with loss scaling on a GPU; on a CPU bf16 with PyTorch, "
            "fp16 with MindSpore, an error with Paddle",
        )
    if "exact" in flags:
        add(
            "--exact",
            action="store_true",
            help="compute in fp64 and round gradients to 16 bits of their largest element (train.precision=exact), so "
            "that the frameworks agree over hundreds of steps: slow, to compare them; with MindSpore on a CPU only",
        )
    if "framework" in flags:
        add("--framework", choices=FRAMEWORKS, help="default torch")
    if "device" in flags:
        add(
            "--device",
            metavar="NAME",
            help="auto, cpu, cuda, cuda:N, npu or npu:N; of .onnx files also tensorrt; default auto: a GPU or NPU if "
            "there is one",
        )


def add_override_argument(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Add the repeatable option -o KEY=VALUE."""
    parser.add_argument("-o", "--override", metavar="KEY=VALUE", action="append", default=[], help=help_text)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
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
    add("--max-steps", type=int, metavar="N", help="stop after update N, evaluate and save; the schedule is unchanged")
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
    add("--drop", type=int, metavar="N", help="updates before the clock of --speed starts; default 20")
    add("--count", type=int, metavar="N", help="updates that --speed times; default 100")
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
    add("--print-config", action="store_true", help="show the resolved recipe with the origin of each value, and stop")
    add("--list", action="store_true", help="list the recipes of the zoo, and stop")
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        options = [option for action in parser._actions for option in action.option_strings]
        raise UserError(_explain(unknown, options))
    return arguments


def _explain(words: Sequence[str], options: Sequence[str]) -> str:
    """Return a message on words that are no options: perhaps a key of a recipe without -o, or one in another spelling.

    Args:
        words: the first one is explained, which may have its value in the second one.
        options: that there are.
    """
    key, equals, value = words[0].lstrip("-").partition("=")
    if not equals and not words[0].startswith("-"):
        return f"{words[0]}: a recipe is named by -c: -c {words[0]}"
    if not equals and len(words) > 1 and not words[1].startswith("-"):
        value = words[1]
    name, known = key.replace("-", "_"), _keys()
    word = words[0].partition("=")[0]
    if program.RENAMED.get(word, "").partition(" ")[0] in options:
        return f"{word} is now {program.RENAMED[word]}"
    option = similar_name(word, options)
    meant = nearest(name, known)
    if meant and (meant.rpartition(".")[2] == name.rpartition(".")[2] or not option):
        return f"{words[0]}: a key of the recipe is changed by -o: -o {meant}={value or 'VALUE'}"
    return f"{words[0]}: there is no such option{option or '; see --help'}"


def _keys() -> list[str]:
    """Return the keys that all recipes have."""
    sections = {"": Config, "train.": Train, "optim.": Optim, "data.": LoaderSettings}
    return [f"{section}{field.name}" for section, settings in sections.items() for field in fields(settings)]


def read(arguments: argparse.Namespace) -> Request:
    """Resolve the command line of train.py.

    Raises:
        UserError: a flag or a key of the recipe is wrong.
    """
    if arguments.max_steps is not None and arguments.max_steps < 1:
        raise UserError("--max-steps: must be at least 1")
    if arguments.eval_only and not (arguments.weights or arguments.resume):
        raise UserError("--eval-only: name what to evaluate with --weights FILE or --resume DIR")
    if arguments.accept_changed_data and not arguments.resume:
        raise UserError("--accept-changed-data: belongs to --resume; a new run takes the data as they are")
    window = _window(arguments)
    for key in ("eval_only", "speed"):
        if arguments.track and getattr(arguments, key):
            raise UserError(f"--track: logs training, and --{key.replace('_', '-')} trains nothing; leave one out")
    track = trackers.projects(arguments.track)
    keys = ("amp", "exact", "deterministic", "framework", "device", "seed", "out", "weights", "resume", "global_batch")
    flags = {key: getattr(arguments, key) for key in (*keys, "eval_only")}
    resolved = request(arguments.config, arguments.override, **flags)
    if arguments.until_target and (arguments.eval_only or resolved.config.target is None):
        reason = "--eval-only trains nothing" if arguments.eval_only else "the recipe has none"
        raise UserError(f"--until-target: trains up to a target, but {reason}; leave it out, or give -o target=0.9")
    if window and resolved.config.train.profile:
        raise UserError("--speed: times updates, and train.profile slows them; leave one of them out")
    return resolved._replace(
        max_steps=arguments.max_steps,
        until_target=arguments.until_target,
        track=track,
        verbose=arguments.verbose,
        speed=window,
        turns=arguments.turns,
        accept_changed_data=arguments.accept_changed_data,
    )


def request_of(arguments: argparse.Namespace) -> Request:
    """Resolve the recipe of the options that add_recipe_arguments has added by default.

    Raises:
        UserError: as request().
    """
    flags = {key: getattr(arguments, key) for key in RECIPE_FLAGS}
    return request(arguments.config, arguments.override, **flags)


def request(
    config: str | None,
    overrides: Sequence[str] = (),
    *,
    amp: bool = False,
    exact: bool = False,
    deterministic: bool = False,
    framework: str | None = None,
    device: str | None = None,
    seed: int | None = None,
    out: str | None = None,
    weights: str | None = None,
    resume: str | None = None,
    global_batch: str | None = None,
    eval_only: bool = False,
) -> Request:
    """Resolve a recipe and the changes to it, as train.py and the tools take them from their command lines.

    Args:
        config: path of the recipe; None for that of the run to resume, or of the checkpoint that `weights` names.
        overrides: `key=value` pairs; they take precedence over the keyword arguments.
        amp, exact: whether train.precision is amp or exact.
        deterministic: whether train.deterministic is true.
        framework, device, seed, out, weights: values of these keys; None keeps that of the recipe.
        resume: folder of the run to continue, or NEWEST for the newest run of the recipe.
        global_batch: a number of samples, or `keep`.
        eval_only: whether the weights are evaluated only.

    Raises:
        UserError: a value or a key of the recipe is wrong; the message names its place.
    """
    if amp and exact:
        raise UserError("--exact: computes in fp64, and --amp in 16 bits; leave one of them out")
    flags = {
        "framework": framework,
        "device": device,
        "seed": seed,
        "out": out,
        "weights": weights,
        "amp": "amp" if amp else None,
        "exact": "exact" if exact else None,
        "deterministic": deterministic or None,
    }
    changes = {
        **{FLAG_KEYS.get(key, key): Entry(value, f"--{key}") for key, value in flags.items() if value is not None},
        **loader.overrides(overrides),
    }
    recipe, entries = _read_recipe(config, weights and given.resolve(weights), resume)
    entries = loader.merge(entries, changes)
    run = _run_to_resume(resume, out, entries, recipe)
    if run:
        entries["out"] = Entry(run, "--resume")
    if global_batch is not None:
        entries["train.global_batch"] = Entry(_global_batch(global_batch, entries, run), "--global-batch")
    began = _recorded_recipe(run) if run else {}
    named = entries["weights"].value if "weights" in entries else None
    # A run that goes on has its weights in its checkpoint.
    path = given.resolve(str(named)) if named and not (run and latest(run)) else named
    taken = given.recorded_settings(entries, began, path, eval_only and run is None)
    settings, resolved = loader.build({**entries, **taken}, FIND)
    settings = replace(settings, weights=path)  # `resolved` has what the user has named, which any host can read
    graph = given.exported_model(settings)
    if graph:
        given.check_exported_settings(graph, resolved)
    listeners.check_names(settings.listeners)
    changed = folder.check_same(began, resolved) if began else []
    return Request(settings, resolved, recipe, run, changed, given.taken_note(taken, entries, settings), eval_only)


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
    for key, value in given.items():
        if value < 1:
            raise UserError(f"--{key}: must be at least 1")
    return Window(**given)


def _read_recipe(config: str | None, weights: str | None, resume: str | None) -> tuple[str, loader.Entries]:
    """Return name and entries of a recipe: a file, or that of the run to resume or of the checkpoint to start from."""
    if config:
        return os.path.splitext(os.path.basename(config))[0], loader.read(config)
    if resume and resume != NEWEST:
        run = folder.existing(resume, "")
        if not (entries := _recorded_recipe(run)):
            raise UserError(f"{run}: has no {folder.RECIPE} and no checkpoint; name the recipe of the run with -c")
        return os.path.splitext(folder.RECIPE)[0], entries
    if weights:
        return given.repeat(weights)
    raise UserError("no recipe: name one with -c, for example -c configs/tsm_demo.yaml")


def _recorded_recipe(run: str) -> loader.Entries:
    """Return the recipe of a run, or else that of its newest checkpoint; empty without either."""
    path = os.path.join(run, folder.RECIPE)
    if os.path.exists(path):
        return loader.read(path, recorded=True)
    newest = latest(run)
    return given.read_recipe(newest)[1] if newest else {}


def _global_batch(requested: str, entries: loader.Entries, resume: str | None) -> int:
    if requested != "keep":
        samples = natural(requested)
        if not samples:
            raise UserError(f"--global-batch: expected a number of samples or `keep`, got {requested}")
        return samples
    path = latest(resume) if resume else None
    if path:
        return load_record(path)["global_batch"]
    base_batch = entries["optim.base_batch"].value if "optim.base_batch" in entries else Optim.base_batch
    if base_batch is None:
        raise UserError("--global-batch: keep: the recipe has no optim.base_batch; give a number of samples")
    return base_batch


def _run_to_resume(resume: str | None, out: str | None, entries: loader.Entries, recipe: str) -> str | None:
    """Return the folder of the run to continue, None to start a new one."""
    if resume is None:
        return None
    named = entries["out"].value if "out" in entries else None
    if resume != NEWEST:
        if out and os.path.realpath(out) != os.path.realpath(resume):
            raise UserError("--resume DIR continues in DIR; leave out --out")
        return folder.existing(resume, recipe)
    if named:
        return named if folder.is_run(named) else None
    return folder.existing(None, recipe)
