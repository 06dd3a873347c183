"""Synthetic data: shapes of all four tasks, distribution, reproducibility and independence of image libraries."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from zoo.data.datasets import synthetic

KINDS = ("image", "clip", "scene", "face")
SMALL = {
    "image": {"size": 32},
    "clip": {"size": 32, "segments": 3},
    "scene": {"crop": (24, 40), "base_size": (32, 64)},
    "face": {"size": 16},
}
BLOCKED = """
import sys
for module in ("cv2", "PIL", "decord", "av", "nvidia.dali"):
    sys.modules[module] = None  # importing it raises ImportError
"""
READ = """
from zoo import data
from zoo.data.stream import open_evaluation, open_training
module = data.find("synthetic")
for kind, keys in {"image": {"size": 8}, "scene": {"crop": (8, 8), "base_size": (8, 8)}, "face": {"size": 8}}.items():
    train, val = module.load(module.Settings(kind=kind, workers=0, val_samples=10, **keys))
    ((batch, _),) = open_training(train, 0, 4, 0, 1)
    assert batch["image"].shape == (4, 8, 8, 3)
    assert sum(int(batch["valid"].sum()) for batch, _ in open_evaluation(val, 0, 4)) == 10
"""


def load(kind="image", **keys):
    return synthetic.load(synthetic.Settings(**{"kind": kind, "workers": 0, **SMALL[kind], **keys}))


def first(split, count=8):
    return [split.sample(index, np.random.default_rng(0)) for index in range(count)]


def test_neither_opencv_nor_pillow_nor_a_video_decoder_nor_dali_is_imported():
    subprocess.run([sys.executable, "-c", BLOCKED + READ], cwd=ROOT, check=True, timeout=60)


@pytest.mark.parametrize(
    "kind, name, train_shape, val_shape, classes, samples",
    [
        ("image", "image", (224, 224, 3), (224, 224, 3), 1000, 1281167),
        ("clip", "video", (8, 224, 224, 3), (8, 224, 224, 3), 400, 234619),
        ("scene", "image", (512, 1024, 3), (1024, 2048, 3), 19, 2975),
        ("face", "image", (112, 112, 3), (2, 112, 112, 3), 85742, 5822653),
    ],
)
def test_defaults_are_those_of_the_data_sets_of_the_reports(kind, name, train_shape, val_shape, classes, samples):
    train, val = synthetic.load(synthetic.Settings(kind=kind))
    assert (len(train.classes), len(train), len(val)) == (classes, samples, 100)
    for split, shape in ((train, train_shape), (val, val_shape)):
        assert (split.fields[0].name, split.fields[0].shape, split.classes) == (name, shape, train.classes)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_what_the_fields_promise(kind):
    for split in load(kind):
        for sample in first(split):
            found = {name: (array.shape, array.dtype) for name, array in sample.items()}
            assert found == {field.name: (field.shape, field.dtype) for field in split.fields}
        assert split.views == (2 if kind == "face" and not split.training else 1)


def test_normalized_pixels_are_standard_normal():
    train, val = load(size=112)
    image, field = first(train)[3]["image"], train.fields[0]
    values = (image / 255 - np.array(field.mean)) / field.std
    assert abs(values.mean()) < 0.02 and abs(values.std() - 1) < 0.02
    for quantile, expected in ((0.025, -1.96), (0.5, 0), (0.975, 1.96)):
        assert abs(np.quantile(values, quantile) - expected) < 0.05
    assert abs(np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1]) < 0.02
    assert val.fields[0].std == field.std


def test_images_differ_and_every_class_is_as_frequent():
    train, _ = load(num_classes=7, train_samples=700)
    samples = first(train, 700)
    assert len({sample["image"].tobytes() for sample in samples}) == 700
    assert np.bincount([int(sample["label"]) for sample in samples]).tolist() == [100] * 7


def test_scenes_have_all_classes_and_ignored_pixels():
    train, val = load("scene", crop=(128, 256), num_classes=5)
    for split in (train, val):
        counts = np.bincount(np.concatenate([sample["label"].ravel() for sample in first(split)]), minlength=256)
        assert counts[:5].min() > 0 and counts[255] > 0 and counts.sum() == counts[:5].sum() + counts[255]
    assert len({sample["label"].tobytes() for sample in first(train)}) == 8
    labels = first(load("scene", num_classes=255)[0], 1)[0]["label"]  # the largest number of classes
    assert labels.max() <= 255


def test_samples_cannot_be_changed_in_place():
    for sample in first(load("scene")[0], 1):
        for array in sample.values():
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0


@pytest.mark.parametrize("kind", KINDS)
def test_memory_does_not_depend_on_the_number_of_samples(kind):
    train, val = load(kind, train_samples=50_000_000, num_classes=200)
    assert len(train.classes) == 200 and len(pickle.dumps(train)) < 10_000
    checksum = synthetic.describe(train, val).checksum
    assert checksum == synthetic.describe(*load(kind, train_samples=50_000_000, num_classes=200, threads=1)).checksum
    for other in (dict(num_classes=201), dict(train_samples=50_000_001), dict(val_samples=11)):
        keys = {"train_samples": 50_000_000, "num_classes": 200, **other}
        assert synthetic.describe(*load(kind, **keys)).checksum != checksum


def test_protocols():
    protocols = {kind: synthetic.load(synthetic.Settings(kind=kind))[1].protocol for kind in KINDS}
    assert {name for name, _ in protocols.values()} == {"synthetic"}
    assert [protocols[kind].views for kind in KINDS] == ["224", "8x1x1@224", "1024x2048", "@112"]


TRAIN = """
from zoo import cli
sys.exit(cli.main(["train", *sys.argv[1:]]))
"""


@pytest.mark.slow
def test_a_report_can_be_timed_without_image_libraries(tmp_path):
    """On a machine that has PyTorch, numpy and what the framework needs itself, with a small model here."""
    settings = {"data.name": "synthetic", "data.kind": "clip", "data.size": 32, "data.segments": 4, "model.depth": 18}
    settings |= {"data.num_classes": 5, "data.val_samples": 4, "data.workers": 0, "model.pretrained": "null"}
    settings |= {"train.batch": 2, "train.eval_batch": 2}
    words = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    arguments = ["-c", "configs/reports/tsm_torch_airank.yaml", "--out", str(tmp_path / "run"), "--max-steps", "2"]
    command = [sys.executable, "-c", BLOCKED + TRAIN, *arguments, *words]
    done = subprocess.run(command, cwd=ROOT, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "checkpoints" / "last").exists()
