"""Throughput of the input pipeline where DALI decodes in the training process, against a minimal DALI pipeline."""

import statistics
import time
from collections.abc import Callable
from typing import Any

from zoo.bench.bare import dali as bare_loops
from zoo.data.loaders.dali_device import AT_A_TIME
from zoo.data.readers import batches_per_worker
from zoo.data.stream import open_training
from zoo.run.decoding import Decoders
from zoo.run.job import Job
from zoo.run.loading import Loading, dali_threads

PASSES = 3  # of the stream and of the minimal pipeline in turn
WARM_UP = 5  # batches of the minimal pipeline, which it may have read before

Report = dict[str, Any]


def measure_device(job: Job, count: int, plan: Loading) -> Report:
    """Time the stream up to images on the device, then the minimal pipeline, and so on.

    Args:
        job: data set, batch size and device.
        count: batches per pass.
        plan: reader processes; DALI decodes in this process.

    Returns:
        Samples per second of both, and the share of the minimal pipeline's that the stream reaches; None for what needs
        a minimal pipeline if there is none of this data set.
    """
    dataset, batch, threads = job.train_set, job.batch_plan.batch, dali_threads(plan.cores)
    # Read or decoded before a pass begins.
    in_flight = max(plan.workers, 1) * batches_per_worker(dataset.settings.threads) + AT_A_TIME
    stream = open_training(
        dataset,
        0,
        batch,
        0,
        PASSES * (in_flight + count) + in_flight,
        dropout_masks=job.dropout_masks,
        num_workers=plan.workers,
        loader=plan.stream_loader,
    )
    decoded = Decoders(job, True, threads, 0, batch).training(0)(stream)
    read = bare_loops.reader(dataset, batch, threads, job.world.cuda_index)
    ours, bare = [], []
    for _ in range(PASSES):
        ours.append(_seconds(lambda: next(decoded), in_flight, count))
        if read:
            bare.append(_seconds(read, WARM_UP, count))
    decoded.close()
    samples = batch * count
    return {
        "threads": threads,
        "samples_per_s": samples / statistics.median(ours),
        "bare_samples_per_s": samples / statistics.median(bare) if bare else None,
        "speed": statistics.median(b / a for a, b in zip(ours, bare)) if bare else None,
    }


def describe_device(report: Report) -> str:
    """Return the line of a report."""
    line = f"DALI in this process, {report['threads']} threads: {report['samples_per_s']:.1f} samples/s on the device"
    if report["speed"] is None:
        return f"{line}; there is no minimal DALI pipeline of this data set"
    return (
        f"{line}; a minimal DALI pipeline {report['bare_samples_per_s']:.1f}; this loader has {report['speed']:.2f} of "
        f"its speed, median of {PASSES} passes in turn"
    )


def _seconds(read: Callable[[], object], unmeasured: int, count: int) -> float:
    """Return the seconds that reading `count` batches takes, after some others."""
    for _ in range(unmeasured):
        read()
    start = time.perf_counter()
    for _ in range(count):
        read()
    return time.perf_counter() - start
