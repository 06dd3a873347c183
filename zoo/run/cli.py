"""The command line of train.py, and the recipe it results in."""

import argparse
import math
import os
from typing import NamedTuple

import data
from data.errors import UserError
from zoo import tasks
from zoo.config import loader
from zoo.config.schema import Config
from zoo.frameworks import FRAMEWORKS
from zoo.models import load_spec
from zoo.run import directory, schedule
from zoo.run.checkpoint import latest, load_record

HERE = "newest"  # --resume without a folder

# Whose settings fill the sections of a recipe, and which key names the owner.
FIND = {
    "model": ("model.name", lambda name: load_spec(name).Arch),
    "data": ("data.name", lambda name: data.find(name).Settings),
    "task": ("model.name", lambda name: tasks.find(load_spec(name).TASK).Settings),
}

EPILOG = """\
examples
  python train.py -c configs/tsm_demo.yaml --amp                       a small job on data it makes itself
  python train.py -c configs/tsm_k400.yaml --amp -o data.root=/data/k400
  python train.py -c configs/tsm_k400.yaml -o train.batch=8 -o optim.lr=0.01 --print-config
  python train.py --resume runs/tsm_k400                               go on where a run was stopped or killed
  python train.py -c configs/tsm_k400.yaml --eval-only --weights runs/tsm_k400/checkpoints/best

A run writes to its folder: config.yaml (the resolved recipe), events.jsonl (all that happened), airank.log,
tensorboard/ and checkpoints/. Every key of a recipe, with its meaning, is in zoo/config/schema.py, zoo/<model>/spec.py
and data/<data set>.py; --print-config shows all of them with the file and line each value comes from.
Exit codes: 0 done, 2 something to mend on your side, 130 and 143 stopped by Ctrl-C and SIGTERM after saving."""


class Request(NamedTuple):
    """What the user asked for. resume: the run to continue, None for a new one."""

    config: Config
    resolved: loader.Entries
    recipe: str
    resume: str | None
    changed: list[str]


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="train.py",
        description="Train or evaluate a model of the zoo.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("-c", "--config", metavar="FILE", help="recipe, such as configs/tsm_k400.yaml; not needed with --resume DIR")
    add(
        "-o",
        "--override",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="change one key of the recipe, such as -o optim.lr=0.01; repeatable, the last one counts",
    )
    add(
        "--amp",
        action="store_true",
        help="mixed precision (train.precision=amp): fp16 with loss scaling on a GPU; on a CPU bf16 with PyTorch, fp16 "
        "with MindSpore, an error with Paddle",
    )
    add("--framework", choices=FRAMEWORKS, help="default torch")
    add(
        "--device",
        metavar="NAME",
        help="auto, cpu, cuda, cuda:N, npu or npu:N; default auto: a GPU or NPU if there is one",
    )
    add("--seed", type=int, metavar="N", help="of weights, order, augmentation and dropout; default 1")
    add("--out", metavar="DIR", help="folder of the run; default runs/<recipe>, or the next free number behind it")
    add(
        "--resume",
        metavar="DIR",
        nargs="?",
        const=HERE,
        help="continue the run in DIR (started there if -c is given and DIR is not there yet); without DIR: "
        "the one in --out, likewise, or the newest of runs/<recipe>",
    )
    add("--weights", metavar="FILE", help="start from, or evaluate, these weights: .safetensors or a checkpoint folder")
    add("--eval-only", action="store_true", help="evaluate --weights or the last checkpoint of --resume, train nothing")
    add("--max-steps", type=int, metavar="N", help="stop after update N, evaluate and save; the schedule is unchanged")
    add(
        "--global-batch",
        metavar="N",
        help="samples per update over all processes, divided into parts of at most train.batch; `keep`: as the run to "
        "resume had it, in a new run optim.base_batch",
    )
    add("--plan", metavar="WORLD", help="show batch and learning rate for 8 or 4x8 processes, and stop")
    add("--print-config", action="store_true", help="show the resolved recipe with the origin of each value, and stop")
    return parser.parse_args(argv)


def read(arguments: argparse.Namespace) -> Request:
    """The recipe with all changes applied. Raises UserError."""
    if arguments.max_steps is not None and arguments.max_steps < 1:
        raise UserError("--max-steps: must be at least 1")
    if arguments.eval_only and not (arguments.weights or arguments.resume):
        raise UserError("--eval-only: name what to evaluate with --weights FILE or --resume DIR")
    path = arguments.config
    if path is None:
        if arguments.resume in (None, HERE):
            raise UserError("no recipe: name one with -c, for example -c configs/tsm_demo.yaml")
        path = os.path.join(directory.existing(arguments.resume, ""), directory.RECIPE)
    entries = {**loader.read(path), **_flags(arguments), **loader.overrides(arguments.override)}
    recipe = os.path.splitext(os.path.basename(path))[0]
    resume = _resumed(arguments, entries, recipe)
    if resume:
        entries["out"] = loader.Entry(resume, "--resume")
    if arguments.global_batch is not None:
        entries["train.global_batch"] = loader.Entry(
            _global_batch(arguments.global_batch, entries, resume), "--global-batch"
        )
    settings, resolved = loader.build(entries, FIND)
    changed: list[str] = []
    if resume and os.path.exists(os.path.join(resume, directory.RECIPE)):
        _, before = loader.build(loader.read(os.path.join(resume, directory.RECIPE)), FIND)
        changed = directory.check_same(before, resolved)
    return Request(settings, resolved, recipe, resume, changed)


def plan(request: Request, world: str) -> str:
    """Batch and learning rate for a number of processes, such as 8 or 4x8, as a line. Raises UserError."""
    numbers = world.lower().split("x")
    if len(numbers) > 2 or not all(number.isdigit() and int(number) for number in numbers):
        raise UserError(f"--plan: expected a number of processes such as 8, or hosts x processes, 4x8, got {world}")
    train, optim = request.config.train, request.config.optim
    length = f"{train.epochs} epochs" if train.epochs else f"{train.steps} steps"
    batch_plan = schedule.batch_plan(train, math.prod(map(int, numbers)))
    return f"{request.recipe}: {schedule.describe(batch_plan, optim)}, {length}\n"


def _global_batch(wish: str, entries: loader.Entries, resume: str | None) -> int:
    if wish != "keep":
        if not wish.isdigit() or not int(wish):
            raise UserError(f"--global-batch: expected a number of samples or `keep`, got {wish}")
        return int(wish)
    path = latest(resume) if resume else None
    if path:
        return load_record(path)["global_batch"]
    settings, _ = loader.build(entries, FIND)
    return settings.optim.base_batch


def _flags(arguments: argparse.Namespace) -> loader.Entries:
    entries = {
        key: loader.Entry(getattr(arguments, key), f"--{key}")
        for key in ("framework", "device", "seed", "out", "weights")
        if getattr(arguments, key) is not None
    }
    if arguments.amp:
        entries["train.precision"] = loader.Entry("amp", "--amp")
    return entries


def _resumed(arguments: argparse.Namespace, entries: loader.Entries, recipe: str) -> str | None:
    if arguments.resume is None:
        return None
    out = entries["out"].value if "out" in entries else None
    if arguments.resume != HERE:
        if arguments.out and os.path.realpath(arguments.out) != os.path.realpath(arguments.resume):
            raise UserError("--resume DIR continues in DIR; leave out --out")
        if arguments.config and not os.path.exists(arguments.resume):
            entries["out"] = loader.Entry(arguments.resume, "--resume")  # killed before it made its folder: start there
            return None
        return directory.existing(arguments.resume, recipe)
    if out:
        return out if directory.is_run(out) else None
    return directory.existing(None, recipe)
