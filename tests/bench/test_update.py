"""`zoo bench update` and `zoo bench profile`; the bare loops read what recipes ask for, and compute the same update."""

import json

import numpy as np
import pytest

from tests.data.loaders import sets
from tests.helpers import face_sets, packs
from tests.helpers.processes import require_framework
from tests.helpers.training import DEMO, TINY
from zoo import cli
from zoo.bench.bare import loading
from zoo.bench.bare import torch as bare
from zoo.data.formats import images
from zoo.run.job import assemble, join, sample_batch
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.run.resume import restore

FACES = (
    *("model.variant=insightface", "model.depth=18", "model.width=8", "model.embedding=8", "data.size=16"),
    *("data.num_classes=9", "data.val_samples=10", "data.workers=0", "train.batch=4", "train.global_batch=4"),
    "task.scale=8",
)
FACE_WORDS = ["-c", "arcface_synthetic", "--device", "cpu", *(word for pair in FACES for word in ("-o", pair))]


def words_of(clips, **changes):
    pairs = {**TINY, "data.root": clips, "device": "cpu", **changes}
    return ["-c", DEMO, *(word for key, value in pairs.items() for word in ("-o", f"{key}={value}"))]


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["paddle", "mindspore", "jax"])  # that of PyTorch: below
@pytest.mark.parametrize("model", ["tsm", "arcface"])
def test_both_loops_are_measured(clips, tmp_path, framework, model, run_program):
    require_framework(framework)
    words, path = words_of(clips) if model == "tsm" else FACE_WORDS, tmp_path / "update.json"
    out = run_program("bench", "update", *words, "-n", "2", "--framework", framework, "--json", str(path))
    report = json.loads(path.read_text())
    assert {name: len(seconds) for name, seconds in report["seconds"].items()} == {"this trainer": 2, "bare loop": 2}
    assert report["framework"] == framework and f"ratio {report['ratio']:.4f}" in out


@pytest.mark.parametrize(
    "words, message",
    [
        ([*FACE_WORDS, "-o", "model.depth=19"], "model.depth"),
        ([*FACE_WORDS, "-o", "task.sample_rate=0.5"], "task.sample_rate"),
        ([*FACE_WORDS, "-o", "task.loss=adaface"], "task.loss"),
        (["-c", "deeplabv3plus_demo", "-o", "task.ohem_kept=5"], "task.ohem_kept"),
        ([*FACE_WORDS, "-o", "optim.name=lamb", "-o", "optim.lr=0.01", "--framework", "torch"], "optim.name"),
        ([*FACE_WORDS, "--json", __file__], "--json"),
    ],
)
def test_what_is_refused(words, message, capsys):
    assert cli.main(["bench", "update", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["images", "plain_images", "frames", "antialiased_frames", "videos", "faces"])
def test_samples_have_the_shape_of_the_recipe(name, tmp_path):
    train, _ = sets.SETS[name](tmp_path)
    read = loading.reader(train)
    for index in range(2):
        pixels = read(index)
        assert pixels.shape == train.fields[0].shape and pixels.dtype == np.uint8


def test_pixels_are_those_of_the_file_in_rgb(tmp_path, monkeypatch):
    monkeypatch.setattr(loading.random, "random", lambda: 0.9)  # no flip
    train, _ = sets.face_set(tmp_path)
    path = train.source.encoded(train.rows[0])
    assert np.array_equal(loading.reader(train)(0), images.decode_stored(images.read(path)))


def test_faces_of_a_pack(tmp_path):
    face_sets.add_bin(tmp_path)
    packs.write(tmp_path, packs.face_pack(face_sets.PACK))
    train, _ = face_sets.load(tmp_path)
    expected = [train.sample(index, np.random.default_rng(0))["image"] for index in range(len(train))]
    read = loading.reader(train)
    assert [int(read(index).mean()) for index in range(len(train))] == [int(image.mean()) for image in expected]


@pytest.mark.parametrize("model, optimizer", [("tsm", "sgd_nesterov"), ("tsm", "adamw"), ("arcface", "sgd")])
def test_a_bare_loop_does_the_trainers_update(clips, monkeypatch, model, optimizer):
    """With PyTorch, whose loop copies the trainer's model: the same tensors after two updates that clip."""
    changes = ["optim.clip_norm=0.1", f"optim.name={optimizer}"]
    if optimizer == "adamw":
        changes += ["optim.lr=0.1", "optim.eps=1e-2"]  # beside which rounding of gradients is small
    tiny = [f"{key}={value}" for key, value in {**TINY, "data.root": clips}.items()]
    recipe, settings = (DEMO, tiny) if model == "tsm" else ("configs/arcface_synthetic.yaml", FACES)
    request = resolve_recipe(Options(recipe, [*settings, *changes], device="cpu"))
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


WORDS = ["-c", "resnet50_demo", "-o", "data.name=synthetic", "-o", "data.kind=image", "-o", "data.num_classes=8",
         "-o", "train.batch=4", "-o", "data.workers=0", "-o", "target=null", "--device", "cpu"]  # fmt: skip


def main(*words):
    return cli.main(["bench", "profile", *WORDS, *map(str, words)])


@pytest.mark.slow
def test_the_operators_of_an_update(tmp_path, capsys):
    pytest.importorskip("torch")
    paths = tmp_path / "values.json", tmp_path / "trace.json"
    assert main("-n", 2, "--rows", 5, "--json", paths[0], "--trace", paths[1]) == 0
    report, trace = (json.loads(path.read_text()) for path in paths)
    times = [operator["ms"] for operator in report["operators"]]
    assert len(times) == 5 and times == sorted(times, reverse=True) and sum(times) < report["ms"]
    convolution = next(row for row in report["operators"] if row["name"] == "aten::convolution_backward")
    assert convolution["calls"] == 20  # of a ResNet-18, shortcuts included
    assert any(event.get("name") == "aten::convolution_backward" for event in trace["traceEvents"])
    assert "aten::convolution_backward" in capsys.readouterr().out
