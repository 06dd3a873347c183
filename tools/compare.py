"""The same recipe in every installed framework, step by step: do they compute the same thing, and how fast?"""

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import time
import zlib
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from data.errors import UserError
from zoo.frameworks import FRAMEWORKS
from zoo.run import cli
from zoo.weights import files
from zoo.weights.match import match

EPILOG = """\
Each framework trains in a process of its own, on the same batches, from the same weights. These must agree: the loss of
the first --within steps; after the first update, every weight and running statistic, and what the net says of the
batch in an evaluation; and the gradients of the first update, more loosely, since rounding alone moves them where a
ReLU or a pooling is undecided. Beyond some dozens of steps any two computations drift apart (one framework with one
thread and with two does), sooner without a warm-up.

examples
  python tools/compare.py -c configs/tsm_demo.yaml --steps 50
  python tools/compare.py -c configs/my_model.yaml --frameworks torch,mindspore --tolerance 1e-4
  python tools/compare.py -c configs/tsm_demo.yaml --frameworks torch --against runs/compare-old

Exit codes: 0 they agree, 1 they differ by more than --tolerance, 2 something to mend on your side."""
WARM = 3  # first steps left out of the timing: compilers and allocators
SHOWN = 3  # tensors
GRADIENT = 0.1  # how far the first gradients of a tensor may differ, relative, in L2; rounding alone has made 0.01
# What is 0 but for rounding, such as the mean of what was normalised before, and the gradient of a bias that the next
# normalisation takes out, is not compared with itself:
LEAST = 1e-6  # a difference of a weight or statistic that is never too much
SHARE = 1e-5  # of the norm of all gradients: what a tensor's gradient is compared with at least


class Row(NamedTuple):
    """One step of one framework. batch: a checksum of what it was trained on; seconds: of the update alone."""

    step: int
    lr: float
    loss: float
    grad_norm: float
    skipped: float
    seconds: float
    batch: int


def main(argv: list[str] | None = None) -> int:
    arguments = parse(argv)
    try:
        if arguments.one:
            trace(arguments.one, arguments)
            return 0
        return compare(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="compare.py", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("-c", "--config", metavar="FILE", required=True, help="recipe to run")
    add("-o", "--override", metavar="KEY=VALUE", action="append", default=[], help="as for train.py")
    add("--amp", action="store_true", help="as for train.py: every framework in its own 16 bits")
    add("--device", metavar="NAME", help="as for train.py")
    add("--frameworks", metavar="A,B", help=f"of {', '.join(FRAMEWORKS)}; default: those installed")
    add(
        "--against",
        metavar="DIR",
        action="append",
        default=[],
        help="also compare with what an earlier comparison left in DIR (on another machine, say); repeatable",
    )
    add("--steps", type=int, default=20, metavar="N", help="updates to run; default 20")
    add("--within", type=int, default=20, metavar="N", help="updates whose losses must agree; default 20")
    add(
        "--tolerance", type=float, default=1e-3, metavar="X", help="largest relative difference of a loss; default 1e-3"
    )
    add("--out", metavar="DIR", help="folder for the numbers and the plot; default runs/compare-<recipe>, never reused")
    add("--one", help=argparse.SUPPRESS)  # this process is the one of that framework
    return parser.parse_args(argv)


def compare(arguments: argparse.Namespace) -> int:
    """Run, print, plot. 0 if all agree, 1 if not. Raises UserError."""
    if arguments.steps < 1 or arguments.within < 1:
        raise UserError("--steps, --within: must be at least 1")
    frameworks = chosen(arguments.frameworks)
    cli.read(cli.parse(recipe(arguments)))  # mistakes in the recipe show before anything is started
    earlier = [source for folder in arguments.against for source in left(folder)]
    folder = new_folder(arguments.out, arguments.config)
    for framework in frameworks:
        print(f"{framework}: {arguments.steps} steps ...", flush=True)
        run(framework, arguments, folder)
    sources = [(framework, os.path.join(folder, framework)) for framework in frameworks] + earlier
    heads, rows = {}, {}
    for name, stem in sources:
        heads[name], rows[name] = load(stem + ".jsonl")
    steps = min(map(len, rows.values()))
    rows = {name: values[:steps] for name, values in rows.items()}
    table(rows)
    problems = tensors(sources, arguments.tolerance)
    speeds(heads, rows)
    plot(rows, os.path.join(folder, "curves.png"))
    print(f"the numbers and curves.png are in {folder}")
    return verdict(rows, arguments.within, arguments.tolerance, problems)


def chosen(wanted: str | None) -> list[str]:
    """The frameworks to run. Raises UserError for one that is unknown or not installed."""
    installed = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
    names = wanted.split(",") if wanted else installed
    for name in names:
        if name not in FRAMEWORKS:
            raise UserError(f"--frameworks: there is no {name!r}; there are: {', '.join(FRAMEWORKS)}")
        if name not in installed:
            raise UserError(f"{name} is not installed here: pip install '.[{name}]'")
    if not names:
        raise UserError(f"no framework is installed here: pip install '.[{','.join(FRAMEWORKS)}]'")
    return names


def left(folder: str) -> list[tuple[str, str]]:
    """What an earlier comparison left: a title and the stem of the files of each framework. Raises UserError."""
    found = [
        (f"{name} ({os.path.basename(os.path.normpath(folder))})", os.path.join(folder, name))
        for name in FRAMEWORKS
        if os.path.exists(os.path.join(folder, name + ".jsonl"))
    ]
    if not found:
        raise UserError(f"--against: {folder} holds no numbers of an earlier comparison (torch.jsonl and the like)")
    return found


def recipe(arguments: argparse.Namespace) -> list[str]:
    """train.py's arguments."""
    words = ["-c", arguments.config] + [word for pair in arguments.override for word in ("-o", pair)]
    return words + ["--amp"] * arguments.amp + (["--device", arguments.device] if arguments.device else [])


def new_folder(wanted: str | None, config: str) -> str:
    stem = wanted or os.path.join("runs", f"compare-{os.path.splitext(os.path.basename(config))[0]}")
    for folder in [stem] + ([] if wanted else [f"{stem}-{number}" for number in range(2, 10_000)]):
        if not os.path.exists(folder):
            os.makedirs(folder)
            return folder
    raise UserError(f"--out: {stem} exists already and is not overwritten")


def run(framework: str, arguments: argparse.Namespace, folder: str) -> None:
    """One framework in a process of its own; what it says is kept and shown if it fails."""
    words = [
        sys.executable,
        os.path.abspath(__file__),
        "--one",
        framework,
        "--steps",
        str(arguments.steps),
        "--out",
        folder,
    ] + recipe(arguments)
    log = os.path.join(folder, f"{framework}.log")
    with open(log, "w", encoding="utf-8") as file:
        code = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    if code:
        with open(log, encoding="utf-8", errors="replace") as file:
            last = "".join(file.readlines()[-15:]).strip()
        raise UserError(f"{framework} ended with code {code}; the end of {log}:\n{last}")


def trace(framework: str, arguments: argparse.Namespace) -> None:
    """Train, and write a row per step and the tensors after the first update to <out>/<framework>.*"""
    from data.stream import open_training
    from zoo.run import restore
    from zoo.run.job import assemble, join
    from zoo.run.prefetch import BadSampleTracker, Prefetcher

    request = cli.read(cli.parse(recipe(arguments) + ["--framework", framework]))
    job = assemble(request, join(request, {}))
    restore.restore(request.config, job, None, print)
    stem, accumulate = os.path.join(arguments.out, framework), job.plan.accumulate
    checksums: list[int] = []

    def checked(stream):
        for batch, bad in stream:
            checksums.append(zlib.crc32(b"".join(batch[name].tobytes() for name in sorted(batch))))
            yield batch, bad

    stream = open_training(
        job.train_set,
        request.config.seed,
        job.batch_plan.batch,
        0,
        arguments.steps * accumulate,
        dropout_masks=job.dropout_masks,
    )
    feed, account = Prefetcher(checked(stream), job.trainer), BadSampleTracker(job.train_set, print)
    with open(stem + ".jsonl", "w", encoding="utf-8") as file:
        head = {
            "framework": framework,
            "device": job.world.device,
            **job.plan.mode._asdict(),
            "global_batch": job.clock.global_batch,
        }
        file.write(json.dumps(head) + "\n")
        for step in range(arguments.steps):
            parts, lr = [next(feed) for _ in range(accumulate)], job.lr(step)
            account.add(feed.unreadable())
            began = time.perf_counter()
            numbers = job.trainer.read(job.trainer.step(parts, lr))
            seconds = time.perf_counter() - began
            batch = zlib.crc32(repr(checksums[step * accumulate : (step + 1) * accumulate]).encode())
            row = Row(step + 1, lr, numbers["loss"], numbers["grad_norm"], numbers["skipped"], seconds, batch)
            file.write(json.dumps(row._asdict()) + "\n")
            file.flush()
            if step == 0:
                name = job.plan.fields[0].name
                output = job.trainer.predict({name: parts[0][name]})
                files.write(stem + "-step1.safetensors", {**job.trainer.state_dict(), "evaluation/output": output})


def load(path: str) -> tuple[dict[str, Any], list[Row]]:
    """What trace wrote: the facts, then the steps. Raises UserError."""
    try:
        with open(path, encoding="utf-8") as file:
            head, *rows = [json.loads(line) for line in file]
        return head, [Row(**row) for row in rows]
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} cannot be read as numbers of an earlier comparison: {error}") from None


def difference(values: Sequence[float]) -> float:
    """The largest difference between any two, relative to the largest size; infinite if one is not a number."""
    if not all(np.isfinite(values)):
        return float("inf")
    return (max(values) - min(values)) / max(max(map(abs, values)), 1e-30)


def table(rows: dict[str, list[Row]]) -> None:
    """Per step: losses, norms, their largest relative differences; then the speeds."""
    names = list(rows)
    width = max(11, *(len(name) + 2 for name in names))
    heads = "".join(f"{name:>{width}}" for name in names)
    print(f"\n      loss{' ' * (width * len(names) - 4)}            gradient norm")
    print(f"step{heads}  difference{heads}  difference")
    for together in zip(*rows.values()):
        if len({row.batch for row in together}) > 1:
            raise UserError(
                f"step {together[0].step}: the frameworks were given different batches; do they read the "
                "same data set with the same seed?"
            )
        losses, norms = [row.loss for row in together], [row.grad_norm for row in together]
        print(
            f"{together[0].step:4}"
            + "".join(f"{value:{width}.6f}" for value in losses)
            + f"{difference(losses):12.1e}"
            + "".join(f"{value:{width}.5g}" for value in norms)
            + f"{difference(norms):12.1e}"
        )


def tensors(sources: Sequence[tuple[str, str]], tolerance: float) -> list[str]:
    """Print which tensors differ most after one update; in words, those that differ too much.

    Of a weight, statistic or output: the largest difference relative to the largest value; of a map of classes the
    share of its pixels; of a momentum, which still is the gradient, the L2 norm of the difference relative to its own.
    LEAST and SHARE say what is too small to be compared with itself.
    """
    dumps = {name: files.read(stem + "-step1.safetensors")[0] for name, stem in sources}
    (first, start), *others = dumps.items()
    if not others:
        return []
    for name, dump in others:
        if {key: array.shape for key, array in dump.items()} != {key: array.shape for key, array in start.items()}:
            raise UserError(
                f"{first} and {name} do not train the same tensors:\n"
                f"{match(dump, {key: array.shape for key, array in start.items()})}"
            )
    problems = []
    least = LEAST / tolerance if tolerance else 0.0  # so that a difference of LEAST just passes
    share = SHARE * math.hypot(*(_norm(array) for key, array in start.items() if key.startswith("momentum/")))
    for title, belongs, spread, limit in (
        ("weights and statistics", lambda key: "/" not in key, partial(_largest, least=least), tolerance),
        ("gradients", lambda key: key.startswith("momentum/"), partial(_euclidean, share=share), GRADIENT),
        ("outputs in an evaluation", lambda key: key.startswith("evaluation/"), _largest, tolerance),
    ):
        found = {
            key: max(spread(array, dump[key]) for _, dump in others) for key, array in start.items() if belongs(key)
        }
        worst = sorted(found, key=found.get, reverse=True)[:SHOWN]
        print(
            f"after one update, {title} that differ most: "
            + ", ".join(f"{key.rpartition('/')[2]} {found[key]:.1e}" for key in worst)
        )
        problems += [f"after one update, {key} differs by {found[key]:.1e}" for key in worst if not found[key] <= limit]
    return problems


def _largest(a: np.ndarray, b: np.ndarray, least: float = 0.0) -> float:
    if a.dtype == np.uint8:  # classes of pixels: the share that differs
        return float((a != b).mean())
    return float(np.abs(a - b).max() / max(np.abs(a).max(), np.abs(b).max(), least, 1e-30))


def _euclidean(a: np.ndarray, b: np.ndarray, share: float) -> float:
    return _norm(a - b) / max(_norm(a), _norm(b), share, 1e-30)


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array))


def speeds(heads: dict[str, dict[str, Any]], rows: dict[str, list[Row]]) -> None:
    for name, values in rows.items():
        head, seconds = heads[name], statistics.median([row.seconds for row in values[WARM:] or values])
        print(
            f"{name}: {head['compute']} on {head['device']}, {seconds * 1e3:.1f} ms per step (median), "
            f"{head['global_batch'] / seconds:.1f} samples/s; the first step took {values[0].seconds:.1f} s"
        )


def verdict(rows: dict[str, list[Row]], within: int, tolerance: float, problems: list[str]) -> int:
    """0 if losses and tensors agree, 1 if not."""
    if len(rows) < 2:
        print("only one framework: nothing to compare it with")
        return 0
    found = [difference([row.loss for row in together]) for together in zip(*rows.values())]
    judged = found[:within]
    print(
        f"largest relative difference of the loss: {max(judged):.1e} over the first {len(judged)} steps, "
        f"{max(found):.1e} over all {len(found)}"
    )
    if max(judged) > tolerance:
        step = next(number for number, value in enumerate(found, 1) if value > tolerance)
        problems = problems + [f"the losses differ by more than {tolerance:g} from step {step} on"]
    for problem in problems:
        print(f"they do not agree: {problem}")
    if not problems:
        print(f"they agree within {tolerance:g}")
    return 1 if problems else 0


def plot(rows: dict[str, list[Row]], path: str) -> None:
    """Losses and gradient norms over the steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, sharex=True, figsize=(8, 6), layout="constrained")
    for number, (name, values) in enumerate(rows.items()):
        steps, style = [row.step for row in values], ("-", "--", ":")[number % 3]
        axes[0].plot(steps, [row.loss for row in values], style, label=name)
        axes[1].plot(steps, [row.grad_norm for row in values], style, label=name)
    axes[0].set_ylabel("loss")
    axes[1].set_ylabel("gradient norm")
    axes[1].set_xlabel("step")
    axes[0].legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
