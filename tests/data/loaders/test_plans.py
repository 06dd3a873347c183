"""Plans of the data sets: decoded by the geometry, they are the samples of the reference loader, bit for bit."""

import numpy as np
import pytest

from tests.data.loaders import sets
from zoo.data import order
from zoo.data.dataset import Pending
from zoo.data.datasets import synthetic
from zoo.data.formats import images
from zoo.data.transforms import pixels


def decode(value, tmp_path):
    if not isinstance(value, Pending):
        return value
    decoded = []
    for number, content in enumerate(value.files):
        path = tmp_path / str(number)
        path.write_bytes(content)
        decoded.append(pixels.apply(images.decode_stored(images.read(str(path))), value.geometry))
    return np.stack(decoded) if value.stacked else decoded[0]


@pytest.mark.parametrize("name", sets.SETS)
@pytest.mark.parametrize("training", [True, False])
def test_a_plan_is_the_sample_undecoded(name, training, tmp_path):
    split = sets.SETS[name](tmp_path / "set")[0 if training else 1]
    pending = 0
    for index in range(len(split)):
        sample, plan = (read(index, order.generator(0, "augment", index)) for read in (split.sample, split.plan))
        assert sample.keys() == plan.keys()
        pending += any(isinstance(value, Pending) for value in plan.values())
        for field in sample:
            assert np.array_equal(sample[field], decode(plan[field], tmp_path)), (index, field)
    assert pending >= len(split) // 2 if name not in sets.DECODED else pending == 0


def test_synthetic_samples_have_no_files():
    train, _ = synthetic.load(synthetic.Settings(num_classes=5, train_samples=4, size=8))
    sample, plan = (read(1, order.generator(0, "augment", 1)) for read in (train.sample, train.plan))
    assert np.array_equal(sample["image"], plan["image"])
