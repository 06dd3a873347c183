"""A process of a calibration: the rate of the input pipeline, and all-reduces of several sizes.

Run as a module, once per rank, with the variables of torchrun, which every framework of the zoo starts from.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator

import numpy as np

from evidence.scale.calibration import Sample
from evidence.scale.reducers import REDUCERS
from zoo.commands.options import add_recipe_arguments, request_of
from zoo.data.errors import UserError
from zoo.data.readers import batches_per_worker
from zoo.data.stream import open_training
from zoo.run import pipeline
from zoo.run.job import Job, assemble, join

PASSES = 3  # over the input, and rounds of all-reduces
BATCHES = 4  # per process and pass at least
SIZES = tuple(4**i * 1024 for i in range(8))  # bytes of the all-reduces: 1 KiB to 16 MiB
REPEATS = 5  # of an all-reduce in a round
NUMBER = 4  # bytes


def main(argv: list[str] | None = None) -> int:
    """Measure; rank 0 writes the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", help="JSON file that rank 0 writes")
    add_recipe_arguments(parser)
    arguments = parser.parse_args(argv)
    try:
        request = request_of(arguments)
        job = assemble(request, join(request, os.environ))
        result = {"device": job.world.device, "input": input_rates(job, request.config.seed), "all_reduce": sweep(job)}
        if job.group.rank == 0:
            with open(arguments.out, "x", encoding="utf-8") as file:
                json.dump(result, file)
        job.world.close()
        job.group.close()
        job.world.exit_process(0)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def input_rates(job: Job, seed: int) -> list[float]:
    """Return the samples per second that all ranks read together, of each pass. A collective call."""
    plan = pipeline.plan_loader(job.train_set, job.world, job.group)
    dataset, batch = job.train_set, job.batch_plan.batch
    in_flight = max(plan.workers, 1) * batches_per_worker(dataset.settings.threads)
    count = max(BATCHES, 2 * in_flight)
    stream = open_training(
        dataset,
        seed,
        batch,
        0,
        in_flight + PASSES * count + in_flight,
        job.group.rank,
        job.group.size,
        job.dropout_masks,
        num_workers=plan.workers,
        loader=plan.stream_loader,
    )
    _take(stream, in_flight)
    rates = []
    for _ in range(PASSES):
        job.group.all_gather(None)  # all ranks begin at once
        start = time.perf_counter()
        _take(stream, count)
        seconds = max(job.group.all_gather(time.perf_counter() - start))
        rates.append(job.group.size * count * batch / seconds)
    stream.close()
    return rates


def sweep(job: Job) -> list[Sample]:
    """Return the median seconds of all-reduces by size; of one rank, none. A collective call."""
    size = job.group.size
    if size == 1:
        return []
    reducer = REDUCERS[job.framework]
    reducers = {length: reducer(length // NUMBER, size, job.world.device) for length in SIZES}
    times: dict[int, list[float]] = {length: [] for length in SIZES}
    for number in range(PASSES + 1):  # sizes in turn: a slow moment hurts all alike
        for length, reduce in reducers.items():
            job.group.all_gather(None)
            for _ in range(REPEATS):
                start = time.perf_counter()
                reduce()
                if number:  # the first round opens connections
                    times[length].append(time.perf_counter() - start)
    return [Sample(size, length, float(np.median(values))) for length, values in times.items()]


def _take(stream: Iterator, count: int) -> None:
    for _ in range(count):
        next(stream)


if __name__ == "__main__":
    sys.exit(main())
