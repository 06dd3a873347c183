"""The check of the data before a run: it stops every task before a framework is loaded, on rank 0 for all."""

import os
import sys
from contextlib import contextmanager

import pytest

from tests.helpers import layouts, training
from tests.helpers.paths import CONFIGS
from zoo.data.errors import UserError
from zoo.run import dataset
from zoo.run.job import assemble, join
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options

RECIPES = {
    "clip": "tsm_k400",
    "image": "resnet50_imagenet",
    "scene": "deeplabv3plus_cityscapes",
    "face": "arcface_ms1m",
}


def empty_class(kind, root):
    layouts.folders(root, kind, bikes=(3, 2), cars=(3, 2))
    (root / "classes.txt").write_text("bikes\ncars\ntrucks\n")
    return "trucks: no sample in train or val"


def unseen_class(kind, root):
    layouts.scenes(root, names="road\nsky\ncar\ntruck\n")
    return "1 (truck) of 4 classes: no pixel in 2 training masks"


def stray_identity_of_a_pack(kind, root):
    layouts.faces_pack(root, [0, 0, 1, 3])
    (root / "property").write_text("4,12,12\n")
    return "class 2: no training sample"


@pytest.mark.parametrize(
    "kind, fault",
    [("clip", empty_class), ("image", empty_class), ("scene", unseen_class), ("face", stray_identity_of_a_pack)],
)
def test_no_task_starts_with_wrong_classes(kind, fault, tmp_path):
    expected = fault(kind, tmp_path)
    changes = [f"data.root={tmp_path}", "data.workers=0"]
    changes += {"face": ["data.size=12", "data.verification=[lfw.bin]"], "scene": ["data.crop=[8, 8]"]}.get(kind, [])
    request = resolve_recipe(Options(str(CONFIGS / f"{RECIPES[kind]}.yaml"), changes))
    with pytest.raises(UserError) as caught:
        assemble(request, join(request, {}))
    assert expected in str(caught.value)


def test_the_command_stops_with_2_and_makes_no_folder(tmp_path):
    layouts.folders(tmp_path / "clips", "clip", bikes=(3, None), bike=(None, 2), cars=(3, 2))
    words = ["-c", training.K400, "-o", f"data.root={tmp_path / 'clips'}", "--out", str(tmp_path / "run")]
    ended = training.run([sys.executable, training.TRAIN, *words])
    assert ended.returncode == 2 and "\n  val/bike: train has bikes\n" in ended.stderr
    assert not os.path.exists(tmp_path / "run")


class Group:
    """A rank of two, which records what it does together with the other."""

    size = 2

    def __init__(self, rank):
        self.rank, self.calls = rank, []

    def all_gather(self, value):
        self.calls.append("all_gather")
        return [value] * 2

    @contextmanager
    def time_limit(self, seconds, operation):
        self.calls.append(f"at most {seconds:g} s")
        yield
        self.calls.append("in time")


class Unreadable:
    """A split that must not be looked at."""

    def inventory(self, deep):
        raise AssertionError


def settings(**keys):
    return layouts.MODULES["image"].Settings(**keys)


def test_rank_0_checks_and_the_others_wait_with_a_limit(tmp_path):
    layouts.folders(tmp_path, "image", a=(3, 2), b=(2, 2))
    ranks = [Group(0), Group(1)]
    found = dataset.audit_data(ranks[0], settings(), *layouts.load("image", tmp_path))
    assert found.lines == ("data: train 5 (2/2.5/3 per class: min/median/max), val 4 (2/2/2), 2 classes",)
    assert dataset.audit_data(ranks[1], settings(), Unreadable(), Unreadable()) == dataset.Audit()
    assert ranks[0].calls == ranks[1].calls == ["at most 600 s", "all_gather", "in time"]


def test_the_key_and_an_evaluation_alone_let_missing_classes_pass(tmp_path):
    layouts.folders(tmp_path, "image", a=(3, None), b=(2, 2))
    splits = layouts.load("image", tmp_path)
    with pytest.raises(UserError, match="train/a: val has no sample of it"):
        dataset.audit_data(Group(0), settings(), *splits)
    found = dataset.audit_data(Group(0), settings(allow_missing_classes=True), *splits)
    problem = "train/a: val has no sample of it (label 0: 3 samples)"
    assert found.lines[1:] == (f"data: passed by data.allow_missing_classes: {problem}",)
    found = dataset.audit_data(Group(0), settings(), *splits, eval_only=True)
    assert found.lines[1:] == (f"data: passed by --eval-only: {problem}",)


def test_the_table_is_a_file_of_the_run(tmp_path):
    dataset.write_table(dataset.Audit(), str(tmp_path))
    assert os.listdir(tmp_path) == []
    dataset.write_table(dataset.Audit(("line",), "label,class,train\n0,a,2\n"), str(tmp_path))
    assert (tmp_path / "classes.csv").read_text() == "label,class,train\n0,a,2\n"
