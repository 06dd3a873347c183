"""Throughput and cost of the input pipeline alone."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import psutil

from zoo.bench.bare import loading as bare_loops
from zoo.bench.timing.device import describe_device, measure_device
from zoo.data import loaders, order
from zoo.data.batch import batch_bytes, collate
from zoo.data.loaders import choice
from zoo.data.readers import batches_per_worker
from zoo.data.stages import COLLATE, STAGES, Seconds, measure, stage
from zoo.data.stream import open_training, training_samples
from zoo.data.worker_count import Cost
from zoo.run import loading
from zoo.run.job import Job
from zoo.run.loading import Loading

MIN_SAMPLES = 20  # read by one thread alone, or else a batch: what is done once per batch counts as in training
PASSES = 5  # over those samples, those of the loaders and of the bare loop in turn
LOADERS = ("reference", "dali")

Report = dict[str, Any]


def measure_data(job: Job, count: int) -> Report:
    """Time the stream as training opens it, then single samples in this thread by stage.

    Args:
        job: data set and batch size.
        count: batches to read.

    Returns:
        What was measured, of types that JSON can represent: seconds, samples per second, and milliseconds per sample.
    """
    plan = loading.plan(job, 0)
    samples = min(len(job.train_set), max(count, MIN_SAMPLES, job.batch_plan.batch))
    return {
        "dataset": type(job.train_set).__module__,
        "samples": samples,
        "loader": plan.loader,
        "notes": list(plan.notes),
        "stream": _measure_stream(job, count, plan),
        "one_thread": _measure_one_thread(job, samples, plan.loader),
        **_measure_in_turn(job, samples, plan.loader),
        "device": measure_device(job, count, plan) if plan.on_device else None,
    }


def describe(report: Report) -> list[str]:
    """Return the lines of a report."""
    stream, one, dali, bare = report["stream"], report["one_thread"], report["dali"], report["bare"]
    lines = [
        *report["notes"],
        f"{stream['samples_per_s']:.1f} samples/s with {stream['workers']} workers x {stream['threads']} threads "
        f"({stream['batches']} batches of {stream['batch']}, {stream['batch_bytes'] / 2**20:.1f} MB each; the first "
        f"after {stream['first_batch_s']:.1f} s); {stream['cpu_ms']:.3f} ms of CPU time per sample in all processes",
        f"one thread alone: {1e3 / sum(one['ms'].values()):.1f} samples/s; milliseconds per sample (CPU time):",
        *(f"  {stage:<10}{one['ms'][stage]:10.3f} ({one['cpu_ms'][stage]:.3f})" for stage in STAGES),
        f"  {'all':<10}{sum(one['ms'].values()):10.3f} ({sum(one['cpu_ms'].values()):.3f})",
    ]
    if bare:
        lines.append(
            f"bare loop of the library: {bare['ms']:.3f} ({bare['cpu_ms']:.3f}); this loader ({report['loader']}) has "
            f"{bare['speed']:.2f} of its speed ({bare['cpu_speed']:.2f} by CPU time), median of {PASSES} passes in turn"
        )
    if dali:
        reference = report["reference"]
        lines.append(
            f"DALI: {dali['ms']:.3f} ({dali['cpu_ms']:.3f}), the reference loader {reference['ms']:.3f} "
            f"({reference['cpu_ms']:.3f}) in the same passes; DALI has {dali['speed']:.2f} of its speed "
            f"({dali['cpu_speed']:.2f} by CPU time) and decodes images of {dali['decoded']} of {report['samples']} "
            "samples"
        )
    if report["device"]:
        lines.append(f"the batches of the first line were still encoded; {describe_device(report['device'])}")
    return lines


def _measure_stream(job: Job, count: int, plan: Loading) -> Report:
    dataset, batch = job.train_set, job.batch_plan.batch
    threads = dataset.settings.threads
    in_flight = max(plan.workers, 1) * batches_per_worker(threads)  # partly read, at the start as well as at the end
    last = in_flight + count + in_flight
    start = time.perf_counter()
    stream = open_training(
        dataset,
        0,
        batch,
        0,
        last,
        dropout_masks=job.dropout_masks,
        num_workers=plan.workers,
        loader=plan.stream_loader,
    )
    next(stream)
    first = time.perf_counter() - start
    for _ in range(in_flight - 1):
        next(stream)
    start, cpu_start = time.perf_counter(), _cpu_seconds()
    for _ in range(count):
        next(stream)
    seconds, cpu_seconds = time.perf_counter() - start, _cpu_seconds() - cpu_start
    stream.close()
    return {
        "samples_per_s": count * batch / seconds,
        "cpu_ms": cpu_seconds / (count * batch) * 1e3,
        "first_batch_s": first,
        "batches": count,
        "batch": batch,
        "batch_bytes": batch_bytes(dataset.fields, batch),
        "workers": stream.workers,
        "threads": stream.threads,
    }


def _measure_one_thread(job: Job, samples: int, loader: str) -> Report:
    _read_stages(job, 1, loader, time.perf_counter)  # imports decoders
    return {
        name: {stage: seconds / samples * 1e3 for stage, seconds in _read_stages(job, samples, loader, clock).items()}
        for name, clock in (("ms", time.perf_counter), ("cpu_ms", time.process_time))
    }


def _read_stages(job: Job, samples: int, loader: str, clock: Callable[[], float]) -> Seconds:
    with measure(clock) as seconds:
        for rows in _read_batches(job, samples, loader):
            with stage(COLLATE):
                collate(rows, len(rows))
    return seconds


def _read_batches(job: Job, samples: int, loader: str) -> Iterator[list[dict[str, Any]]]:
    batch = job.batch_plan.batch
    for start in range(0, samples, batch):
        yield training_samples(job.train_set, 0, range(start, min(start + batch, samples)), loader)[0]


def _measure_in_turn(job: Job, samples: int, loader: str) -> Report:
    """Time the loaders that are installed and the bare loop, if there is one of this data set, in turn."""
    loops = {name: partial(_read_all, job, samples, name) for name in LOADERS if loaders.is_installed(name)}
    read = bare_loops.reader(job.train_set)
    if read:
        indices = [order.locate(0, len(job.train_set), position)[1] for position in range(samples)]
        loops["bare"] = partial(_call_all, read, indices)
    for loop in loops.values():
        loop()  # imports decoders and builds pipelines
    passes = [{name: _time(loop) for name, loop in loops.items()} for _ in range(PASSES)]
    reports: Report = {
        name: {
            "ms": statistics.median(times[name].wall for times in passes) / samples * 1e3,
            "cpu_ms": statistics.median(times[name].cpu for times in passes) / samples * 1e3,
        }
        for name in loops
    }
    if "bare" in loops:
        reports["bare"] |= _relative_speed(passes, loader, "bare")
    if "dali" in loops:
        reports["dali"] |= _relative_speed(passes, "dali", "reference")
        reports["dali"]["decoded"] = choice.count_pending(job.train_set, 0, range(samples))
    return {"bare": None, "dali": None, **reports}


def _read_all(job: Job, samples: int, loader: str) -> None:
    for _ in _read_batches(job, samples, loader):
        pass


def _call_all(read: Callable[[int], object], indices: Sequence[int]) -> None:
    for index in indices:
        read(index)


def _relative_speed(passes: Sequence[dict[str, Cost]], name: str, other: str) -> Report:
    """Return the speed of a loop relative to another one, by wall and by CPU time."""
    return {
        "speed": statistics.median(times[other].wall / times[name].wall for times in passes),
        "cpu_speed": statistics.median(times[other].cpu / times[name].cpu for times in passes),
    }


def _time(loop: Callable[[], None]) -> Cost:
    """Return the seconds that a loop takes."""
    start, cpu_start = time.perf_counter(), time.process_time()
    loop()
    return Cost(time.perf_counter() - start, time.process_time() - cpu_start)


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and its workers so far."""
    workers = psutil.Process().children(recursive=True)
    return time.process_time() + sum(times.user + times.system for times in (worker.cpu_times() for worker in workers))
