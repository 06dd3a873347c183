"""Time the input pipeline of a recipe alone: the stream as training opens it, and the stages of a sample."""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from zoo import program
from zoo.bench.bare import loading as bare_loops
from zoo.bench.interleave import family_cpu_seconds, interleave, median_ratio, timed
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.commands.options import add_recipe_arguments, request_of
from zoo.data import loaders, order
from zoo.data.batch import batch_bytes, collate
from zoo.data.dataset import Pending
from zoo.data.errors import BadSample
from zoo.data.loaders.packed import AT_A_TIME
from zoo.data.readers import batches_per_worker
from zoo.data.stages import COLLATE, DECODE, READ, STAGES, TRANSFORM, stage
from zoo.data.stages import measure as measure_stages
from zoo.data.stream import open_training, training_samples
from zoo.program import count
from zoo.run import pipeline
from zoo.run.job import Job, assemble, join
from zoo.run.pipeline import Decoding, LoaderPlan, Prefetcher, open_decoder
from zoo.table import table

EPILOG = """\
The time and the CPU time of a sample are those of one thread, by stage. The loaders that are installed, and the
shortest loop of the libraries that reads the same files, read the same samples in turn.

example: %(prog)s -c tsm_k400 -o data.root=/data/k400 -o data.workers=8 --json data.json"""
MIN_SAMPLES = 20  # read by one thread alone, or else a batch: what is done once per batch counts as in training
PASSES = 5  # over those samples, of each loader and of the bare loop in turn
DEVICE_PASSES = 3  # of the stream where DALI decodes on the device
BARE = "bare loop"
REMEDIES = {  # by the stage that takes most
    READ: "keep the files on a local disk (data.cache) or in packs (zoo data prepare --pack)",
    DECODE: "prepare files that decode faster (zoo data prepare --resize, --reencode, --frames or --raw)",
    TRANSFORM: "choose cheaper augmentations and filters (data.augment, data.resample=fast, data.antialias=false)",
    COLLATE: "make samples smaller (data.size, data.crop)",
}
Report = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    require_new(arguments.json, "--json")
    request = request_of(arguments)
    job = assemble(request, join(request, os.environ))
    report = measure(job, arguments.count)
    if job.group.rank == 0:
        print_report(describe(report), report, arguments.json)
    job.group.close()
    job.world.exit_process(0)
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add_recipe_arguments(parser)
    parser.add_argument("-n", "--count", type=count, default=30, metavar="N", help="batches to read; default 30")
    add_json_argument(parser)
    return parser


def measure(job: Job, count: int) -> Report:
    """Time the stream, then single samples in this thread, then the loaders in turn; count: batches to read.

    What was measured has JSON's types: seconds, samples per second, and milliseconds per sample.
    """
    plan = pipeline.plan_loader(job.train_set, job.world, job.group)
    samples = min(len(job.train_set), max(count, MIN_SAMPLES, job.batch_plan.batch))
    return {
        "dataset": type(job.train_set).__module__,
        "samples": samples,
        "loader": plan.loader,
        "notes": list(plan.notes),
        "stream": _measure_stream(job, count, plan),
        "one_thread": _measure_stages(job, samples, plan.loader),
        "loaders": _measure_in_turn(job, samples, plan.loader),
        "device": measure_device(job, count, plan) if plan.on_device else None,
    }


def describe(report: Report) -> list[str]:
    stream, one, device = report["stream"], report["one_thread"], report["device"]
    totals = {name: sum(times.values()) for name, times in one.items()}
    stages = [(name, f"{one['ms'][name]:.3f}", f"{one['cpu_ms'][name]:.3f}") for name in STAGES]
    slowest = max(STAGES, key=one["cpu_ms"].__getitem__)
    lines = [
        *report["notes"],
        f"{stream['samples_per_s']:.1f} samples/s with {stream['workers']} workers x {stream['threads']} threads "
        f"({stream['batches']} batches of {stream['batch']}, {stream['batch_bytes'] / 2**20:.1f} MB each; the first "
        f"after {stream['first_batch_s']:.1f} s); {stream['cpu_ms']:.3f} ms of CPU time per sample in all processes",
        f"one thread alone: {1e3 / totals['ms']:.1f} samples/s",
        *table([*stages, ("all", f"{totals['ms']:.3f}", f"{totals['cpu_ms']:.3f}")], ("stage", "ms", "CPU ms")),
        f"the limit is the decoding of these files alone, {one['cpu_ms'][DECODE]:.3f} ms of CPU time; most goes into "
        f"{slowest}: {REMEDIES[slowest]}",
        f"medians of {PASSES} passes in turn; speed: relative to this loader, {report['loader']}",
    ]
    keys = (("ms", 3), ("cpu_ms", 3), ("speed", 2), ("cpu_speed", 2))
    rows = [(name, *(f"{row[key]:.{n}f}" for key, n in keys)) for name, row in report["loaders"].items()]
    lines += table(rows, ("loader", "ms", "CPU ms", "speed", "by CPU time"))
    if "decoded" in report["loaders"].get("dali", {}):
        lines.append(f"DALI decodes images of {report['loaders']['dali']['decoded']} of {report['samples']} samples")
    if device:
        lines.append(
            "the batches of the first line were still encoded; DALI in this process, "
            f"{device['threads']} threads: {device['samples_per_s']:.1f} samples/s on the device"
        )
    return lines


def _open(job: Job, plan: LoaderPlan, batches: int) -> Any:
    options: Any = {"dropout_masks": job.dropout_masks, "num_workers": plan.workers, "loader": plan.stream_loader}
    return open_training(job.train_set, 0, job.batch_plan.batch, 0, batches, **options)


def _count_pending(dataset: Any, samples: int) -> int:
    """Return how many of the first samples of a run have images that DALI decodes."""
    count = 0
    for position, rng in enumerate(order.generators(0, "augment", range(samples))):
        with suppress(BadSample):
            sample = dataset.plan(order.locate(0, len(dataset), position)[1], rng)
            count += any(isinstance(value, Pending) for value in sample.values())
    return count


def _take(batches: Iterator[Any], count: int) -> None:
    for _ in range(count):
        next(batches)


def _measure_stream(job: Job, count: int, plan: LoaderPlan) -> Report:
    dataset, batch = job.train_set, job.batch_plan.batch
    in_flight = max(plan.workers, 1) * batches_per_worker(dataset.settings.threads)  # partly read at start and end
    start = time.perf_counter()
    stream = _open(job, plan, in_flight + count + in_flight)
    next(stream)
    first = time.perf_counter() - start
    _take(stream, in_flight - 1)
    seconds = timed(partial(_take, stream, count), cpu_clock=family_cpu_seconds)
    stream.close()
    return {
        "samples_per_s": count * batch / seconds.wall,
        "cpu_ms": seconds.cpu / (count * batch) * 1e3,
        "first_batch_s": first,
        "batches": count,
        "batch": batch,
        "batch_bytes": batch_bytes(dataset.fields, batch),
        "workers": stream.workers,
        "threads": stream.threads,
    }


def _measure_stages(job: Job, samples: int, loader: str) -> Report:
    """Return milliseconds per sample of each stage of reading."""

    def read(count: int, clock: Callable[[], float]) -> Report:
        with measure_stages(clock) as seconds:
            for rows in _read_batches(job, count, loader):
                with stage(COLLATE):
                    collate(rows, len(rows))
        return {name: value / samples * 1e3 for name, value in seconds.items()}

    read(1, time.perf_counter)  # imports decoders
    return {name: read(samples, clock) for name, clock in (("ms", time.perf_counter), ("cpu_ms", time.process_time))}


def _read_batches(job: Job, samples: int, loader: str) -> Iterator[list[dict[str, Any]]]:
    batch = job.batch_plan.batch
    for start in range(0, samples, batch):
        yield training_samples(job.train_set, 0, range(start, min(start + batch, samples)), loader)[0]


def _measure_in_turn(job: Job, samples: int, loader: str) -> Report:
    """Time the loaders that are installed and the bare loop, if there is one of this data set."""

    def read_all(name: str) -> None:
        for _ in _read_batches(job, samples, name):
            pass

    def call_all(read: Callable[[int], object], indices: Sequence[int]) -> None:
        for index in indices:
            read(index)

    loops = {name: partial(read_all, name) for name in ("reference", "dali") if loaders.is_installed(name)}
    read = bare_loops.reader(job.train_set)
    if read:
        indices = [order.locate(0, len(job.train_set), position)[1] for position in range(samples)]
        loops[BARE] = partial(call_all, read, indices)
    report: Report = {}
    times = interleave(loops, PASSES, warm_up=1)
    for name, calls in times.items():
        speed = median_ratio(times[loader], calls)
        ms, cpu_ms = (statistics.median(values) / samples * 1e3 for values in zip(*calls))
        report[name] = {"ms": ms, "cpu_ms": cpu_ms, "speed": speed.wall, "cpu_speed": speed.cpu}
    if "dali" in report:
        report["dali"]["decoded"] = _count_pending(job.train_set, samples)
    return report


def measure_device(job: Job, count: int, plan: LoaderPlan) -> Report:
    """Time the stream up to images that DALI has decoded on the device; count: batches per pass."""
    dataset, batch, threads = job.train_set, job.batch_plan.batch, pipeline.dali_threads(plan.cores)
    in_flight = max(plan.workers, 1) * batches_per_worker(dataset.settings.threads) + AT_A_TIME + 1  # at a pass's start
    stream = _open(job, plan, DEVICE_PASSES * (in_flight + count) + in_flight)
    decoder = open_decoder(job.world, plan)
    decoding = Decoding(decoder, stream.batches) if decoder else None
    decoded = Prefetcher(stream, lambda batch, images: (batch, images), 1, decoding)
    walls = []
    for _ in range(DEVICE_PASSES):
        _take(decoded, in_flight)
        walls.append(timed(partial(_take, decoded, count)).wall)
    decoded.close()
    return {"threads": threads, "samples_per_s": batch * count / statistics.median(walls)}
