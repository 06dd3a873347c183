"""Batches between the stream and the trainer: decoded on the device where the stream leaves that to it."""

import itertools
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from data.batch import Batch
from data.loaders.dali import failure_message
from data.loaders.dali_device import DeviceDecoder, DeviceImages
from data.loaders.dali_graph import Failure
from data.stream import LoadedBatch, ReadBatch, UnreadableSample, evaluation_reader, training_reader
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


Decode = Callable[[LoadedBatch], Decoded]


def keep(loaded: LoadedBatch) -> Decoded:
    """Return a batch whose images have been decoded where it was read."""
    return Decoded(loaded[0], NO_IMAGES, loaded[1])


class DeviceDecoding:
    """Decoding of the batches of a stream, all in their order."""

    def __init__(self, decoder: DeviceDecoder, read_by_reference: ReadBatch, first: int = 0):
        """Count from the first batch.

        Args:
            decoder: of the device.
            read_by_reference: reads a batch that DALI cannot decode, by its number.
            first: number of the stream's first batch.
        """
        self._decoder, self._read, self._numbers = decoder, read_by_reference, itertools.count(first)

    def __call__(self, loaded: LoadedBatch) -> Decoded:
        number = next(self._numbers)
        try:
            batch, images = self._decoder.decode(loaded[0])
        except Failure as error:
            warnings.warn(failure_message(error), stacklevel=1)
            return keep(self._read(number, np.empty))
        return Decoded(batch, images, loaded[1])


class Decoders:
    """Decoding of a run's streams."""

    def __init__(self, job: Job, on_device: bool, threads: int, seed: int, eval_batch: int):
        """Start nothing yet.

        Args:
            job: the run's data and device.
            on_device: whether DALI decodes on the device, of which it has one set of pipelines.
            threads: of DALI.
            seed: of the run.
            eval_batch: samples per batch of an evaluation.
        """
        self._job, self._seed, self._eval_batch = job, seed, eval_batch
        self._decoder = DeviceDecoder(job.world.cuda_index, threads) if on_device else None

    def training(self, first: int) -> Decode:
        """Return the decoding of the training batches from number `first` on."""
        if self._decoder is None:
            return keep
        job = self._job
        sizes = (job.batch_plan.batch, job.group.rank, job.group.size)
        read = training_reader(job.train_set, self._seed, *sizes, job.dropout_masks, "reference")
        return DeviceDecoding(self._decoder, read, first)

    def evaluation(self) -> Decode:
        """Return the decoding of the batches of one evaluation."""
        if self._decoder is None:
            return keep
        job = self._job
        sizes = (self._eval_batch, job.group.rank, job.group.size)
        return DeviceDecoding(self._decoder, evaluation_reader(job.val_set, self._seed, *sizes, "reference"))
