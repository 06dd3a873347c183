"""Which samples of an evaluation are kept, against the batches that ranks read."""

from types import SimpleNamespace

import numpy as np
import pytest

from zoo.data import order
from zoo.data.batch import LABEL, Field
from zoo.data.errors import BadSample
from zoo.data.stream import EvaluationBatches
from zoo.visualization.evaluation import Evaluation, Recorder


class Split:
    """Samples whose label is their index; that of index `damaged` is unreadable."""

    fields = (Field("image", (2, 2, 3), "uint8", (0.5,) * 3, (0.5,) * 3), LABEL)
    classes = range(100)

    def __init__(self, length, views=1, damaged=None):
        self.length, self.views, self.damaged = length, views, damaged

    def __len__(self):
        return self.length

    def sample(self, index, rng):
        if index == self.damaged:
            raise BadSample("damaged")
        return {"image": np.full((2, 2, 3), rng.integers(256), np.uint8), "label": np.asarray(index)}

    def name(self, index):
        return f"sample {index}"


class Metric:
    """The task's metric: counts batches, in a new dictionary each time."""

    def __init__(self):
        self.state = {"batches": np.zeros(())}

    def update(self, outputs, batch):
        self.state = {"batches": self.state["batches"] + 1}

    def result(self, state):
        return {"batches": int(state["batches"])}


@pytest.mark.parametrize("length", [1, 5, 8, 13, 20])
@pytest.mark.parametrize("world_size, views", [(1, 1), (1, 3), (2, 1), (3, 2)])
def test_the_samples_are_spread_over_those_of_rank_0(length, world_size, views):
    split, recorder = Split(length, views), Recorder(Metric(), length, world_size, 3)
    read = EvaluationBatches(split, 7, 4, 0, world_size)
    evaluated = []
    for number in range(len(read)):
        batch, _ = read(number)
        evaluated += batch["label"][batch["valid"] > 0].tolist()
        recorder.update(10 * batch["label"].repeat(views)[:, None] + np.tile(np.arange(views), 4)[:, None], batch)
    assert recorder.state == {"batches": len(read)}
    kept = [index for index, _ in recorder.predictions]
    spread = min(3, len(evaluated))
    assert kept == [evaluated[place * len(evaluated) // spread] for place in range(spread)]
    assert all(
        outputs.tolist() == [[10 * index + view] for view in range(views)] for index, outputs in recorder.predictions
    )
    assert recorder.result({"batches": np.asarray(9)}) == {"batches": 9} and recorder.summed == {"batches": 9}


def test_a_sample_is_read_again_as_the_evaluation_has_read_it():
    split = Split(8, damaged=1)
    read = order.generator(7, "evaluate", 2)
    evaluation = Evaluation(split, 7, {}, [])
    assert evaluation.sample(2)["image"][0, 0, 0] == read.integers(256)
    assert evaluation.sample(1) is None  # unreadable


def test_the_image_is_the_first_view():
    image = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)
    several = SimpleNamespace(fields=Split.fields, views=2)
    assert np.array_equal(Evaluation(several, 7, {}, []).image({"image": image}), image[0])
    assert np.array_equal(Evaluation(Split(1), 7, {}, []).image({"image": image[1]}), image[1])
