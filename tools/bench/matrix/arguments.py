"""The command line of tools/benchmark.py."""

import argparse
import re
import shlex

from zoo.bench.matrix.cases import World
from zoo.frameworks import FRAMEWORKS
from zoo.run import cli

DESCRIPTION = (
    "Time a matrix of recipes, frameworks, precisions, batch sizes and processes, and compare it with another."
)
EPILOG = """\
Each run is one of `train.py --speed` in processes of its own. Round after round, all cases are run once, in an order
that is shuffled and the same for everybody, so that a machine that gets slower or busier does so for all alike. The
same command continues a matrix that was interrupted in whatever way; complete runs are kept, others are done anew.
What this machine or a framework cannot run is named and left out.

A run lies in <out>/<framework>/<model>/bz<batch>/<hosts>n<processes>g/<model>_b<batch>_<precision>_<run>, its console
output beside it. results.json and results.csv have the median, its 95 % interval, the mean and the coefficient of
variation of every case. docs/benchmarking.md says how they are computed.

--against says of every case whether it is slower than there by --margin, is not, or cannot be told without more runs.
Runs of another time cannot tell the machine's state from the code's. So compare two versions of the code with
--against CHECKOUT, and two settings with --variant: both then run at the same time and take turns, ten updates each.

examples
  python tools/benchmark.py -c configs/tsm_demo.yaml -c configs/resnet50_demo.yaml --precisions fp32,amp \\
      --batches 8,16 --worlds 1x1,1x2 --repeats 3 --drop 10 --count 10 --out results/demo
  python tools/benchmark.py -c configs/resnet50_imagenet.yaml --precisions amp --find-batch --out results/largest
  python tools/benchmark.py -c configs/tsm_demo.yaml --frameworks torch --cv 0.01 --busy wait --out results/new \\
      --against results/old
  python tools/benchmark.py -c configs/tsm_demo.yaml --variant "last:-o train.channels_last=true" --out results/layout
  python tools/benchmark.py -c configs/tsm_demo.yaml --against ../other-checkout --out results/change
  python tools/benchmark.py --out results/new --against results/old             compare, run nothing

Exit codes: 0 done, 1 a case is slower, 2 an error to fix on your side, 130 and 143 stopped by Ctrl-C and SIGTERM."""
REPEATS, PAIRED_REPEATS = 5, 12  # a rank test needs 4, and 6 pairs; processes of the same code differ by percents
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmark.py",
        description=DESCRIPTION,
        epilog=EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("-c", "--config", metavar="FILE", action="append", default=[], help="recipe; repeatable")
    cli.add_override_argument(parser, "change one key of all recipes, such as -o data.workers=4; repeatable")
    add("--out", metavar="DIR", required=True, help="folder of the matrix")
    add("--frameworks", type=_names, metavar="A,B", help=f"of {', '.join(FRAMEWORKS)}; default: all of them")
    add("--precisions", type=_names, default=["fp32"], metavar="A,B", help="fp32, amp, fp16 ...; default fp32")
    add("--batches", type=_counts, default=[], metavar="N,N", help="samples per process; default: those of the recipes")
    add("--find-batch", action="store_true", help="find the largest batch that fits, and time it")
    add(
        "--memory-limit",
        type=_bytes,
        metavar="SIZE",
        help="host memory that a trial of --find-batch may take, such as 8GB; default 80 %% of what is free",
    )
    add("--worlds", type=_worlds, default=[World(1, 1)], metavar="NxG", help="hosts x processes: 1x1,1x8,2x8")
    add("--device", metavar="NAME", help="as for train.py; default auto")
    add(
        "--hosts",
        type=_names,
        default=[],
        metavar="A,B",
        help="names for tools/launch.py, if a world has several hosts",
    )
    add("--launch", type=_options, default=[], metavar="OPTIONS", help="further options of tools/launch.py, quoted")
    add("--drop", type=_count, default=20, metavar="N", help="updates before the clock starts; default 20")
    add("--count", type=_count, default=100, metavar="N", help="updates that are timed; default 100")
    add(
        "--repeats",
        type=_count,
        metavar="N",
        help=f"runs of each case; default {REPEATS}, {PAIRED_REPEATS} with variants",
    )
    add("--cv", type=_fraction, metavar="X", help="more runs until the median's coefficient of variation is below X")
    add("--max-repeats", type=_count, default=20, metavar="N", help="runs of each case at most, with --cv; default 20")
    add(
        "--variant",
        action="append",
        default=[],
        metavar="NAME:OPTIONS",
        help="run everything also with these options of train.py, or with NAME=FOLDER by another checkout; repeatable",
    )
    add("--no-turns", action="store_true", help="run variants one after the other, not at the same time in turns")
    add("--busy", choices=("warn", "wait", "refuse"), default="warn", help="if others use the machine; default warn")
    add("--timeout", type=_seconds, default=3600.0, metavar="SECONDS", help="end a run after that long; default 3600")
    add("--retry", action="store_true", help="run cases again that have failed")
    add(
        "--against",
        metavar="DIR",
        help="compare with the speed runs below this folder or, if it is a checkout, with this code, run in turns",
    )
    add("--margin", type=_fraction, default=0.03, metavar="X", help="slowdown that matters; default 0.03")
    add("--dry-run", action="store_true", help="show the matrix and what cannot be run, and stop")
    return parser.parse_args(argv)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"expected different names, separated by commas, got {text!r}")
    return names


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 10**9:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def _counts(text: str) -> list[int]:
    return [_count(name) for name in _names(text)]


def _worlds(text: str) -> list[World]:
    worlds = []
    for name in _names(text):
        found = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", name.lower())
        if not found:
            raise argparse.ArgumentTypeError(f"expected hosts x processes such as 1x1,1x8,2x8, got {text!r}")
        worlds.append(World(int(found[1]), int(found[2])))
    return worlds


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a fraction between 0 and 1 such as 0.03, got {text!r}")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got {text!r}")
    return value


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if not found or found[2] not in UNITS or not float(found[1]):
        raise argparse.ArgumentTypeError(f"expected a size such as 8GB or 512MiB, got {text!r}")
    return int(float(found[1]) * UNITS[found[2]])


def _options(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
