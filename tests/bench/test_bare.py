"""The bare loops read what the recipes ask for, and compute the trainer's update."""

import numpy as np
import pytest

from tests.data.loaders import sets
from tests.helpers import face_sets, packs
from tests.helpers.training import DEMO, TINY
from zoo.bench.bare import loading
from zoo.bench.bare import torch as bare
from zoo.data.datasets import synthetic
from zoo.data.formats import images
from zoo.run import cli
from zoo.run.job import assemble, join, restore, sample_batch

FACES = (
    *("model.variant=insightface", "model.depth=18", "model.width=8", "model.embedding=8", "data.size=16"),
    *("data.num_classes=9", "data.val_samples=10", "data.workers=0", "train.batch=4", "train.global_batch=4"),
    "task.scale=8",
)


@pytest.mark.parametrize("name", ["images", "plain_images", "frames", "antialiased_frames", "videos", "faces"])
def test_samples_have_the_shape_of_the_recipe(name, tmp_path):
    train, _ = sets.SETS[name](tmp_path)
    read = loading.reader(train)
    for index in range(2):
        pixels = read(index)
        assert pixels.shape == train.fields[0].shape and pixels.dtype == np.uint8


def test_scenes_come_with_their_masks(tmp_path):
    train, _ = sets.scene_set(tmp_path, photometric=True, scale=(1.5, 2.0))
    image, label = loading.reader(train)(0)
    assert image.shape == (*train.settings.crop, 3) and label.shape == train.settings.crop


def test_pixels_are_those_of_the_file_in_rgb(tmp_path, monkeypatch):
    monkeypatch.setattr(loading.random, "random", lambda: 0.9)  # no flip
    train, _ = sets.face_set(tmp_path)
    assert np.array_equal(loading.reader(train)(0), images.decode_stored(images.read(train.source.encoded(0))))


def test_faces_of_a_pack(tmp_path):
    face_sets.add_bin(tmp_path)
    packs.write(tmp_path, packs.face_pack(face_sets.PACK))
    train, _ = face_sets.load(tmp_path)
    expected = [train.sample(index, np.random.default_rng(0))["image"] for index in range(len(train))]
    read = loading.reader(train)
    assert [int(read(index).mean()) for index in range(len(train))] == [int(image.mean()) for image in expected]


def test_other_sets_have_no_loop():
    train, _ = synthetic.load(synthetic.Settings(num_classes=5, train_samples=4, size=8))
    assert loading.reader(train) is None


@pytest.mark.parametrize("model, optimizer", [("tsm", "sgd_nesterov"), ("tsm", "adamw"), ("arcface", "sgd")])
def test_a_bare_loop_does_the_trainers_update(clips, monkeypatch, model, optimizer):
    """With PyTorch, whose loop copies the trainer's model: the same tensors after two updates that clip."""
    changes = ["optim.clip_norm=0.1", f"optim.name={optimizer}"]
    changes += ["optim.eps=1e-2"] if optimizer == "adamw" else []  # beside which rounding of gradients is small
    tiny = [f"{key}={value}" for key, value in {**TINY, "data.root": clips}.items()]
    recipe, settings = (DEMO, tiny) if model == "tsm" else ("configs/arcface_synthetic.yaml", FACES)
    request = cli.request(recipe, [*settings, *changes], device="cpu")
    job, copies = assemble(request, join(request, {})), []
    restore(request.config, job, None, print)
    if model == "arcface":  # the loop draws its own class matrix
        head = job.trainer.state_dict()["head.weight"]
        monkeypatch.setattr(bare.torch, "randn", lambda *shape: bare.torch.tensor(head).reshape(shape) / 0.01)
    monkeypatch.setattr(bare, "LR", 0.1)
    deepcopy = bare.copy.deepcopy

    def recorded(module, memo=None):
        copied = deepcopy(module, memo)
        if memo is None:
            copies.append(copied)
        return copied

    monkeypatch.setattr(bare.copy, "deepcopy", recorded)
    batch = sample_batch(job)
    loop = bare.loop(job, batch)
    before = {name: np.array(array) for name, array in job.trainer.state_dict().items()}
    for step in range(2):
        loop()
        job.trainer.step([batch], bare.LR, step)
    for name, value in copies[0].named_parameters():
        change = job.trainer.state_dict()[name] - before[name]
        difference = np.abs(value.detach().numpy() - before[name] - change).max()
        assert difference <= 1e-2 * np.abs(change).max() + 1e-7, name
