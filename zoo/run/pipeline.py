"""Batches between the stream and the trainer: decoded where the stream leaves that to the device, and copied ahead."""

import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

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
from zoo.trainer.protocol import NO_IMAGES, DeviceBatch, Trainer

SPARE = 3  # micro-batches read ahead beside those of the next update: as many may be late without a stop
JOIN_TIMEOUT = 30.0  # seconds that `close` waits for the item in progress
POLL_INTERVAL = 0.2  # seconds


Item = TypeVar("Item")
Result = TypeVar("Result")


class Prefetcher:
    """Micro-batches on the device, read and copied there by a thread of their own.

    Reading and copying overlap with the launch of a step as well as with its computation: the loop waits only when the
    next micro-batch is not there.

    Attributes:
        data_wait: seconds that `take` has waited for the input pipeline so far, the first update excluded.
    """

    def __init__(self, stream: BatchStream, trainer: Trainer, accumulate: int = 1, decode: "Decode | None" = None):
        """Load the first update's micro-batches.

        Args:
            stream: batches of this rank in order, with the samples that could not be read.
            trainer: copies the batches to its device.
            accumulate: micro-batches per update.
            decode: decodes the images of the stream that are still encoded.
        """
        self.data_wait = 0.0
        self._accumulate = accumulate
        self._unreadable: list[UnreadableSample] = []

        def copy(decoded: Decoded) -> tuple[DeviceBatch, list[UnreadableSample]]:
            return trainer.to_device(decoded.batch, decoded.images), decoded.unreadable

        self._decoded = (decode or ReadyStream)(stream)
        self._copies = BackgroundMap(copy, self._decoded, self._decoded.close, accumulate + SPARE)
        self._next: list[tuple[DeviceBatch, list[UnreadableSample]]] | None = self._fetch()

    @property
    def copying(self) -> float:
        """Seconds that the thread has spent in copying batches to the device and waiting for decoding there, so far."""
        return self._copies.busy + self._decoded.waiting

    @property
    def failure(self) -> UserError | None:
        """The error that `take` will raise, after what has been read before it; None as far as is known."""
        error = self._copies.error
        return error if isinstance(error, UserError) else None

    def take(self) -> list[DeviceBatch]:
        """Return the micro-batches of the next update, fewer at the end of the stream.

        Raises:
            StopIteration: the stream has ended.
            UserError: a batch cannot be read.
        """
        loaded, self._next = self._next, None
        if loaded is None:
            start = time.perf_counter()
            loaded = self._fetch()
            self.data_wait += time.perf_counter() - start
        if not loaded:
            raise StopIteration
        for _, unreadable in loaded:
            self._unreadable += unreadable
        return [device_batch for device_batch, _ in loaded]

    def pop_unreadable(self) -> list[UnreadableSample]:
        """Return the samples that could not be read, of the batches taken since the last call."""
        unreadable, self._unreadable = self._unreadable, []
        return unreadable

    def close(self) -> None:
        """End the thread and the stream."""
        self._copies.close()

    def _fetch(self) -> list[tuple[DeviceBatch, list[UnreadableSample]]]:
        return list(islice(self._copies, self._accumulate))


class BackgroundMap(Iterator[Result], Generic[Item, Result]):
    """function(item) for every item of an iterator, in order, computed by one thread.

    An error of the iterator or the function is raised where its result would be returned. A daemon thread does not keep
    the process alive; `close` ends it in order.

    Attributes:
        busy: seconds that the thread has spent in the function so far.
        error: what has ended the thread, also before it is raised; None as long as it goes on, and at the proper end.
    """

    def __init__(
        self, function: Callable[[Item], Result], items: Iterator[Item], close_items: Callable[[], None], ahead: int
    ):
        """Start the thread.

        Args:
            function: called by the thread, as are the other two.
            items: the iterator.
            close_items: called at the end, whatever the cause.
            ahead: results that may be ready or in progress, beside the one that the consumer has.
        """
        self.busy = 0.0
        self.error: BaseException | None = None
        self._ready: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._room, self._stop = threading.Semaphore(ahead), threading.Event()
        self._next: tuple[Any, BaseException | None] | None = None
        self._end: BaseException | None = None
        arguments = (function, items, close_items)
        self._thread = threading.Thread(target=self._run, args=arguments, name="prefetch", daemon=True)
        self._thread.start()

    def wait(self, gives_up: Callable[[], bool]) -> bool:
        """Wait for the next result, or for `gives_up`, which is asked from time to time; return whether it is there."""
        while self._end is None and self._next is None:
            try:
                self._next = self._ready.get(timeout=POLL_INTERVAL)
            except queue.Empty:
                if gives_up():
                    return False
        return True

    def __next__(self) -> Result:
        if self._end is None:
            result, self._end = self._next or self._ready.get()
            self._next = None
            self._room.release()
        if self._end is not None:
            raise self._end
        return result

    def close(self, timeout: float = JOIN_TIMEOUT) -> None:
        """Stop the thread after the item in progress, and close the iterator. Returns after the timeout at most.

        Later calls do not wait again.
        """
        if self._stop.is_set():
            return
        self._stop.set()
        self._room.release()
        self._thread.join(timeout)
        self._end = self._end or StopIteration()

    def _run(self, function: Callable[[Item], Result], items: Iterator[Item], close_items: Callable[[], None]) -> None:
        end: BaseException = StopIteration()
        try:
            try:
                self._put_results(function, items)
            finally:
                close_items()
        except BaseException as error:
            self.error = end = error
        self._ready.put((None, end))

    def _put_results(self, function: Callable[[Item], Result], items: Iterator[Item]) -> None:
        while True:
            self._room.acquire()  # before the next item is read, because batches are large
            if self._stop.is_set():
                return
            try:
                item = next(items)
            except StopIteration:
                return
            start = time.perf_counter()
            result = function(item)
            self.busy += time.perf_counter() - start
            self._ready.put((result, None))
            del item, result  # the thread keeps no batch alive while it waits


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
