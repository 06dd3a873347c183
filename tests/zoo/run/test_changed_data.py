"""Runs whose data change between a stop and a resume: refused with what changed, accepted, mended, moved."""

import json
import shutil

import numpy as np
import pytest

import zoo
from tests.helpers.paths import ROOT
from tests.zoo import api_cases
from zoo.commands import train
from zoo.data.demo import shapes
from zoo.data.errors import UserError
from zoo.data.record import DataRecord, SplitRecord
from zoo.run import checkpoint, resume
from zoo.run.progress import Progress

RECIPE = ROOT / "configs/resnet50_demo.yaml"
slow = pytest.mark.slow
FIRST, SECOND = "train/cross/00000.JPEG", "train/disc/00001.JPEG"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp("shapes") / "shapes"
    shapes.make(str(root), 64, 16)
    return root


@pytest.fixture
def root(tmp_path, images):
    """A data set that the test may change."""
    return shutil.copytree(images, tmp_path / "data")


@pytest.fixture
def run(tmp_path, root):
    """Return a function that starts or resumes a run, whose evaluations follow updates 3 and 6."""
    folder = tmp_path / "run"

    def train(max_steps=None, accept=False, **changes):
        small = {"data.root": str(root), "data.workers": 0, "train.eval_every": 3, "train.log_every": 1}
        settings = {**api_cases.RUN, **small, **{key.replace("__", "."): value for key, value in changes.items()}}
        place = {"resume": folder} if folder.exists() else {"out": folder}
        zoo.Run(RECIPE, settings, max_steps=max_steps, accept_changed_data=accept, **place).train()
        return folder

    return train


def events(folder, *kinds):
    with open(folder / "events.jsonl") as file:
        return [event for event in map(json.loads, file) if event["event"] in kinds]


def steps(folder):
    return [event["step"] for event in events(folder, "train")]


def spoil(root, *names, content=b"not an image"):
    for name in names:
        (root / name).write_bytes(content)


def mend(root, images, *names):
    for name in names:
        shutil.copy(images / name, root / name)


@slow
def test_what_changed_is_told_and_nothing_is_trained_until_it_is_accepted(run, root, images, capfd):
    run(max_steps=2)
    spoil(root, FIRST, content=(images / SECOND).read_bytes())
    shutil.copy(images / SECOND, root / "train/star/new.JPEG")
    (root / "val/ring/00003.JPEG").rename(root / "val/square/00003.JPEG")
    with pytest.raises(UserError) as refused:
        run()
    assert str(refused.value).split("\n  ") == [
        "resume: the data are not those of this run any more:",
        "training: 64 samples, now 65",
        "training: 1 added: train/star/new.JPEG",
        f"training: 1 with other contents: {FIRST}",
        "validation: 1 added: val/square/00003.JPEG",
        "validation: 1 removed: val/ring/00003.JPEG",
        "restore them, or go on with them as they are by accept_changed_data=True, which is recorded",
    ]
    capfd.readouterr()
    folder = run(max_steps=4, accept=True)
    assert "accepted:\n  training: 64 samples, now 65" in capfd.readouterr().out
    assert steps(folder) == [1, 2, 3, 4]
    (change,) = events(folder, "data_changed")
    zeros = dict.fromkeys(("added", "removed", "relabeled", "changed", "mended"), 0)
    assert change["counts"] == {
        "train": {**zeros, "added": 1, "changed": 1},
        "val": {**zeros, "added": 1, "removed": 1},
    }
    assert (change["first_step"], change["accepted"], change["train_samples"]) == (2, True, 65)
    run()  # what was accepted is the data of the run now
    assert steps(folder) == [1, 2, 3, 4, 5, 6] and len(events(folder, "data_changed")) == 1


def test_a_mended_evaluation_file_is_no_change_and_nothing_is_trained_twice(run, root, images, capfd):
    name = "val/disc/00001.JPEG"
    spoil(root, name)
    with pytest.raises(UserError, match=f"evaluation: {name}: .*; repair or remove it"):
        run()
    folder = root.parent / "run"
    assert [event["name"] for event in events(folder, "unreadable")] == [name]
    mend(root, images, name)
    spoil(root, FIRST)
    with pytest.raises(UserError, match=f"training: 1 with other contents: {FIRST}\n  restore"):  # only that
        run()
    mend(root, images, FIRST)
    capfd.readouterr()
    run()
    assert f"mended since they could not be read, which is no change: {name}\n" in capfd.readouterr().out
    assert steps(folder) == [1, 2, 3, 4, 5, 6] and [event["step"] for event in events(folder, "eval")] == [3, 6]
    (change,) = events(folder, "data_changed")
    assert change["mended"] == [name] and not change["accepted"]
    (folder / "checkpoints/last").unlink()
    spoil(root, name)
    with pytest.raises(UserError, match=f"validation: 1 with other contents: {name}"):  # it was mended already
        run()


@slow
def test_training_files_that_ended_a_run_may_be_mended_all(run, root, images):
    names = [f"train/ring/{number:05d}.JPEG" for number in (3, 11, 19)]
    spoil(root, *names)
    with pytest.raises(UserError, match="too many unreadable training samples"):
        run()
    folder = root.parent / "run"
    done = steps(folder)
    assert set(names) == {event["name"] for event in events(folder, "bad", "unreadable")}
    mend(root, images, *names)
    run()
    assert steps(folder) == [1, 2, 3, 4, 5, 6] and done == steps(folder)[: len(done)] != []
    assert sorted(events(folder, "data_changed")[0]["mended"]) == names


@slow
def test_a_row_of_unreadable_files_saves_what_was_done(run, root, images):
    """Batches that cannot be read at all: not one update is lost, and none is repeated after mending."""
    keep = {path: path.read_bytes() for path in sorted((root / "train").rglob("*.JPEG"))}
    run(max_steps=2, train__save_every="2 steps")
    folder = root.parent / "run"
    for path in keep:
        path.write_bytes(b"")
    with pytest.raises(UserError, match="samples in a row cannot be read"):
        run(accept=True, data__max_bad=1.0)
    for path, content in keep.items():
        path.write_bytes(content)
    run(accept=True)
    assert steps(folder) == [1, 2, 3, 4, 5, 6]


@slow
def test_the_same_files_elsewhere_and_read_by_another_method_are_no_change(run, root, tmp_path):
    folder = run(max_steps=2)
    record = resume.read_data_record(str(folder / "checkpoints/last"))
    shutil.move(root, tmp_path / "elsewhere")
    run(max_steps=4, data__root=str(tmp_path / "elsewhere"))
    run(data__root=str(tmp_path / "elsewhere"), data__checksum="full")
    assert steps(folder) == [1, 2, 3, 4, 5, 6] and not events(folder, "data_changed")
    now = resume.read_data_record(str(folder / "checkpoints/last"))
    assert (now.checksum, now.method) == (record.checksum, "sampled")


@slow
def test_an_evaluation_alone_may_have_other_data(run, root):
    folder = run(max_steps=3)
    (root / "val/disc/00001.JPEG").unlink()
    settings = {"data.root": str(root), "data.workers": 0}
    assert zoo.Run(None, settings, resume=folder).evaluate()["samples"] == 15


def test_the_record_of_the_same_data_has_the_same_bytes():
    """Checkpoints of equal runs can be compared file by file."""
    split = SplitRecord(2, ("disc", "cross"), b"names", np.arange(2, dtype=np.uint32))
    data = resume.DataState(DataRecord("ab", "sampled", split, split), Progress())
    assert len({data.files()[checkpoint.DATA] for _ in range(20)}) == 1


def test_the_flag_belongs_to_a_resume():
    with pytest.raises(UserError, match="--accept-changed-data: belongs to --resume"):
        train.read(train.parse(["-c", str(RECIPE), "--accept-changed-data"]))
