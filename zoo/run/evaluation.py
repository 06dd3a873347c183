"""Evaluations of a run: metrics over whole splits, every sample counted once, whatever the batch size and the ranks."""

import math
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Any

from zoo.config.schema import Config
from zoo.data.batch import Batch
from zoo.data.dataset import Dataset, TrainingSubset
from zoo.data.errors import Option, UnreadableData
from zoo.data.loaders.packed import DeviceImages
from zoo.data.stream import BatchStream, EvaluationBatches, EvaluationReader, LoadedBatch, UnreadableSample
from zoo.distributed.group import Group
from zoo.run.job import Job
from zoo.run.pipeline import Decoding, LoaderPlan, Prefetcher
from zoo.run.stopping import EvaluationStopped, Reports, StopSignal
from zoo.tasks import TaskMetric
from zoo.trainer.protocol import DeviceBatch, Inference

if TYPE_CHECKING:
    from zoo.data.loaders.dali_graph import DeviceDecoder

BATCHES_AHEAD = 1  # on the device or on the way there, while the model predicts one
STOP_TIMEOUT = 1.0  # seconds in which a batch that is being read may arrive after a signal

Batches = Generator[LoadedBatch, None, None]
Track = Callable[[Batches, str, int], Batches]
Report = Callable[[UnreadableSample], None]
Metrics = tuple[TaskMetric, TaskMetric | None]  # of the weights and of their moving average


class Evaluations:
    """Reads and evaluates the splits again and again; every method is called by all ranks alike."""

    def __init__(
        self,
        job: Job,
        cfg: Config,
        loader_plan: LoaderPlan,
        decoder: "DeviceDecoder | None",
        track: Track,
        train_samples: int,
        stop: StopSignal,
    ):
        """Start nothing yet.

        Args:
            track: passes batches on, with their purpose and number, to count them in a bar.
            train_samples: training samples to evaluate, too; 0 for none.
        """
        self._job, self._cfg = job, cfg
        self._loader_plan, self._decoder = loader_plan, decoder
        self._track, self._stop = track, stop
        self._val = self._reader(job.val_set)
        self._subset = TrainingSubset(job.train_set, train_samples) if train_samples else None
        self._train = self._reader(self._subset) if self._subset else None

    def measure(self, metrics: Metrics, report: Report) -> dict[str, Any]:
        """Return the metrics of the validation split, `accuracy`, `seconds`, and those of training samples in `train`.

        Args:
            metrics: those of the validation split, without samples so far.
            report: called for every unreadable sample of all ranks.

        Raises:
            UnreadableData: a validation sample is unreadable and data.eval_bad is not `wrong`.
            EvaluationStopped: a rank has received a signal.
        """
        start_time = time.perf_counter()
        found = self._evaluate(self._val, self._job.val_set, metrics, "evaluating", report)
        train = {"train": self._measure_train(report)} if self._subset else {}
        counted = found.get("ema", found)
        has_diverged = not math.isfinite(counted.get("loss", 0.0))  # of logits that are NaN, class 0 is the largest
        accuracy = math.nan if has_diverged else counted[self._job.task.PRIMARY]
        return {"accuracy": accuracy, **found, **train, "seconds": time.perf_counter() - start_time}

    def close(self) -> None:
        """End the processes that read."""
        for reader in (self._val, self._train):
            if reader:
                reader.close()

    def _measure_train(self, report: Report) -> dict[str, Any]:
        """Return the numbers of the training samples, without those of single classes."""
        assert self._subset and self._train
        job = self._job
        metrics: Metrics = job.task.Metric(self._subset, self._cfg.task), None
        if job.plan.ema:
            metrics = metrics[0], job.task.Metric(self._subset, self._cfg.task)
        found = self._evaluate(self._train, self._subset, metrics, "evaluating training samples", report)
        averaged = {"ema": _numbers(found["ema"])} if "ema" in found else {}
        return {**_numbers(found), **averaged}

    def _evaluate(
        self, reader: EvaluationReader, dataset: Dataset, metrics: Metrics, purpose: str, report: Report
    ) -> dict[str, Any]:
        job, (metric, averaged) = self._job, metrics
        batches = self._track(reader.read(), purpose, len(reader.batches))
        decoding = Decoding(self._decoder, reader.batches) if self._decoder else None
        return evaluate(job.trainer, batches, dataset, metric, job.group, report, averaged, self._stop, decoding)

    def _reader(self, dataset: Dataset) -> EvaluationReader:
        group, loader_plan = self._job.group, self._loader_plan
        sizes = self._cfg.train.eval_batch, group.rank, group.size
        batches = EvaluationBatches(dataset, self._cfg.seed, *sizes, loader_plan.stream_loader)
        return EvaluationReader(batches, loader_plan.workers)


def evaluate(
    trainer: Inference,
    stream: BatchStream,
    dataset: Dataset,
    metric: TaskMetric,
    group: Group,
    report: Callable[[UnreadableSample], None],
    averaged: TaskMetric | None = None,
    stop: StopSignal | None = None,
    decoding: Decoding | None = None,
) -> dict[str, Any]:
    """Run the model over this rank's share of a split; called by all ranks.

    Args:
        metric: the task's metric; its state is summed over ranks.
        averaged: another metric, for the predictions by the moving average of the weights; None without one.
        stop: after a signal of it no further batch is predicted; None: signals are not received.

    Returns:
        The metrics over all ranks, those of the moving average by the same names in `ema`, and `bad`, the number of
        unreadable samples.

    Raises:
        UnreadableData: on every rank, a sample is unreadable and data.eval_bad is not `wrong`.
        EvaluationStopped: a rank has received a signal.
    """
    end = _EarlyEnd(group, stop or StopSignal(), dataset.settings.eval_bad == "error")

    def copy(batch: Batch, images: Mapping[str, DeviceImages]) -> tuple[DeviceBatch, Batch]:
        return trainer.to_device(_inputs(batch, dataset), _rows(images, dataset)), batch

    with closing(Prefetcher(stream, copy, BATCHES_AHEAD, decoding)) as copies:
        for number in count():
            loaded = next(copies, None) if end.wait(copies, number) else None
            if loaded is None:
                break
            group.set_status("evaluating")
            (device_batch, batch), unreadable = loaded
            label_shape = batch["label"].shape[1:]
            size = (label_shape[0], label_shape[1]) if len(label_shape) == 2 else None  # of a label per pixel
            metric.update(trainer.predict(device_batch, size), batch)
            if averaged:
                averaged.update(trainer.predict(device_batch, size, averaged=True), batch)
            end.unreadable += unreadable
            if end.exchange(number):
                break
    end.check()
    gathered = group.all_gather([vars(sample) for sample in end.unreadable])
    everywhere = [UnreadableSample(**values) for of_rank in gathered for values in of_rank]
    for sample in everywhere:
        report(sample)
    metrics = {**metric.result(group.sum(metric.state)), "bad": len(everywhere)}
    return {**metrics, "ema": averaged.result(group.sum(averaged.state))} if averaged else metrics


class _EarlyEnd:
    """The end of an evaluation on all ranks before its last batch: a signal or an unreadable sample of any of them."""

    def __init__(self, group: Group, stop: StopSignal, is_strict: bool):
        """Receive nothing yet. is_strict: whether an unreadable sample ends the evaluation."""
        self.unreadable: list[UnreadableSample] = []  # of this rank
        self._reports, self._received, self._is_strict = Reports(group, stop), stop, is_strict
        self._samples: list[UnreadableSample] = []  # of all ranks, as soon as they end the evaluation
        self._signal: int | None = None  # of any rank

    def wait(self, batches: Prefetcher, number: int) -> bool:
        """Wait for the batch of a number; return whether it is there, or the end. A signal does not wait for it."""
        is_due = self._reports.is_due(number)
        if batches.wait(lambda: is_due and self._received.received is not None):
            return True
        batches.close(STOP_TIMEOUT)
        self.exchange(number)
        return False

    def exchange(self, number: int, is_last: bool = False) -> bool:
        """Inform the other ranks after a batch, if it is time; return whether the evaluation ends."""
        if not self._ends() and (is_last or self._reports.is_due(number)):
            mine = self.unreadable if self._is_strict else []
            self._signal = self._reports.share(number, mine, self._samples.extend).signal
        return self._ends()

    def check(self) -> None:
        """Raise what ends the evaluation, if anything. A signal comes second: a resume meets the same sample again."""
        self.exchange(0, is_last=True)
        samples = self._samples
        if samples:
            others = f" (and {len(samples) - 1} more)" if len(samples) > 1 else ""
            raise UnreadableData(
                f"evaluation: {samples[0].name}: {samples[0].reason}{others}; repair or remove it, or count it as "
                "wrong with ",
                Option("data.eval_bad", "wrong"),
                unreadable={sample.name: sample.reason for sample in samples},
            )
        if self._signal:
            raise EvaluationStopped(self._signal)

    def _ends(self) -> bool:
        return bool(self._samples or self._signal)


def _inputs(batch: Batch, dataset: Dataset) -> Batch:
    """Return the images on the host; views of a sample become rows: (B, V, ...) -> (B * V, ...)."""
    images = {field.name: batch[field.name] for field in dataset.fields if field.mean and field.name in batch}
    return {name: array.reshape(-1, *array.shape[2:]) if dataset.views > 1 else array for name, array in images.items()}


def _rows(images: Mapping[str, DeviceImages], dataset: Dataset) -> dict[str, DeviceImages]:
    return {
        name: value._replace(order=value.order.reshape(-1, *value.order.shape[2:])) if dataset.views > 1 else value
        for name, value in images.items()
    }


def _numbers(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if isinstance(value, int | float)}
