"""Batches between the stream and the trainer: decoded on the device where the stream leaves that to it."""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol

import numpy as np

from zoo.data.batch import Batch
from zoo.data.errors import UserError
from zoo.data.loaders.dali_device import AT_A_TIME, DeviceDecoder, DeviceImages
from zoo.data.loaders.dali_graph import Failure
from zoo.data.stream import (
    BatchStream,
    Dataset,
    LoadedBatch,
    ReadBatch,
    UnreadableSample,
    evaluation_reader,
    training_reader,
)
from zoo.run.job import Job
from zoo.trainer.protocol import NO_IMAGES


class Decoded(NamedTuple):
    """A batch without encoded images.

    Attributes:
        batch: arrays on the host.
        images: arrays of images on the device, by the names that `batch` lacks.
        unreadable: samples that could not be read.
    """

    batch: Batch
    images: Mapping[str, DeviceImages]
    unreadable: list[UnreadableSample]


class DecodedStream(Protocol):
    """Batches of a stream, in order.

    Attributes:
        waiting: seconds that the consumer has waited so far for decoding on the device.
    """

    @property
    def waiting(self) -> float: ...
    def __iter__(self) -> Iterator[Decoded]: ...
    def __next__(self) -> Decoded: ...
    def close(self) -> None: ...


Decode = Callable[[BatchStream], DecodedStream]


class ReadyStream(Iterator[Decoded]):
    """Batches whose images have been decoded where they were read."""

    waiting = 0.0

    def __init__(self, stream: BatchStream):
        self._stream = stream

    def __next__(self) -> Decoded:
        batch, unreadable = next(self._stream)
        return Decoded(batch, NO_IMAGES, unreadable)

    def close(self) -> None:
        self._stream.close()


class DeviceStream(Iterator[Decoded]):
    """Batches that threads decode on the device, AT_A_TIME of them ahead of the consumer."""

    def __init__(self, stream: BatchStream, decoder: DeviceDecoder, read_decodable: ReadBatch, first: int = 0):
        """Start no decoding yet.

        Args:
            stream: batches that are packed.
            decoder: of the device.
            read_decodable: reads a batch by its number, without images that DALI cannot decode.
            first: number of the stream's first batch.
        """
        self.waiting = 0.0
        self._stream, self._decoder, self._read = stream, decoder, read_decodable
        self._numbers = itertools.count(first)
        self._threads = ThreadPoolExecutor(AT_A_TIME, "decode")
        self._ahead: deque[Future[Decoded]] = deque()
        self._end: BaseException | None = None

    def __next__(self) -> Decoded:
        while self._end is None and len(self._ahead) < AT_A_TIME:
            try:
                loaded = next(self._stream)
            except BaseException as error:  # which comes after the batches before it
                self._end = error
                break
            self._ahead.append(self._threads.submit(self._decode, next(self._numbers), loaded))
        if self._end and not self._ahead:
            raise self._end
        start = time.perf_counter()
        decoded = self._ahead.popleft().result()
        self.waiting += time.perf_counter() - start
        return decoded

    def close(self) -> None:
        """End the threads after the batches in progress, and the stream."""
        self._threads.shutdown(cancel_futures=True)
        self._stream.close()

    def _decode(self, number: int, loaded: LoadedBatch) -> Decoded:
        try:
            batch, images = self._decoder.decode(loaded[0])
            return Decoded(batch, images, loaded[1])
        except Failure:
            loaded = self._read(number, np.empty)
        try:
            batch, images = self._decoder.decode(loaded[0])
        except Failure as error:
            raise UserError(
                f"DALI decodes the images of a batch one by one, but not all at once ({error}); if memory is short, "
                "lower train.batch, or decode on the CPU with -o data.dali_device=cpu"
            ) from None
        return Decoded(batch, images, loaded[1])


class Decoders:
    """Decoding of a run's streams."""

    def __init__(self, job: Job, on_device: bool, threads: int, seed: int, eval_batch: int):
        """Start nothing yet.

        Args:
            job: the run's data and device.
            on_device: whether DALI decodes on the device.
            threads: of a pipeline.
            seed: of the run.
            eval_batch: samples per batch of an evaluation.
        """
        self._job, self._seed, self._eval_batch = job, seed, eval_batch
        self._decoder = DeviceDecoder(job.world.cuda_index, threads) if on_device else None

    def training(self, first: int) -> Decode:
        """Return the decoding of a training stream that begins with batch number `first`."""
        job, decoder = self._job, self._decoder
        if decoder is None:
            return ReadyStream
        sizes = (job.batch_plan.batch, job.group.rank, job.group.size)
        read = training_reader(job.train_set, self._seed, *sizes, job.dropout_masks, decoder.check)
        return lambda stream: DeviceStream(stream, decoder, read, first)

    def evaluation(self, dataset: Dataset) -> Decode:
        """Return the decoding of the stream of an evaluation of a split."""
        job, decoder = self._job, self._decoder
        if decoder is None:
            return ReadyStream
        sizes = (self._eval_batch, job.group.rank, job.group.size)
        read = evaluation_reader(dataset, self._seed, *sizes, decoder.check)
        return lambda stream: DeviceStream(stream, decoder, read)
