"""Options that commands share: those that select a recipe and change it."""

import argparse
from collections.abc import Sequence

from zoo.frameworks import FRAMEWORKS
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options, Request

RECIPE_FLAGS = ("amp", "framework", "device")  # that most tools take
TRAINING_FLAGS = ("amp", "exact", "framework", "device")


def add_recipe_arguments(
    parser: argparse.ArgumentParser, flags: Sequence[str] = RECIPE_FLAGS, *, required: bool = True
) -> None:
    """Add the options that select a recipe and change it: -c, -o and those of `flags`.

    Args:
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
    parser.add_argument("-o", "--override", metavar="KEY=VALUE", action="append", default=[], help=help_text)


def recipe_words(arguments: argparse.Namespace, flags: Sequence[str] = RECIPE_FLAGS) -> list[str]:
    """Return the words of another command that select and change the same recipe: -c, -o and those of `flags`."""
    words = ["-c", arguments.config]
    words += [word for pair in arguments.override for word in ("-o", pair)]
    for flag in flags:
        value = getattr(arguments, flag)
        if value:
            words += [f"--{flag}"] if value is True else [f"--{flag}", value]
    return words


def request_of(arguments: argparse.Namespace) -> Request:
    """Resolve the recipe of the options that add_recipe_arguments has added by default."""
    flags = {key: getattr(arguments, key) for key in RECIPE_FLAGS}
    return resolve_recipe(Options(arguments.config, arguments.override, **flags))
