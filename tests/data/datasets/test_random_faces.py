"""Random images in place of faces: their distribution, reproducibility and independence of image libraries."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from data.datasets import random_faces
from data.stream import open_evaluation, open_training
from tests.helpers.paths import ROOT

WITHOUT_LIBRARIES = """
import sys
for module in ("cv2", "PIL", "decord", "av"):
    sys.modules[module] = None  # importing it raises ImportError
import numpy as np
import data
from data.stream import open_evaluation, open_training
module = data.find("random_faces")
train, val = module.load(module.Settings(workers=0, size=8, val_pairs=10))
assert train.sample(0, np.random.default_rng(0))["image"].shape == (8, 8, 3)
((batch, _),) = open_training(train, 0, 4, 0, 1)
assert batch["image"].shape == (4, 8, 8, 3)
assert sum(int(batch["valid"].sum()) for batch, _ in open_evaluation(val, 0, 4)) == 10
"""

TRAIN_WITHOUT_LIBRARIES = """
import sys
for module in ("cv2", "PIL", "decord", "av"):
    sys.modules[module] = None
import train
changes = ("data.num_classes=50", "data.size=16", "data.val_pairs=10", "data.workers=0", "model.depth=18")
overrides = [word for change in changes + ("train.batch=4", "train.eval_batch=10") for word in ("-o", change)]
arguments = ["-c", "configs/arcface_synthetic.yaml", "--max-steps", "1", "--out", sys.argv[1]]
sys.exit(train.main(arguments + overrides))
"""


def load(**keys):
    return random_faces.load(random_faces.Settings(**{"workers": 0, "size": 32, **keys}))


def test_neither_opencv_nor_pillow_nor_a_video_decoder_is_imported():
    subprocess.run([sys.executable, "-c", WITHOUT_LIBRARIES], cwd=ROOT, check=True, timeout=60)


@pytest.mark.slow
def test_a_torch_run_needs_no_image_library(tmp_path):
    command = [sys.executable, "-c", TRAIN_WITHOUT_LIBRARIES, str(tmp_path / "run")]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300, stdout=subprocess.DEVNULL)
    assert (tmp_path / "run" / "checkpoints" / "last").exists()


def test_normalized_images_are_standard_normal():
    train, val = load(size=112)
    image = train.sample(0, np.random.default_rng(3))["image"]
    field = train.fields[0]
    values = (image / 255 - np.array(field.mean)) / field.std
    assert image.dtype == np.uint8 and image.shape == field.shape == (112, 112, 3)
    assert abs(values.mean()) < 0.02 and abs(values.std() - 1) < 0.02
    for quantile, expected in ((0.025, -1.96), (0.5, 0), (0.975, 1.96)):
        assert abs(np.quantile(values, quantile) - expected) < 0.05
    assert abs(np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1]) < 0.02
    assert val.fields[0].std == field.std


def test_samples_are_a_function_of_seed_and_position():
    train, _ = load(num_classes=1000, train_images=64)
    batches = [batch for batch, _ in open_training(train, 1, 8, 0, 8)]
    ((resumed, _),) = open_training(train, 1, 8, 3, 4)
    assert all(np.array_equal(resumed[name], batches[3][name]) for name in ("image", "label"))
    ((half, _),) = open_training(train, 1, 4, 3, 4, rank=1, world_size=2)  # the second half of batch 3
    assert all(np.array_equal(half[name], resumed[name][4:]) for name in ("image", "label"))
    labels = np.concatenate([batch["label"] for batch in batches])
    assert len(set(labels.tolist())) > 50 and labels.min() >= 0 and labels.max() < 1000 and labels.dtype == np.int64
    ((other_seed, _),) = open_training(train, 2, 8, 3, 4)
    assert not np.array_equal(other_seed["label"], resumed["label"])


def test_labels_are_uniform():
    train, _ = load(num_classes=5, size=1)
    counts = np.bincount([int(train.sample(0, np.random.default_rng(seed))["label"]) for seed in range(2000)])
    assert len(counts) == 5 and ((counts - 400) ** 2 / 400).sum() < 18.5  # chi square, 4 degrees: 1 in 1000


def test_memory_does_not_depend_on_the_number_of_identities():
    train, val = load(num_classes=50_000_000)
    assert len(train.classes) == 50_000_000 and len(pickle.dumps(train)) < 10_000
    assert random_faces.checksum(train, val) != random_faces.checksum(*load(num_classes=50_000_001))
    assert random_faces.checksum(train, val) == random_faces.checksum(*load(num_classes=50_000_000, workers=2))


def test_pairs():
    _, val = load(val_pairs=20)
    ((batch, _),) = open_evaluation(val, 1, 20)
    assert val.sets == (("noise", 0, 20),) and val.views == 2 and batch["image"].shape == (20, 2, 32, 32, 3)
    assert batch["label"].tolist() == [1, 0] * 10 and batch["pair"].tolist() == list(range(20))
