"""The evaluations of a run: of the validation split, and of some training samples if the recipe asks for them."""

import time
from collections.abc import Callable, Generator
from typing import Any

from zoo.config.schema import Config
from zoo.data.evaluation import EvaluationReader
from zoo.data.stream import Dataset, LoadedBatch, UnreadableSample
from zoo.data.training_subset import TrainingSubset
from zoo.run.decoding import Decoders
from zoo.run.evaluate import evaluate
from zoo.run.job import Job
from zoo.run.loading import Loading
from zoo.run.signals import StopSignal
from zoo.tasks import TaskMetric

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
        loading: Loading,
        decoders: Decoders,
        track: Track,
        train_samples: int,
        stop: StopSignal,
    ):
        """Start nothing yet.

        Args:
            job: data and trainer.
            cfg: the recipe.
            loading: who reads.
            decoders: of the run.
            track: passes batches on, with their purpose and number, to count them in a bar.
            train_samples: training samples to evaluate, too; 0 for none.
            stop: a signal of it ends an evaluation.

        Raises:
            UserError: the training samples cannot be evaluated.
        """
        self._job, self._cfg, self._loading, self._decoders, self._track = job, cfg, loading, decoders, track
        self._stop = stop
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
        accuracy = found.get("ema", found)[self._job.task.PRIMARY]
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
        batches = self._track(reader.read(), purpose, reader.batches)
        decode = self._decoders.evaluation(dataset)
        return evaluate(job.trainer, batches, dataset, metric, job.group, report, decode, averaged, self._stop)

    def _reader(self, dataset: Dataset) -> EvaluationReader:
        group, loading = self._job.group, self._loading
        return EvaluationReader(
            dataset,
            self._cfg.seed,
            self._cfg.train.eval_batch,
            group.rank,
            group.size,
            loading.workers,
            loading.local_size,
            loading.stream_loader,
        )


def _numbers(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if isinstance(value, int | float)}
