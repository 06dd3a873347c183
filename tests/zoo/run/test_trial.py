"""Timing of updates in turn, with a clock that only updates move."""

import numpy as np
import pytest

from zoo.data.batch import LABEL, DropoutMask, Field
from zoo.run import trial

PIXELS = Field("image", (4, 6, 3), "uint8", (0.5,) * 3, (0.5,) * 3)
MASK = DropoutMask("dropout", (7,), 0.5)


class Clock:
    def __init__(self):
        self.now = self.waited = 0.0

    def __call__(self):
        return self.now


class Slow:
    """Trainer whose updates take given times; the last one counts for all later ones."""

    def __init__(self, name, clock, log, seconds, waits=0.0):
        self.name, self.clock, self.log, self.seconds, self.waits = name, clock, log, list(seconds), waits

    def to_device(self, batch):
        return batch

    def step(self, micro_batches, lr, step):
        assert lr == 0 and step == 0 and len(micro_batches) == 1
        self.log.append(self.name)
        spent = self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]
        self.clock.now += spent
        self.clock.waited += self.waits * spent

    def read(self, output):
        return {}


def measure(a, b, waits=0.0):
    clock, log = Clock(), []
    build = [lambda: Slow("a", clock, log, a, waits), lambda: Slow("b", clock, log, b)]
    return trial.measure(build, {}, clock, lambda: clock.waited), "".join(log)


def test_the_fastest_update_after_a_first_one_counts():
    timing, order = measure([0.125, 1.0, 0.25, 0.5], [2.0, 0.5, 1.0, 0.5])
    assert timing == ([0.25, 0.5], False)
    assert order == "ab" + "baabbaabba"


@pytest.mark.parametrize(
    "seconds, rounds",
    [(0.001, trial.ROUNDS), (trial.SLOW, 2), (trial.MAX_SECONDS / 4.5, 3), (trial.SLOW * 1.01, 0)],
)
def test_a_measurement_is_bounded_in_time(seconds, rounds):
    timing, order = measure([seconds], [seconds])
    assert len(order) == 2 + 2 * rounds and timing.seconds == pytest.approx([seconds, seconds])


def test_other_programs_are_noticed():
    assert measure([1.0], [1.0], waits=0.3)[0].busy and not measure([1.0], [1.0], waits=0.1)[0].busy


def test_a_synthetic_batch():
    batch = trial.synthetic_batch((PIXELS, LABEL), (MASK,), 5)
    assert {name: (array.shape, array.dtype.name) for name, array in batch.items()} == {
        "image": ((5, 4, 6, 3), "uint8"),
        "label": ((5,), "int64"),
        "dropout": ((5, 7), "uint8"),
        "valid": ((5,), "uint8"),
    }
    assert len(np.unique(batch["image"])) > 100 and not batch["label"].any() and batch["dropout"].all()
    again = trial.synthetic_batch((PIXELS, LABEL), (MASK,), 5)
    assert all(np.array_equal(batch[name], again[name]) for name in batch)
