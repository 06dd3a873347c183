"""The report of `zoo data check` on intact, damaged and unreadable images."""

import os

import cv2
import numpy as np
import pytest

from tests.helpers import layouts
from tests.helpers.cli import call_zoo
from zoo.commands import check_data


@pytest.fixture
def folder(tmp_path):
    """Two classes of an intact image each, with room for others."""
    for number, name in enumerate(("train/a", "train/b", "val/a", "val/b")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "intact.jpg").write_bytes(encoded(number))
    return tmp_path


def encoded(seed):
    coarse = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), np.uint8)
    return cv2.imencode(".jpg", cv2.resize(coarse, (160, 120), interpolation=cv2.INTER_CUBIC))[1].tobytes()


def run(folder, *overrides, deep=False, words=()):
    recipe = os.path.join(os.path.dirname(check_data.__file__), "../configs/resnet50_imagenet.yaml")
    keys = (f"data.root={folder}", *overrides)
    words = [*words, *(["--deep"] if deep else []), *[word for key in keys for word in ("-o", key)]]
    return call_zoo("data", "check", "-c", recipe, *words)


def test_intact_images(folder, capfd):
    assert run(folder, deep=True) == 0
    printed = capfd.readouterr()
    assert "training: 2 samples read, 0 unreadable" in printed.out and "damaged" not in printed.out
    assert printed.err == ""


def test_unreadable_and_damaged_images_are_named(folder, capfd):
    """What libjpeg says about damaged data names no file."""
    content = encoded(9)
    (folder / "train/a/shortened.jpg").write_bytes(content[: len(content) * 2 // 3] + b"\xff\xd9")
    (folder / "train/b/text.jpg").write_bytes(b"text")
    (folder / "val/b/short.jpg").write_bytes(content[: len(content) * 2 // 3])
    assert run(folder, deep=True) == 1
    printed = capfd.readouterr()
    lines = printed.out.splitlines()
    assert "training: 4 samples read, 1 unreadable (25.000%)" in lines
    assert "  train/b/text.jpg: not an image of a supported format" in lines
    (damaged,) = [line for line in lines if "damaged, but it can be read" in line]
    assert damaged.startswith("  train/a/shortened.jpg: ") and "Corrupt JPEG data" in damaged
    assert "validation: 3 samples read, 1 unreadable (33.333%)" in lines
    assert printed.err == ""


def test_missing_classes_are_told_as_a_run_does(folder, tmp_path_factory, capsys):
    (folder / "val/b").rename(folder / "val/B")
    (folder / "train/b/empty.jpg").write_bytes(b"")
    table = tmp_path_factory.mktemp("table") / "classes.csv"
    assert run(folder, words=("--out", str(table))) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "data: train 3 (0/1/2 per class: min/median/max), val 2 (0/1/1), 3 classes",
        "data: warning: classes with a single training sample: 1 (a)",
        "data: warning: training files that are tiny: 1 (train/b/empty.jpg (0 bytes))",
    ]
    assert lines[3].startswith("error: ") and lines[4] == "  val/B: train has b" and "samples read" not in lines[-1]
    assert table.read_text() == "label,class,train,val\n0,B,0,1\n1,a,1,1\n2,b,2,0\n"
    assert run(folder, "data.allow_missing_classes=true") == 0
    assert "data: passed by data.allow_missing_classes: val/B: train has b" in capsys.readouterr().out


def test_deep_names_values_that_are_no_class(tmp_path, capsys):
    layouts.scenes(tmp_path, train=((0, 1, 2), (0, 1, 9), (0, 1, 2)))
    recipe = os.path.join(os.path.dirname(check_data.__file__), "../configs/deeplabv3plus_cityscapes.yaml")
    words = ["-c", recipe, "-o", f"data.root={tmp_path}", "-o", "data.crop=[8, 8]", "-o", "data.checked_masks=1"]
    assert call_zoo("data", "check", *words) == 0 and call_zoo("data", "check", *words, "--deep") == 1
    printed = capsys.readouterr().out
    assert "train/1.png: holds the value 9; legal values are 0 to 2 for the 3 classes" in printed
