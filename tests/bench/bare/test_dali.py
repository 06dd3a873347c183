"""The minimal DALI pipelines read what the recipes ask for."""

import numpy as np
import pytest

from tests.data.loaders import sets
from tests.data.loaders.test_dali import needs_dali
from tests.helpers import face_sets, packs
from zoo.bench.bare import dali
from zoo.data.datasets import synthetic

ON_CPU = None  # instead of the number of a CUDA device


@needs_dali
@pytest.mark.parametrize("name", ["images", "plain_images", "faces"])
def test_batches_have_the_shape_of_the_recipe(name, tmp_path):
    train, _ = sets.SETS[name](tmp_path)
    read = dali.reader(train, 3, 1, ON_CPU)
    for _ in range(5):
        pixels = np.from_dlpack(read())
        assert pixels.shape == (3, *train.fields[0].shape) and pixels.dtype == np.uint8


@needs_dali
def test_an_epoch_of_a_pack_has_every_face_once(tmp_path):
    face_sets.add_bin(tmp_path)
    packs.write(tmp_path, packs.face_pack(face_sets.PACK))
    train, _ = face_sets.load(tmp_path)
    read = dali.reader(train, 5, 1, ON_CPU)
    batches = [np.array(np.from_dlpack(read())) for _ in range(len(train) // 5)]
    expected = [train.sample(index, np.random.default_rng(0))["image"] for index in range(len(train))]
    assert sorted(np.concatenate(batches).sum((1, 2, 3))) == sorted(image.sum() for image in expected)


@needs_dali
@pytest.mark.parametrize("name", ["images", "faces"])
def test_the_operators_for_a_gpu_exist(name, tmp_path, monkeypatch):
    from nvidia.dali.pipeline import Pipeline

    monkeypatch.setattr(Pipeline, "build", lambda self: None)
    train, _ = sets.SETS[name](tmp_path)
    assert dali.reader(train, 3, 1, device_id=0)


def test_other_sets_have_no_pipeline(tmp_path):
    train, _ = synthetic.load(synthetic.Settings(num_classes=5, train_samples=4, size=8))
    assert dali.reader(train, 2, 1, ON_CPU) is None
    assert dali.reader(sets.frame_set(tmp_path)[0], 2, 1, ON_CPU) is None
