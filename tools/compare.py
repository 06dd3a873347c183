"""Train the same recipe in every installed framework step by step, and compare numbers and speed."""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator

from data.errors import UserError
from data.stream import LoadedBatch, open_training
from tools import compare_report
from tools.compare_report import Row
from zoo.frameworks import FRAMEWORKS
from zoo.run import cli, restore
from zoo.run.job import assemble, join
from zoo.run.prefetch import BadSampleTracker, Prefetcher
from zoo.weights import files

EPILOG = """\
Each framework trains in a process of its own, on the same batches, from the same weights. These must agree: the loss of
the first --within steps; after the first update, every weight and running statistic, and the outputs for the batch in
an evaluation; and the gradients of the first update, more loosely, since rounding alone moves them where a ReLU or a
pooling is undecided. Beyond some dozens of steps any two computations diverge (one framework with one thread and with
two does), sooner without a warm-up.

examples
  python tools/compare.py -c configs/tsm_demo.yaml --steps 50
  python tools/compare.py -c configs/my_model.yaml --frameworks torch,mindspore --tolerance 1e-4
  python tools/compare.py -c configs/tsm_demo.yaml --frameworks torch --against runs/compare-old

Exit codes: 0 they agree, 1 they differ by more than --tolerance, 2 an error to fix on your side."""
MAX_FOLDERS = 10_000  # runs/compare-<recipe>, runs/compare-<recipe>-2 ...
MAX_LOG_LINES = 15  # of a framework that failed


def cli_main() -> None:
    """Run as the command zoo-compare."""
    sys.exit(main())


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    try:
        if arguments.worker:
            train_and_record(arguments.worker, arguments)
            return 0
        return compare(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_recipe_arguments(parser, ("amp", "device"))
    add = parser.add_argument
    add("--frameworks", metavar="A,B", help=f"of {', '.join(FRAMEWORKS)}; default: those installed")
    add(
        "--against",
        metavar="DIR",
        action="append",
        default=[],
        help="also compare with the results of an earlier comparison in DIR (on another machine, say); repeatable",
    )
    add("--steps", type=int, default=20, metavar="N", help="updates to run; default 20")
    add("--within", type=int, default=20, metavar="N", help="updates whose losses must agree; default 20")
    add(
        "--tolerance", type=float, default=1e-3, metavar="X", help="largest relative difference of a loss; default 1e-3"
    )
    add("--out", metavar="DIR", help="folder for the numbers and the plot; default runs/compare-<recipe>, never reused")
    add("--worker", metavar="FRAMEWORK", help=argparse.SUPPRESS)  # this process trains one framework for another one
    return parser.parse_args(argv)


def compare(arguments: argparse.Namespace) -> int:
    """Run the frameworks one after another, then print and plot the comparison.

    Returns:
        0 if all agree, 1 if not.

    Raises:
        UserError: the arguments are wrong, or a framework failed.
    """
    if arguments.steps < 1 or arguments.within < 1:
        raise UserError("--steps, --within: must be at least 1")
    frameworks = select_frameworks(arguments.frameworks)
    request(arguments)  # errors in the recipe show before anything is started
    earlier = [source for folder in arguments.against for source in earlier_results(folder)]
    folder = new_folder(arguments.out, arguments.config)
    for framework in frameworks:
        print(f"{framework}: {arguments.steps} steps ...", flush=True)
        run_worker(framework, arguments, folder)
    sources = [(framework, os.path.join(folder, framework)) for framework in frameworks] + earlier
    headers, rows = {}, {}
    for name, stem in sources:
        headers[name], rows[name] = compare_report.load(stem + ".jsonl")
    steps = min(map(len, rows.values()))
    rows = {name: values[:steps] for name, values in rows.items()}
    compare_report.print_steps(rows)
    problems = compare_report.compare_tensors(sources, arguments.tolerance)
    compare_report.print_speeds(headers, rows)
    if compare_report.plot(rows, os.path.join(folder, "curves.png")):
        print(f"the numbers and curves.png are in {folder}")
    else:
        print(f"the numbers are in {folder}; curves.png is not: matplotlib is missing, pip install '.[plot]'")
    return compare_report.print_verdict(rows, arguments.within, arguments.tolerance, problems)


def select_frameworks(names: str | None) -> list[str]:
    """Return the frameworks to run: those of a comma-separated list, or all that are installed.

    Raises:
        UserError: one is unknown or not installed.
    """
    installed = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
    selected = names.split(",") if names else installed
    for name in selected:
        if name not in FRAMEWORKS:
            raise UserError(f"--frameworks: there is no {name!r}; there are: {', '.join(FRAMEWORKS)}")
        if name not in installed:
            raise UserError(f"{name} is not installed here: pip install '.[{name}]'")
    if not selected:
        raise UserError(f"no framework is installed here: pip install '.[{','.join(FRAMEWORKS)}]'")
    return selected


def earlier_results(folder: str) -> list[tuple[str, str]]:
    """List the results of an earlier comparison: a title and the path without suffix for each framework.

    Raises:
        UserError: there are none.
    """
    title = os.path.basename(os.path.normpath(folder))
    results = [
        (f"{name} ({title})", os.path.join(folder, name))
        for name in FRAMEWORKS
        if os.path.exists(os.path.join(folder, name + ".jsonl"))
    ]
    if not results:
        raise UserError(f"--against: {folder} holds no results of an earlier comparison (torch.jsonl and the like)")
    return results


def request(arguments: argparse.Namespace, framework: str | None = None) -> cli.Request:
    """Resolve the recipe, for one framework."""
    return cli.request(
        arguments.config, arguments.override, amp=arguments.amp, framework=framework, device=arguments.device
    )


def new_folder(out: str | None, config: str) -> str:
    """Create the folder for the results: --out, or runs/compare-<recipe>, -2, -3 ...

    Raises:
        UserError: --out exists.
    """
    stem = out or os.path.join("runs", f"compare-{os.path.splitext(os.path.basename(config))[0]}")
    for folder in [stem] + ([] if out else [f"{stem}-{number}" for number in range(2, MAX_FOLDERS)]):
        if not os.path.exists(folder):
            os.makedirs(folder)
            return folder
    raise UserError(f"--out: {stem} exists already and is not overwritten; choose another folder")


def run_worker(framework: str, arguments: argparse.Namespace, folder: str) -> None:
    """Train one framework in a process of its own, whose output goes to <folder>/<framework>.log.

    Raises:
        UserError: the process failed; the message shows the end of its output.
    """
    command = [sys.executable, os.path.abspath(__file__), "--worker", framework, "--steps", str(arguments.steps)]
    command += ["--out", folder, "-c", arguments.config]
    command += [word for pair in arguments.override for word in ("-o", pair)]
    command += ["--amp"] if arguments.amp else []
    command += ["--device", arguments.device] if arguments.device else []
    log = os.path.join(folder, f"{framework}.log")
    with open(log, "w", encoding="utf-8") as file:
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    if code:
        with open(log, encoding="utf-8", errors="replace") as file:
            tail = "".join(file.readlines()[-MAX_LOG_LINES:]).strip()
        raise UserError(f"{framework} exited with code {code}; the end of {log}:\n{tail}")


def train_and_record(framework: str, arguments: argparse.Namespace) -> None:
    """Train, and write a row per step and the tensors after the first update to <out>/<framework>.*"""
    resolved = request(arguments, framework)
    job = assemble(resolved, join(resolved, {}))
    restore.restore(resolved.config, job, None, print)
    stem, trainer, accumulate = os.path.join(arguments.out, framework), job.trainer, job.plan.accumulate
    count = arguments.steps * accumulate
    stream = open_training(
        job.train_set, resolved.config.seed, job.batch_plan.batch, 0, count, dropout_masks=job.dropout_masks
    )
    checksums: list[int] = []
    prefetcher = Prefetcher(_with_checksums(stream, checksums), trainer, accumulate)
    bad_samples = BadSampleTracker(job.train_set, print)
    with open(stem + ".jsonl", "w", encoding="utf-8") as file:
        header = {"framework": framework, "device": job.world.device, **job.plan.mode._asdict()}
        file.write(json.dumps({**header, "global_batch": job.clock.global_batch}) + "\n")
        for step in range(arguments.steps):
            micro_batches, lr = prefetcher.take(), job.lr(step)
            bad_samples.add(prefetcher.pop_unreadable())
            start = time.perf_counter()
            numbers = trainer.read(trainer.step(micro_batches, lr, step))
            seconds = time.perf_counter() - start
            batch = zlib.crc32(repr(checksums[step * accumulate : (step + 1) * accumulate]).encode())
            row = Row(step + 1, lr, numbers["loss"], numbers["grad_norm"], numbers["skipped"], seconds, batch)
            file.write(json.dumps(row._asdict()) + "\n")
            file.flush()
            if step == 0:
                name = job.plan.fields[0].name
                output = trainer.predict({name: micro_batches[0][name]})
                files.write(stem + "-step1.safetensors", {**trainer.state_dict(), "evaluation/output": output})
            prefetcher.prefetch()


def _with_checksums(stream: Iterator[LoadedBatch], checksums: list[int]) -> Iterator[LoadedBatch]:
    """Pass batches on, adding the checksum of each to a list."""
    for batch, unreadable in stream:
        checksums.append(zlib.crc32(b"".join(batch[name].tobytes() for name in sorted(batch))))
        yield batch, unreadable


if __name__ == "__main__":
    cli_main()
