"""`python -m evidence peers` and `peers-updates`: files, loaders, passes, figures, and what is refused."""

import itertools
import json
import os

import av
import cv2
import numpy as np
import pytest

from evidence.__main__ import main
from evidence.commands import peers, peers_updates
from evidence.peers import loaders, sets
from evidence.peers.loaders import BARE, OURS, Loader, MapStyle, Task
from tests.data.loaders import sets as small_sets
from zoo.bench.interleave import Seconds
from zoo.data import order
from zoo.data.datasets import cityscapes, faces, imagenet, kinetics
from zoo.data.errors import UserError

pytest.importorskip("torch")
SMALL = ("model.depth=18", "model.width=16", "data.size=32", "data.segments=2", "train.batch=2")
TSM = peers_updates.TASKS["tsm_112"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "clones/project").mkdir(parents=True)
    return ["--upstream", str(tmp_path / "clones")]


def numbers(files, clones):
    """A task whose loaders read numbers; DALI is missing."""
    task = Task(2, (1, 2))
    for name in (OURS, "peer"):
        task.add_peer(name, "numbers", lambda: MapStyle(Squares(), list))

    def missing():
        raise UserError("not installed")

    task.add_peer("DALI", "numbers", missing)
    return task


def test_loaders_of_a_task(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(loaders.TASKS, "faces", numbers)
    monkeypatch.setattr(peers, "_settle", lambda: None)
    path = tmp_path / "figures.json"
    words = [*folder, "--files", str(tmp_path / "files"), "-n", "2", "--task", "faces", "--json", str(path)]
    assert main(["peers", *words]) == 0
    report = json.loads(path.read_text())
    assert [row["loader"] for row in report["faces"]["rows"]] == ["this loader", "peer"]
    assert report["faces"]["rows"][0]["ratio"] == 1 and "numpy" in report["machine"]["packages"]
    assert capsys.readouterr().out.splitlines()[-1] == "left out: DALI on numbers: not installed"


def test_figures_of_loaders():
    """A machine that slows down: medians of ratios differ from ratios of medians, 2 from 1 for the bare loop."""
    cpu = {("clips", OURS): (0.1, 0.2, 0.4), ("clips", BARE): (0.2, 0.1, 0.8), ("frames", OURS): (0.02, 0.04, 0.08)}
    found = peers.rows(
        [Loader(*key, print, print) for key in cpu],
        [[Seconds(2 * value, value) for value in values] for values in cpu.values()],
        [[Seconds(value / 2, 1.1 * value) for value in values] for values in cpu.values()],
        (2, 4),
    )
    assert [row["cpu_ratio"] for row in found] == [row["ratio"] for row in found] == pytest.approx([1, 2, 1])
    assert (found[1]["cpu_ms"], found[1]["samples_per_s"], found[1]["worker_cpu_ms"]) == pytest.approx((100, 40, 55))


@pytest.mark.slow
def test_updates_of_a_task_whose_peer_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(peers_updates.TASKS, "tsm_112", TSM._replace(options=(*TSM.options, *SMALL)))
    out = tmp_path / "updates.json"
    words = ["--upstream", str(tmp_path), "--task", "tsm_112", "-n", "2", "--warm-up", "1", "--json", str(out)]
    assert main(["peers-updates", *words]) == 0
    measured = json.loads(out.read_text())["tasks"]["tsm_112"]
    assert [row["name"] for row in measured["rows"]] == list(measured["times"]) == ["this trainer"]
    assert len(measured["times"]["this trainer"]) == 2
    assert "temporal-shift-module: no such folder" in measured["skipped"]
    assert capsys.readouterr().out.splitlines()[-1] == f"left out: {measured['skipped']}"


def test_the_loop_of_a_peer_gets_the_job_and_the_batch(tmp_path, monkeypatch):
    calls = []

    def update(clones, job, batch):
        calls.append((clones, job.arch.depth, tuple(batch["video"].shape)))
        return lambda: calls.append("step")

    monkeypatch.setattr(peers_updates, "NO_SETTINGS", {})  # of a process of its own
    peers_updates.build(TSM._replace(options=(*TSM.options, *SMALL), update=update), str(tmp_path), True)()
    assert calls == [(str(tmp_path), 18, (2, 2, 32, 32, 3)), "step"]


@pytest.mark.parametrize("command", ["peers", "peers-updates"])
@pytest.mark.parametrize(
    "words, message",
    [
        (["--upstream", "absent"], "--upstream absent: no such folder"),
        (["--upstream", ".", "--json", "README.md"], "this file exists"),
    ],
)
def test_what_is_refused(command, words, message, capsys):
    assert main([command, *words]) == 2
    assert message in capsys.readouterr().err


class Squares:
    def __init__(self, log=None):
        self.log = log

    def __len__(self):
        return 5

    def __getitem__(self, index):
        if self.log is not None:
            self.log.append(index)
        return index * index


def expected(start, count, size=5):
    return [order.locate(0, size, position)[1] for position in range(start, start + count)]


def test_all_read_the_samples_of_a_run(tmp_path, monkeypatch):
    log = []
    loaders.map_style("files", "name", MapStyle(Squares(log), list), batch=3).read(4)
    assert log == expected(12, 3)
    train, _ = small_sets.face_set(tmp_path)
    read = []
    monkeypatch.setattr(train, "sample", lambda index, rng: read.append(index) or {"image": np.zeros((2, 2, 3))})
    loaders.ours("faces", train, batch=4).read(2)
    assert read == expected(8, 4, len(train))


def test_processes_read_without_end(tmp_path):
    pytest.importorskip("torch")
    stream = loaders.map_style("files", "name", MapStyle(Squares(), list), batch=3).stream()
    batches = list(itertools.islice(stream, 4))
    stream.close()
    assert batches == [[index * index for index in expected(3 * number, 3)] for number in range(4)]
    train, _ = small_sets.face_set(tmp_path)
    task = loaders.Task(4, (1, 1))
    task.add_own("faces", lambda settings: (train, None), None, dali=False)
    stream = task.loaders[1].stream()
    batch = next(stream)
    stream.close()
    assert task.loaders[1].name == "bare loop" and tuple(batch.shape) == (4, *train.fields[0].shape)


@pytest.fixture
def few(monkeypatch):
    small = {"IMAGES": 2, "CLASSES": 2, "CLIPS": 2, "FRAMES": 20, "PAIRS": 1, "IDENTITIES": 20, "FACES_EACH": 2}
    for name, value in small.items():
        monkeypatch.setattr(sets, name, value)


def test_images(few, tmp_path):
    for folder in ("a", "b"):
        sets.images(str(tmp_path / folder))
    train, val = imagenet.load(imagenet.Settings(root=str(tmp_path / "a")))
    assert (len(train), len(val)) == (2, 2)
    for path in sorted((tmp_path / "a").rglob("*.JPEG")):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
        assert 70_000 < path.stat().st_size < 130_000 and cv2.imread(str(path)).shape == (375, 500, 3)


def test_clips_and_their_frames(few, tmp_path):
    os.makedirs(tmp_path / "clips")
    sets.clips(str(tmp_path / "clips"))
    sets.frames(str(tmp_path / "frames"), str(tmp_path / "clips"))
    for folder in ("clips", "frames"):
        train, val = kinetics.load(kinetics.Settings(root=str(tmp_path / folder)))
        assert (len(train), len(val)) == (2, 1)
    with av.open(str(tmp_path / "clips/clip000.mp4")) as container:
        assert container.streams.video[0].codec_context.name == "h264"
        decoded = [frame.to_ndarray(format="bgr24") for frame in container.decode(video=0)]
    assert len(decoded) == 20 and decoded[0].shape == (256, 340, 3)
    last = cv2.imread(str(tmp_path / "frames/clip000/img_00020.jpg"))
    assert np.abs(last.astype(int) - decoded[-1]).mean() < 4 < np.abs(last.astype(int) - decoded[0]).mean()


@pytest.mark.slow
def test_faces_are_packed(few, tmp_path):
    sets.faces(str(tmp_path / "faces"))
    train, _ = faces.load(faces.Settings(root=str(tmp_path / "faces/pack"), val_fraction=0.4))
    image = train.sample(0, np.random.default_rng(0))["image"]
    assert image.shape == (112, 112, 3) and len(train.classes) <= 20
    assert 3_000 < os.path.getsize(tmp_path / "faces/pack/train.rec") / 40 < 9_000


@pytest.mark.slow
def test_scenes(few, tmp_path):
    sets.scenes(str(tmp_path))
    train, _ = cityscapes.load(cityscapes.Settings(root=str(tmp_path), base_size=(1024, 2048)))
    sample = train.sample(0, np.random.default_rng(0))
    assert sample["image"].shape == (512, 1024, 3) and len(np.unique(sample["label"])) > 2
    (image,) = (tmp_path / "leftImg8bit/train/aachen").iterdir()
    assert 1.8e6 < image.stat().st_size < 3e6 and cv2.imread(str(image)).shape == (1024, 2048, 3)
