"""Predict the throughput of a recipe at 1 to 1024 cards from what is measured on one host."""

import argparse
import math
import sys
from collections.abc import Sequence

from zoo.bench.scale import calibration_file, cluster, measuring, model, simulation, tables, uncertainty, validation
from zoo.bench.scale.calibration import Calibration, Messages
from zoo.bench.scale.cluster import Cluster
from zoo.bench.scale.collectives import Link
from zoo.commands.new_file import require_new
from zoo.data.errors import UserError
from zoo.run import cli

MOST = 1e18  # of an argument; more cannot be meant
EPILOG = """\
calibrate  measure a recipe on this host: updates of one process and of several at once, the rate of the input, and
           all-reduces; with --worlds 1,2 whole runs too, which show how much of an all-reduce the backward pass hides
predict    throughput, its 5 % and 95 % error bars, efficiency and what limits it, from such a file
simulate   a cluster that is not there, event by event, beside the closed form
validate   compare the closed form with published tables

examples
  python tools/scale.py calibrate -c configs/resnet50_demo.yaml --out demo.json
  python tools/scale.py predict --calibration demo.json --worlds 1,2,4x8 --inter-bandwidth 10 --inter-latency 20
  python tools/scale.py simulate --worlds 1x8,4x8,128x8 --step 350 --batch 128 --bytes 102e6 --inter-bandwidth 10
  python tools/scale.py validate

Bandwidths are in GB/s (10^9 bytes), latencies in microseconds per message, steps in milliseconds. Exit codes: 0 done,
2 an error to fix on your side."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    try:
        print(arguments.run(arguments), end="")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser; its --help shows the options of all commands."""
    top = argparse.ArgumentParser(
        prog="scale.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    parts = []
    for name, run, add_options, line in (
        ("calibrate", calibrate, _add_calibrate, "measure a recipe on this host"),
        ("predict", predict, _add_predict, "predict from a calibration"),
        ("simulate", simulate, _add_simulate, "simulate a cluster that is not there"),
        ("validate", validate, _add_validate, "compare with published tables"),
    ):
        part = commands.add_parser(name, help=line, description=line.capitalize() + ".")
        add_options(part)
        part.set_defaults(run=run)
        parts.append(part.format_help())
    top.epilog = EPILOG + "\n\n" + "\n".join(parts)
    return top


def calibrate(arguments: argparse.Namespace) -> str:
    """Measure a recipe and write the file."""
    require_new(arguments.out, "--out")
    if arguments.rounds < 1 or arguments.drop < 1 or arguments.count < 2:
        raise UserError("--rounds, --drop, --count: at least 1 round, 1 update to drop and 2 to time")
    worlds = _processes(arguments.worlds, "--worlds")
    processes = sorted({1, *_processes(arguments.processes, "--processes")})
    request = cli.request_of(arguments)
    timing = (arguments.rounds, arguments.drop, arguments.count)
    plan = measuring.Plan(_train_arguments(arguments), request, worlds, processes, *timing)
    result = measuring.calibrate(plan, lambda line: print(line, file=sys.stderr, flush=True))
    calibration_file.write(result, arguments.out)
    return f"{arguments.out}: {result.recipe}, {result.framework} on {result.device}\n"


def predict(arguments: argparse.Namespace) -> str:
    """Predict from a calibration."""
    clusters = cluster.parse_all(arguments.worlds, "--worlds")
    measured = calibration_file.read(arguments.calibration)
    inter = _link(arguments, "inter") if arguments.inter_bandwidth is not None else None
    if inter is None and arguments.inter_latency is not None:
        raise UserError("--inter-latency: needs --inter-bandwidth")
    built = model.build(measured, inter)
    predicted = [model.predict(built, wanted) for wanted in clusters]
    alone = model.predict(built, Cluster(1, 1))
    bars = uncertainty.intervals(measured, clusters, inter)
    text = tables.predictions(predicted, bars, alone, arguments.format)
    return (
        text if arguments.format != "markdown" else text + "".join(f"\n{note}" for note in _notes(measured, clusters))
    )


def simulate(arguments: argparse.Namespace) -> str:
    """Simulate clusters, and show the closed form beside it."""
    for name in ("step", "batch", "updates", "buckets"):
        if not 0 < getattr(arguments, name) <= MOST:
            raise UserError(f"--{name}: must be above 0, and at most {MOST:g}")
    for name in ("noise", "jitter", "bytes", "small"):
        if not 0 <= getattr(arguments, name) <= MOST:
            raise UserError(f"--{name}: must be a number from 0 to {MOST:g}")
    messages = Messages(int(arguments.bytes), arguments.buckets, arguments.small)
    rows = []
    for wanted in cluster.parse_all(arguments.worlds, "--worlds"):
        setup = simulation.Setup(
            wanted,
            arguments.step / 1000,
            arguments.noise,
            arguments.batch,
            messages,
            _link(arguments, "intra"),
            _link(arguments, "inter"),
            _input_rate(arguments),
            arguments.jitter,
        )
        rows.append(_simulated(setup, arguments.updates, arguments.seed))
    return tables.rendered(rows, arguments.format)


def validate(arguments: argparse.Namespace) -> str:
    """Compare the closed form with published tables."""
    report = validation.validate()
    return tables.validation_json(report) if arguments.format == "json" else tables.validation(report)


def _simulated(setup: simulation.Setup, updates: int, seed: int) -> tables.Cells:
    seconds = simulation.simulate(setup, updates, seed)
    closed = simulation.closed_form(setup)
    mean = float(seconds.mean())
    error = float(seconds.std(ddof=1)) / math.sqrt(updates) if updates > 1 else float("nan")
    return {
        "cards": str(setup.cluster),
        "samples/s": closed.samples / mean,
        "step ms": 1000 * mean,
        "± ms": 1000 * error,
        "closed form ms": 1000 * closed.seconds,
        "difference %": 100 * (closed.seconds / mean - 1),
        "efficiency %": 100 * setup.step / mean,
        "limit": closed.limit,
    }


def _processes(text: str, option: str) -> list[int]:
    """Return numbers of processes on this host."""
    clusters = cluster.parse_all(text, option)
    if any(wanted.hosts > 1 for wanted in clusters):
        raise UserError(f"{option} {text}: a calibration runs on this host alone; give processes such as 1,2")
    return sorted({wanted.cards for wanted in clusters})


def _link(arguments: argparse.Namespace, name: str) -> Link:
    bandwidth = getattr(arguments, f"{name}_bandwidth")
    latency = getattr(arguments, f"{name}_latency") or 0.0
    if not 0 < bandwidth < math.inf or not 0 <= latency < math.inf:
        raise UserError(f"--{name}-bandwidth, --{name}-latency: a bandwidth above 0 and a latency from 0 on")
    return Link(latency * 1e-6, 1 / (bandwidth * 1e9))


def _input_rate(arguments: argparse.Namespace) -> float:
    if arguments.input_rate is None:
        return math.inf
    if not 0 < arguments.input_rate < math.inf:
        raise UserError("--input-rate: must be above 0")
    return arguments.input_rate


def _notes(measured: Calibration, clusters: Sequence[Cluster]) -> list[str]:
    """Return what a reader of a table must know of its calibration."""
    cards = max(measured.steps)
    notes = [f"{measured.recipe}, {measured.framework} on {measured.device}, {measured.batch} samples per card.\n"]
    if max(wanted.cards for wanted in clusters) > cards:
        notes.append(
            f"More than {cards} processes on a host were not measured: their computing and input are guesses.\n"
        )
    if any(wanted.hosts > 1 for wanted in clusters) and not any(run.cluster.hosts > 1 for run in measured.runs):
        notes.append("No run on several hosts was measured: the link is as given.\n")
    return notes


def _train_arguments(arguments: argparse.Namespace) -> list[str]:
    """Return the options of train.py that select the same recipe."""
    words = ["-c", arguments.config, *(word for pair in arguments.override for word in ("-o", pair))]
    words += ["--amp"] if arguments.amp else []
    for name in ("framework", "device"):
        words += [f"--{name}", getattr(arguments, name)] if getattr(arguments, name) else []
    return words


def _add_calibrate(part: argparse.ArgumentParser) -> None:
    cli.add_recipe_arguments(part)
    add = part.add_argument
    add("--processes", default="1,2", metavar="N,N", help="processes that compute, read and all-reduce at once; 1,2")
    add("--worlds", default="1", metavar="N,N", help="processes of whole runs, which show the overlap; default 1")
    add("--rounds", type=int, default=2, metavar="N", help="repetitions of all runs, in turn; default 2")
    add("--drop", type=int, default=5, metavar="N", help="updates before the clock of a run starts; default 5")
    add("--count", type=int, default=30, metavar="N", help="updates that a run times; default 30")
    add("--out", required=True, metavar="FILE", help="new file for the calibration")


def _add_predict(part: argparse.ArgumentParser) -> None:
    part.add_argument("--calibration", required=True, metavar="FILE", help="of `calibrate`")
    _add_worlds(part)
    part.add_argument("--inter-bandwidth", type=float, metavar="GB/S", help="between hosts, each way")
    part.add_argument("--inter-latency", type=float, metavar="US", help="of a message between hosts; default 0")
    part.add_argument("--format", choices=tables.FORMATS, default="markdown", help="default markdown")


def _add_simulate(part: argparse.ArgumentParser) -> None:
    _add_worlds(part)
    add = part.add_argument
    add("--step", type=float, required=True, metavar="MS", help="in which a card computes an update")
    add("--noise", type=float, default=0.02, metavar="X", help="its standard deviation over its mean; default 0.02")
    add("--batch", type=int, required=True, metavar="N", help="samples per card and update")
    add("--bytes", type=float, required=True, metavar="N", help="of the gradients")
    add("--buckets", type=int, default=4, metavar="N", help="parts they are all-reduced in; default 4")
    add("--small", type=int, default=0, metavar="N", help="all-reduces of 4 KiB that the passes wait for; default 0")
    add("--intra-bandwidth", type=float, default=100.0, metavar="GB/S", help="within a host; default 100")
    add("--intra-latency", type=float, default=5.0, metavar="US", help="of a message within a host; default 5")
    add("--inter-bandwidth", type=float, default=10.0, metavar="GB/S", help="between hosts; default 10")
    add("--inter-latency", type=float, default=20.0, metavar="US", help="of a message between hosts; default 20")
    add("--input-rate", type=float, metavar="X", help="samples per second that a host reads; default: no limit")
    add("--jitter", type=float, default=0.0, metavar="X", help="spread of the time of a message; default 0")
    add("--updates", type=int, default=100, metavar="N", help="to simulate; default 100")
    add("--seed", type=int, default=0, metavar="N", help="of the draws; default 0")
    add("--format", choices=tables.FORMATS, default="markdown", help="default markdown")


def _add_validate(part: argparse.ArgumentParser) -> None:
    part.add_argument("--format", choices=("markdown", "json"), default="markdown", help="default markdown")


def _add_worlds(part: argparse.ArgumentParser) -> None:
    part.add_argument("--worlds", required=True, metavar="N,HxN", help="cards to predict, such as 1,8,4x8,128x8")
