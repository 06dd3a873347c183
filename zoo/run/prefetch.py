"""Batches on their way to the device, one ahead of the step; and the account of samples that could not be read."""

import time
from collections.abc import Callable, Iterator

from data.errors import UserError
from data.stream import Bad, Dataset, Loaded, find_bad
from zoo.trainer.protocol import DeviceBatch, Trainer

SEARCH_S = 20.0  # how long to look for further bad files before a run stops for them


class Prefetcher:
    """Iterates over device_batch batches. `waited` is the time in seconds spent waiting for the data so far."""

    def __init__(self, stream: Iterator[Loaded], trainer: Trainer):
        self.stream, self.trainer = stream, trainer
        self.waited = 0.0
        self._bad: list[Bad] = []
        self._ahead = self._load()

    def __iter__(self) -> "Prefetcher":
        return self

    def __next__(self) -> DeviceBatch:
        if self._ahead is None:
            raise StopIteration
        device_batch, self._ahead = self._ahead, self._load()
        return device_batch

    def unreadable(self) -> list[Bad]:
        """The samples that could not be read since this was last asked."""
        found, self._bad = self._bad, []
        return found

    def _load(self):
        start = time.perf_counter()
        batch, bad = next(self.stream, (None, []))
        self.waited += time.perf_counter() - start
        self._bad += bad
        return None if batch is None else self.trainer.to_device(batch)


class BadSampleTracker:
    """Names every unreadable sample of a run once, those of all ranks."""

    def __init__(self, dataset: Dataset, report: Callable[[Bad], None]):
        self.dataset, self.report = dataset, report
        self.bad: dict[str, str] = {}  # name -> reason, over the run
        self._epoch, self._of_epoch = 0, set()  # type: int, Set[str]

    def add(self, bad: list[Bad]) -> None:
        """Raises UserError when the unreadable samples of an epoch exceed data.max_bad."""
        for sample in bad:
            if sample.name not in self.bad:
                self.bad[sample.name] = sample.reason
                self.report(sample)
            if sample.epoch != self._epoch:
                self._epoch, self._of_epoch = sample.epoch, set()
            self._of_epoch.add(sample.name)
            if len(self._of_epoch) > self.dataset.settings.max_bad * len(self.dataset):
                raise UserError(self._too_many())

    def _too_many(self) -> str:
        found, tried = find_bad(self.dataset, SEARCH_S)
        names = {**self.bad, **{sample.name: sample.reason for sample in found}}
        share = len(self._of_epoch) / len(self.dataset)
        return "\n".join(
            [
                f"too many unreadable training samples: {len(self._of_epoch)} of {len(self.dataset)} ({share:.2%}) so far "
                f"in epoch {self._epoch + 1}, data.max_bad is {self.dataset.settings.max_bad}",
                f"  known by now ({tried} of {len(self.dataset)} files opened):",
            ]
            + [f"  {name}: {reason}" for name, reason in names.items()]
            + [
                "  mend or remove them, or go on without them with -o data.max_bad=SHARE; "
                "python tools/check_data.py -c RECIPE reads the whole set"
            ]
        )
