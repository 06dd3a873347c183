"""Batches on their way to the trainer: who reads them, decoded on the device where they are not yet, copied ahead."""

import dataclasses
import itertools
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from zoo.data import extras, host, loaders, mixing, order
from zoo.data.batch import Batch
from zoo.data.dataset import Pending
from zoo.data.errors import BadSample, UserError
from zoo.data.loaders import dali_graph
from zoo.data.loaders.dali_graph import AT_A_TIME, DeviceDecoder, DeviceImages, Failure
from zoo.data.stream import (
    BatchStream,
    EvaluationBatches,
    LoadedBatch,
    TrainingBatches,
    UnreadableSample,
    auto_workers,
)
from zoo.distributed.group import Group
from zoo.trainer.protocol import NO_IMAGES, DeviceBatch, Trainer
from zoo.trainer.world import World

SPARE = 3  # micro-batches read ahead beside those of the next update: as many may be late without a stop
JOIN_TIMEOUT = 30.0  # seconds that `close` waits for the item in progress
POLL_INTERVAL = 0.2  # seconds
PROBES = 4  # samples, of which DALI must be able to decode one

Item = TypeVar("Item")
Result = TypeVar("Result")


class Decoded(NamedTuple):
    """A batch without encoded images.

    Attributes:
        batch: arrays on the host.
        unreadable: samples that could not be read.
        images: arrays of images on the device, by the names that `batch` lacks.
    """

    batch: Batch
    unreadable: list[UnreadableSample]
    images: Mapping[str, DeviceImages] = NO_IMAGES


class DecodedStream(Iterator[Decoded]):
    """Batches of a stream. Those whose images are still encoded are decoded on the device, AT_A_TIME batches ahead.

    Attributes:
        waiting: seconds that the consumer has waited so far for decoding on the device.
    """

    def __init__(
        self,
        stream: BatchStream,
        decoder: DeviceDecoder | None = None,
        batches: TrainingBatches | EvaluationBatches | None = None,
        first: int = 0,
    ):
        """Start no decoding yet.

        Args:
            stream: batches in order.
            decoder: of the device; None for a stream of decoded images.
            batches: of the stream, which are read again without the images that DALI cannot decode.
            first: number of the stream's first batch.
        """
        self.waiting = 0.0
        self._stream, self._decoder, self._batches = stream, decoder, batches
        self._numbers = itertools.count(first)
        self._threads = ThreadPoolExecutor(AT_A_TIME, "decode")
        self._ahead: deque[Future[Decoded]] = deque()
        self._end: BaseException | None = None

    def __next__(self) -> Decoded:
        if self._decoder is None:
            return Decoded(*next(self._stream))
        while self._end is None and len(self._ahead) < AT_A_TIME:
            try:
                loaded = next(self._stream)
            except BaseException as error:  # which comes after the batches before it
                self._end = error
                break
            self._ahead.append(self._threads.submit(self._decode, self._decoder, next(self._numbers), loaded))
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

    def _decode(self, decoder: DeviceDecoder, number: int, loaded: LoadedBatch) -> Decoded:
        try:
            batch, images = decoder.decode(loaded[0])
            return Decoded(batch, loaded[1], images)
        except Failure:
            assert self._batches
            loaded = dataclasses.replace(self._batches, loader=decoder.check)(number)
        try:
            batch, images = decoder.decode(loaded[0])
        except Failure as error:
            raise UserError(
                f"DALI decodes the images of a batch one by one, but not all at once ({error}); if memory is short, "
                "lower train.batch, or decode on the CPU with -o data.dali_device=cpu"
            ) from None
        return Decoded(batch, loaded[1], images)


class BackgroundMap(Iterator[Result], Generic[Item, Result]):
    """function(item) for every item of an iterator, in order, computed by one thread ahead of the consumer.

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


class Prefetcher:
    """Micro-batches on the device, read and copied there by a thread of their own.

    Reading and copying overlap with the launch of a step as well as with its computation: the loop waits only when the
    next micro-batch is not there.

    Attributes:
        data_wait: seconds that `take` has waited for the input pipeline so far, the first update excluded.
    """

    def __init__(self, stream: DecodedStream, trainer: Trainer, accumulate: int = 1):
        """Load the first update's micro-batches.

        Args:
            stream: batches of this rank in order, with the samples that could not be read.
            trainer: copies the batches to its device.
            accumulate: micro-batches per update.
        """
        self.data_wait = 0.0
        self._stream, self._accumulate = stream, accumulate
        self._unreadable: list[UnreadableSample] = []

        def copy(decoded: Decoded) -> tuple[DeviceBatch, list[UnreadableSample]]:
            return trainer.to_device(decoded.batch, decoded.images), decoded.unreadable

        self._copies = BackgroundMap(copy, stream, stream.close, accumulate + SPARE)
        self._next: list[tuple[DeviceBatch, list[UnreadableSample]]] | None = self._fetch()

    @property
    def copying(self) -> float:
        """Seconds that the thread has spent in copying batches to the device and waiting for decoding there, so far."""
        return self._copies.busy + self._stream.waiting

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


class Loading(NamedTuple):
    """Reader processes of each rank, and what decodes their images.

    Attributes:
        loader: reference or dali.
        workers: number of processes per rank.
        cores: that this rank has for itself.
        notes: messages for the user about what was chosen here and not by the recipe.
        on_device: whether DALI decodes in the training process, on its GPU.
    """

    loader: str
    workers: int
    cores: float
    notes: tuple[str, ...]
    on_device: bool = False

    @property
    def stream_loader(self) -> str:
        """Loader of the streams, one of those of data/loaders."""
        return "encoded" if self.on_device else self.loader


def plan_loading(
    train_set: Any, world: World, group: Group, kept: str | None = None, deterministic: bool = False
) -> Loading:
    """Choose the loader and the number of workers, the same on every rank. A collective call.

    Args:
        train_set: the training split.
        world: the device.
        group: all ranks.
        kept: loader of the run to resume; None for a new one.
        deterministic: whether nothing may be decoded where equal pixels are not assured.

    Raises:
        UserError: the loader is not installed, or there is no GPU for it.
    """
    settings = train_set.settings
    mine = {"host": socket.gethostname(), "cores": host.cores()}
    ranks = group.all_gather(mine)
    local = [index for index, rank in enumerate(ranks) if rank["host"] == mine["host"]]
    cores = host.core_share([ranks[index]["cores"] for index in local], local.index(group.rank), host.cpu_quota())
    loader, notes = _choose_loader(train_set, world, group, kept, deterministic)
    on_device = loader == "dali" and uses_gpu(train_set, world)
    if on_device and deterministic:
        if settings.dali_device == "gpu":
            raise UserError(
                "data.dali_device: NVIDIA does not say that its GPU decoders repeat their pixels to the last bit; take "
                "cpu with train.deterministic"
            )
        on_device, notes = False, (*notes, "data.dali_device: DALI decodes on the CPU, for train.deterministic")
    if on_device:
        notes += (f"data.dali_device: DALI decodes on {world.device}, with {dali_threads(cores)} threads",)
    workers = settings.workers
    if workers == "auto":
        workers = min(group.all_gather(auto_workers(cores, settings.threads)))
        notes += (f"data.workers: auto takes {workers} with data.threads={settings.threads}, for {cores:g} core(s)",)
    return Loading(loader, workers, cores, notes, on_device)


def open_decoder(world: World, loading: Loading) -> DeviceDecoder | None:
    """Return what decodes the images that the readers leave encoded; None if they leave none."""
    return DeviceDecoder(world.cuda_index, dali_threads(loading.cores)) if loading.on_device else None


def dali_threads(cores: float) -> int:
    """Return the number of DALI's threads in a training process that has so many cores for itself."""
    return max(1, round(cores))


def uses_gpu(train_set: Any, world: World) -> bool:
    """Return whether DALI decodes on the GPU of this process. Raises UserError if it cannot.

    Samples that are mixed with others are decoded where batches are read.
    """
    setting, device = train_set.settings.dali_device, world.cuda_index
    if setting == "gpu" and device is None:
        raise UserError(
            f"data.dali_device: gpu needs a CUDA device, and this process trains on {world.device}; set "
            "-o data.dali_device=auto, with which DALI decodes on the CPU here"
        )
    if setting == "cpu" or device is None or mixing.is_on(train_set.settings):
        return False
    dali_graph.require_device(device)
    return True


def _choose_loader(
    train_set: Any, world: World, group: Group, kept: str | None, deterministic: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the loader and messages for the user. A resumed run keeps its loader, since pixels differ a little."""
    setting = train_set.settings.loader
    if setting != "auto":
        loaders.require(setting)
        return setting, ()
    if kept:
        if not loaders.is_installed(kept):
            raise UserError(
                f"data.loader: auto took {kept} when this run began, which is not installed here; "
                f"{extras.install_command('dali')}, or set -o data.loader=reference"
            )
        return kept, (f"data.loader: auto takes {kept}, as this run did before",)
    obstacle = "train.deterministic" if deterministic else _obstacle_to_dali(train_set, world)
    obstacle = next(filter(None, group.all_gather(obstacle)), None)
    loader, reason = ("reference", obstacle) if obstacle else ("dali", "which decodes on the GPU")
    return loader, (f"data.loader: auto takes {loader} ({reason})",)


def _obstacle_to_dali(train_set: Any, world: World) -> str | None:
    """Return why DALI would not decode on the GPU of this process; None if it would."""
    if not loaders.is_installed("dali"):
        return "DALI is not installed"
    if not uses_gpu(train_set, world):
        return "nothing is decoded on a GPU"
    for index, rng in enumerate(order.generators(0, "augment", range(min(PROBES, len(train_set))))):
        with suppress(BadSample):
            if any(isinstance(value, Pending) for value in train_set.plan(index, rng).values()):
                return None
    return f"DALI decodes none of the first {PROBES} samples"
