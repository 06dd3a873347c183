"""Sources of predictions in batches: read ahead in chunks, computed in chunks, in the order of the sources."""

import itertools
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from zoo.data.errors import BadSample, UserError
from zoo.data.readers import DeadWorker, Readers
from zoo.predict.results import Sample, Source, TrainedModel

AUTO_SAMPLES, AUTO_PIXELS = 64, 1 << 21  # of a batch at most; a single sample may have more pixels
READING_THREADS = 2  # per process


@dataclass(frozen=True)
class Options:
    """Options of reading and computing sources.

    Attributes:
        batch: samples that are computed at once; None for AUTO_SAMPLES, and fewer where they exceed AUTO_PIXELS.
        workers: processes that read; 0 for threads of this process.
    """

    batch: int | None = None
    workers: int = 0

    @classmethod
    def parse(cls, batch: int | str, workers: int, prefix: str = "") -> "Options":
        """Check what a user gives. prefix: of the names in messages. Raises UserError."""
        if batch != "auto" and not (str(batch).isdecimal() and int(batch) > 0):
            raise UserError(f"{prefix}batch: expected auto or a number of samples, at least 1, got {batch!r}")
        if not isinstance(workers, int) or not 0 <= workers <= 256:
            raise UserError(f"{prefix}workers: expected a number of processes from 0 to 256, got {workers!r}")
        return cls(None if batch == "auto" else int(batch), workers)


def predict(
    predictor: Any,
    model: TrainedModel,
    sources: Sequence[Source | BadSample],
    options: Options,
    finish: Callable[[int, Sample, Any], Any] | None = None,
    first: int = 0,
    features: bool = False,
) -> Generator[Any, None, None]:
    """Yield the plain result of every source, or the BadSample that was raised on the way, in order.

    Args:
        sources: an error stands for one that is not there.
        finish: (number of the source, sample, output) -> what is yielded in place of the plain result.
        features: compute feature maps in place of predictions.
    """
    settings, size, limit = model.cfg.data, options.batch, math.inf
    if size is None:
        pixels = math.prod(predictor.fields(settings)[0].shape) // 3
        size, limit = max(1, min(AUTO_SAMPLES, AUTO_PIXELS // pixels)), AUTO_PIXELS
    read = partial(_read_chunk, partial(predictor.read, settings, model.cfg.seed), sources, size, first)
    readers, index = Readers(read, options.workers, READING_THREADS), first
    try:
        for chunk in readers.read(0, -(-(len(sources) - first) // size)):
            batches = _batches([each for each in chunk if isinstance(each, Sample)], limit)
            outputs = itertools.chain.from_iterable(forward(model, features, batch) for batch in batches)
            for each in chunk:
                try:
                    if isinstance(each, BadSample):
                        yield each
                    elif finish:
                        yield finish(index, each, next(outputs))
                    else:
                        yield predictor.result(model, sources[index], each, next(outputs))
                except BadSample as error:
                    yield error
                index += 1
    except DeadWorker as error:
        raise UserError(f"a reading process {error.cause}; try --workers 0") from None
    finally:
        readers.close()


def _read_chunk(
    read: Callable[[Source, int], Sample], sources: Sequence[Source | BadSample], size: int, first: int, number: int
) -> list[Sample | BadSample]:
    chunk: list[Sample | BadSample] = []
    for index in range(first + number * size, min(first + (number + 1) * size, len(sources))):
        source = sources[index]
        try:
            chunk.append(source if isinstance(source, BadSample) else read(source, index))
        except BadSample as error:
            chunk.append(error)
    return chunk


def _batches(samples: Sequence[Sample], max_pixels: float) -> Iterator[list[Sample]]:
    """Yield consecutive samples whose inputs have the same shapes."""
    for shapes, group in itertools.groupby(samples, lambda sample: sample.shapes):
        same = list(group)
        pixels = sum(math.prod(shape) // 3 for shape in shapes[1:])
        size = len(same) if pixels * len(same) <= max_pixels else max(1, int(max_pixels // pixels))
        yield from (same[start : start + size] for start in range(0, len(same), size))


def forward(model: TrainedModel, features: bool, samples: Sequence[Sample]) -> Sequence[Any]:
    """Compute samples whose inputs have the same shapes at once.

    Returns:
        The model's predictions of the views of each sample, or its feature maps (views * frames, C, h, w); None of a
        sample without an input.
    """
    if not samples[0].batch:
        return [None] * len(samples)
    stacked = {name: np.concatenate([sample.batch[name] for sample in samples]) for name in samples[0].batch}
    batch = model.trainer.to_device(stacked)
    found = model.trainer.features(batch) if features else model.trainer.predict(batch, samples[0].size)
    return list(found.reshape(len(samples), -1, *found.shape[1:]))
