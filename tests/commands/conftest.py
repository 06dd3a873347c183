"""Fixtures of the tools' tests."""

import pytest
from PIL import Image

from tests.helpers.predicting import CLASSES, forbid_datasets, scene, train
from zoo.data.demo import motion, shapes

IMAGES = {"model.width": 4, "data.size": 16, "data.train_images": 16, "data.val_images": 8}
CLIPS = {"model.width": 4, "data.size": 16, "data.segments": 2, "data.train_clips": 16, "data.val_clips": 8}
SCENES = {
    "model.depth": 18,
    "model.width": 8,
    "model.head_width": 8,
    "model.low_width": 4,
    "model.aux_width": 4,
    "model.rates": [1, 2, 3],
    "model.pretrained": "null",
    "data.crop": [32, 32],
    "data.base_size": [40, 64],
    "train.sync_bn": "false",
    "train.steps": 60,
    "train.eval_every": "60 steps",
    "train.save_every": "60 steps",
    "optim.lr": 0.5,
    "data.photometric": "false",
    "train.eval_batch": 1,
}  # images of several sizes


@pytest.fixture
def no_datasets(monkeypatch):
    """No data set can be loaded: predictions must not need the one that a model was trained on."""
    forbid_datasets(monkeypatch)


@pytest.fixture(scope="session")
def image_model(tmp_path_factory):
    """Checkpoint of a ResNet, folder of its data."""
    folder = tmp_path_factory.mktemp("images")
    shapes.make(str(folder / "set"), 16, 8)
    return train(folder, "resnet50_demo.yaml", {**IMAGES, "data.root": folder / "set"}, 3), folder / "set"


@pytest.fixture(scope="session")
def clip_model(tmp_path_factory):
    """Checkpoint of a TSM, folder of its data."""
    folder = tmp_path_factory.mktemp("clips")
    motion.make(str(folder / "set"), 16, 8)
    return train(folder, "tsm_demo.yaml", {**CLIPS, "data.root": folder / "set"}, 3), folder / "set"


@pytest.fixture(scope="session")
def scene_model(tmp_path_factory):
    """Checkpoint of a DeepLabV3+, folder of its data."""
    folder = tmp_path_factory.mktemp("scenes")
    for split, numbers in (("train", range(6)), ("val", range(6, 9))):
        for number in numbers:
            for kind, array in zip(("images", "masks"), scene(number)):
                (folder / "set" / kind / split).mkdir(parents=True, exist_ok=True)
                Image.fromarray(array).save(folder / "set" / kind / split / f"{number}.png")
    (folder / "set/classes.txt").write_text("\n".join(CLASSES), encoding="utf-8")
    settings = {**SCENES, "data.root": folder / "set"}
    return train(folder, "deeplabv3plus_cityscapes.yaml", settings, 30), folder / "set"
