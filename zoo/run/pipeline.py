"""Batches on their way to the trainer: who reads them, decoded on the device where they are not yet, copied ahead."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import count, islice, starmap
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from zoo.data import extras, loaders, mixing, order
from zoo.data.batch import Batch
from zoo.data.dataset import Pending
from zoo.data.errors import BadSample, Option, UserError
from zoo.data.loaders.packed import AT_A_TIME, DeviceImages, Failure
from zoo.data.stream import (
    BatchStream,
    EvaluationBatches,
    LoadedBatch,
    TrainingBatches,
    UnreadableSample,
    auto_workers,
)
from zoo.distributed.environment import core_share
from zoo.distributed.group import Group
from zoo.trainer.protocol import NO_IMAGES
from zoo.trainer.world import World

if TYPE_CHECKING:
    from zoo.data.loaders.dali_graph import DeviceDecoder

SPARE = 3  # micro-batches read ahead beside those of the next update: as many may be late without a stop
JOIN_TIMEOUT = 30.0  # seconds that `close` waits for the item in progress
POLL_INTERVAL = 0.2  # seconds
PROBES = 4  # samples, of which DALI must be able to decode one

Value = TypeVar("Value")


class Decoded(NamedTuple):
    """A batch without encoded images.

    Attributes:
        images: arrays of images on the device, by the names that `batch` lacks.
    """

    batch: Batch
    unreadable: list[UnreadableSample]
    images: Mapping[str, DeviceImages] = NO_IMAGES


@dataclass(frozen=True)
class Decoding:
    """Decoding, on the device, of images that the readers leave encoded.

    Attributes:
        batches: of the stream, which are read again without the images that DALI cannot decode.
        first: number of the stream's first batch.
    """

    decoder: "DeviceDecoder"
    batches: TrainingBatches | EvaluationBatches
    first: int = 0

    def __call__(self, number: int, loaded: LoadedBatch) -> Decoded:
        """Return a batch with its images on the device. Raises UserError if DALI cannot decode it as a whole."""
        try:
            batch, images = self.decoder.decode(loaded[0])
            return Decoded(batch, loaded[1], images)
        except Failure:
            loaded = replace(self.batches, loader=self.decoder.check)(number)
        try:
            batch, images = self.decoder.decode(loaded[0])
        except Failure as error:
            raise UserError(
                f"DALI decodes the images of a batch one by one, but not all at once ({error}); if memory is short, "
                "lower train.batch, or decode on the CPU with ",
                Option("data.dali_device", "cpu"),
            ) from None
        return Decoded(batch, loaded[1], images)


class Prefetcher(Iterator[tuple[Value, list[UnreadableSample]]], Generic[Value]):
    """A function of the batches of a stream, such as their copy to a device, computed by a thread ahead of the loop.

    The values come in order, each with the samples of its batch that could not be read. Reading and copying overlap
    with the launch of a step as well as with its computation. Images that are still encoded are decoded on the device
    first, those of AT_A_TIME batches at once. An error is raised where its value would be returned. A daemon thread
    does not keep the process alive; `close` ends it in order.

    Attributes:
        data_wait: seconds that `take` has waited so far.
        copying: seconds that the thread has spent in the function and waiting for decoding so far.
        error: what has ended the thread, also before it is raised; None as long as it goes on, and at the proper end.
    """

    def __init__(
        self,
        stream: BatchStream,
        function: Callable[[Batch, Mapping[str, DeviceImages]], Value],
        ahead: int,
        decoding: Decoding | None = None,
    ):
        """Start the thread.

        Args:
            stream: batches in order; the thread closes it at the end, whatever the cause.
            ahead: values that may be ready or in progress, beside the one that the consumer has.
            decoding: None for a stream of decoded images.
        """
        self.data_wait = self.copying = 0.0
        self.error: BaseException | None = None
        self._stream, self._function, self._decoding = stream, function, decoding
        self._ready: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._room, self._stop = threading.Semaphore(ahead), threading.Event()
        self._next: tuple[Any, BaseException | None] | None = None
        self._end: BaseException | None = None
        self._first: list[tuple[Value, list[UnreadableSample]]] = []
        self._unreadable: list[UnreadableSample] = []
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> UserError | None:
        """The error that `take` will raise, after what has been read before it; None as far as is known."""
        return self.error if isinstance(self.error, UserError) else None

    def wait(self, gives_up: Callable[[], bool]) -> bool:
        """Wait for the next value, or for `gives_up`, which is asked from time to time; return whether it is there."""
        while self._end is None and self._next is None:
            try:
                self._next = self._ready.get(timeout=POLL_INTERVAL)
            except queue.Empty:
                if gives_up():
                    return False
        return True

    def __next__(self) -> tuple[Value, list[UnreadableSample]]:
        if self._end is None:
            result, self._end = self._next or self._ready.get()
            self._next = None
            self._room.release()
        if self._end is not None:
            raise self._end
        return result

    def preload(self, count: int) -> None:
        """Wait for the values of the first `take`, which so does not count as waiting for data."""
        self._first = list(islice(self, count))

    def take(self, count: int) -> list[Value]:
        """Return the values of the next batches, fewer at the end of the stream. Raises StopIteration."""
        loaded, self._first = self._first, []
        if not loaded:
            start = time.perf_counter()
            loaded = list(islice(self, count))
            self.data_wait += time.perf_counter() - start
        if not loaded:
            raise StopIteration
        for _, unreadable in loaded:
            self._unreadable += unreadable
        return [value for value, _ in loaded]

    def pop_unreadable(self) -> list[UnreadableSample]:
        """Return the samples that could not be read, of the batches taken since the last call."""
        unreadable, self._unreadable = self._unreadable, []
        return unreadable

    def close(self, timeout: float = JOIN_TIMEOUT) -> None:
        """Stop the thread after the batch in progress, and close the stream. Returns after the timeout at most.

        Later calls do not wait again.
        """
        if self._stop.is_set():
            return
        self._stop.set()
        self._room.release()
        self._thread.join(timeout)
        self._end = self._end or StopIteration()

    def _run(self) -> None:
        end: BaseException = StopIteration()
        try:
            try:
                with closing(self._decoded()) as batches:
                    self._put_values(batches)
            finally:
                self._stream.close()
        except BaseException as error:
            self.error = end = error
        self._ready.put((None, end))

    def _put_values(self, batches: Iterator[Decoded]) -> None:
        while True:
            self._room.acquire()  # before the next batch is read, because batches are large
            if self._stop.is_set():
                return
            try:
                decoded = next(batches)
            except StopIteration:
                return
            start = time.perf_counter()
            value = self._function(decoded.batch, decoded.images)
            self.copying += time.perf_counter() - start
            self._ready.put(((value, decoded.unreadable), None))
            del decoded, value  # the thread keeps no batch alive while it waits

    def _decoded(self) -> Generator[Decoded, None, None]:
        """Yield the batches of the stream; what ends it comes after the batches that are still decoded."""
        if self._decoding is None:
            yield from starmap(Decoded, self._stream)
            return
        ahead, numbers = deque[Future[Decoded]](), count(self._decoding.first)
        threads = ThreadPoolExecutor(AT_A_TIME, "decode")
        end: BaseException | None = None
        try:
            while True:
                while end is None and len(ahead) < AT_A_TIME:
                    try:
                        ahead.append(threads.submit(self._decoding, next(numbers), next(self._stream)))
                    except BaseException as error:
                        end = error
                if not ahead:
                    break
                yield self._result(ahead.popleft())
        finally:
            threads.shutdown(cancel_futures=True)
        if end and not isinstance(end, StopIteration):
            raise end

    def _result(self, decoded: Future[Decoded]) -> Decoded:
        start = time.perf_counter()
        try:
            return decoded.result()
        finally:
            self.copying += time.perf_counter() - start


class LoaderPlan(NamedTuple):
    """Reader processes of each rank, and what decodes their images.

    Attributes:
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
        return "encoded" if self.on_device else self.loader


def plan_loader(
    train_set: Any, world: World, group: Group, kept: str | None = None, deterministic: bool = False
) -> LoaderPlan:
    """Choose the loader and the number of workers, the same on every rank. A collective call.

    Args:
        kept: loader of the run to resume; None for a new one.
        deterministic: whether nothing may be decoded where equal pixels are not assured.
    """
    settings = train_set.settings
    cores, _ = core_share(group)
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
    return LoaderPlan(loader, workers, cores, notes, on_device)


def open_decoder(world: World, loader_plan: LoaderPlan) -> "DeviceDecoder | None":
    """Return what decodes the images that the readers leave encoded; None if they leave none."""
    if not loader_plan.on_device:
        return None
    from zoo.data.loaders.dali_graph import DeviceDecoder

    return DeviceDecoder(world.cuda_index, dali_threads(loader_plan.cores))


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
            f"data.dali_device: gpu needs a CUDA device, and this process trains on {world.device}; set ",
            Option("data.dali_device", "auto"),
            ", with which DALI decodes on the CPU here",
        )
    if setting == "cpu" or device is None or mixing.is_on(train_set.settings):
        return False
    from zoo.data.loaders.dali_graph import require_device  # which most runs do without

    require_device(device)
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
                f"{extras.install_command('dali')}, or set ",
                Option("data.loader", "reference"),
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
    try:
        if not uses_gpu(train_set, world):
            return "nothing is decoded on a GPU"
    except UserError as error:
        if train_set.settings.dali_device != "auto":
            raise
        return str(error)
    for index, rng in enumerate(order.generators(0, "augment", range(min(PROBES, len(train_set))))):
        with suppress(BadSample):
            if any(isinstance(value, Pending) for value in train_set.plan(index, rng).values()):
                return None
    return f"DALI decodes none of the first {PROBES} samples"
