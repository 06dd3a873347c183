"""Throughput and cost of the input pipeline alone."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import psutil

from data import order
from data.batch import batch_bytes, collate
from data.readers import batches_per_worker
from data.stages import COLLATE, STAGES, Seconds, measure, stage
from data.stream import open_training, training_samples
from data.worker_count import Cost
from tools.bare import loading as bare_loops
from zoo.run import loading
from zoo.run.job import Job

MIN_SAMPLES = 20  # read by one thread alone
PASSES = 5  # over those samples, ours and the bare loop's in turn

Report = dict[str, Any]


def measure_data(job: Job, count: int) -> Report:
    """Time the stream as training opens it, then single samples in this thread by stage.

    Args:
        job: data set and batch size.
        count: batches to read.

    Returns:
        What was measured, of types that JSON can represent: seconds, samples per second, and milliseconds per sample.
    """
    plan = loading.plan(job)
    samples = min(len(job.train_set), max(count, MIN_SAMPLES))
    return {
        "dataset": type(job.train_set).__module__,
        "samples": samples,
        "note": plan.note,
        "stream": _measure_stream(job, count, plan.workers),
        "one_thread": _measure_one_thread(job, samples),
        "bare": _measure_bare(job, samples),
    }


def describe(report: Report) -> list[str]:
    """Return the lines of a report."""
    stream, one, bare = report["stream"], report["one_thread"], report["bare"]
    lines = [report["note"]] if report["note"] else []
    lines += [
        f"{stream['samples_per_s']:.1f} samples/s with {stream['workers']} workers x {stream['threads']} threads "
        f"({stream['batches']} batches of {stream['batch']}, {stream['batch_bytes'] / 2**20:.1f} MB each; the first "
        f"after {stream['first_batch_s']:.1f} s); {stream['cpu_ms']:.3f} ms of CPU time per sample in all processes",
        f"one thread alone: {1e3 / sum(one['ms'].values()):.1f} samples/s; milliseconds per sample (CPU time):",
        *(f"  {stage:<10}{one['ms'][stage]:10.3f} ({one['cpu_ms'][stage]:.3f})" for stage in STAGES),
        f"  {'all':<10}{sum(one['ms'].values()):10.3f} ({sum(one['cpu_ms'].values()):.3f})",
    ]
    if bare:
        lines.append(
            f"bare loop of the library: {bare['ms']:.3f} ({bare['cpu_ms']:.3f}); this loader has {bare['speed']:.2f} "
            f"of its speed ({bare['cpu_speed']:.2f} by CPU time), median of {PASSES} passes in turn"
        )
    return lines


def _measure_stream(job: Job, count: int, workers: int) -> Report:
    dataset, batch = job.train_set, job.batch_plan.batch
    threads = dataset.settings.threads
    in_flight = max(workers, 1) * batches_per_worker(threads)  # partly read, at the start as well as at the end
    last = in_flight + count + in_flight
    start = time.perf_counter()
    stream = open_training(dataset, 0, batch, 0, last, dropout_masks=job.dropout_masks, num_workers=workers)
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


def _measure_one_thread(job: Job, samples: int) -> Report:
    _read_stages(job, 1, time.perf_counter)  # imports decoders
    return {
        name: {stage: seconds / samples * 1e3 for stage, seconds in _read_stages(job, samples, clock).items()}
        for name, clock in (("ms", time.perf_counter), ("cpu_ms", time.process_time))
    }


def _read_stages(job: Job, samples: int, clock: Callable[[], float]) -> Seconds:
    with measure(clock) as seconds:
        rows, _ = training_samples(job.train_set, 0, range(samples), "reference")
        with stage(COLLATE):
            collate(rows, len(rows))
    return seconds


def _measure_bare(job: Job, samples: int) -> Report | None:
    """Time this loader and the bare loop in turn; None if there is no bare loop of this data set."""
    read = bare_loops.reader(job.train_set)
    if read is None:
        return None

    indices = [order.locate(0, len(job.train_set), position)[1] for position in range(samples)]

    def read_ours() -> None:
        training_samples(job.train_set, 0, range(samples), "reference")

    def read_bare() -> None:
        for index in indices:
            read(index)

    times = [(_time(read_ours), _time(read_bare)) for _ in range(PASSES)]
    return {
        "ms": statistics.median(bare.wall for _, bare in times) / samples * 1e3,
        "cpu_ms": statistics.median(bare.cpu for _, bare in times) / samples * 1e3,
        "speed": statistics.median(bare.wall / ours.wall for ours, bare in times),
        "cpu_speed": statistics.median(bare.cpu / ours.cpu for ours, bare in times),
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
