"""The line and the table of a sound data set, and data that are not checked."""

import pytest

from tests.data.audit import layouts
from tests.data.datasets.test_cityscapes import STEMS, write_city
from tests.helpers.prepared import image_folders, serial_prepare
from zoo.data.audit import report
from zoo.data.datasets import synthetic
from zoo.data.demo import shapes


def test_a_line_and_a_table(tmp_path):
    layouts.folders(tmp_path, "clip", a=(2, 3), b=(4, 2), c=(7, 2))
    found = report.examine(*layouts.load("clip", tmp_path))
    line = "data: train 13 (2/4/7 per class: min/median/max), val 7 (2/2/3), 3 classes"
    assert report.lines(found) == (line,)
    assert found.table == "label,class,train,val\n0,a,2,3\n1,b,4,2\n2,c,7,2\n"


def test_scenes(tmp_path):
    layouts.scenes(tmp_path, train=((0, 0, 1, 255), (2, 2, 2, 2)), val=((0, 1, 1, 2),))
    found = report.examine(*layouts.load("scene", tmp_path))
    assert report.lines(found) == ("data: train 2, val 1, 3 classes",)
    assert found.table == "label,class,train,val\n0,road,96,48\n1,sky,48,96\n2,car,192,48\n"


def test_cityscapes_may_lack_classes(tmp_path):
    write_city(tmp_path, *STEMS)
    found = report.examine(*layouts.load("scene", tmp_path))
    assert report.lines(found) == ("data: train 3, val 1, 19 classes",)


def test_the_demo_set_of_shapes(tmp_path):
    settings = shapes.Settings(root=str(tmp_path / "shapes"), train_images=16, val_images=8)
    found = report.examine(*shapes.load(settings))
    line = "data: train 16 (2/2/2 per class: min/median/max), val 8 (1/1/1), 8 classes"
    assert report.lines(found) == (line,)


def test_frame_folders_have_no_sizes(tmp_path):
    (tmp_path / "f").mkdir()
    for split in ("train", "val"):
        (tmp_path / f"{split}.list").write_text("f 10 0\nf 10 1\n")
    found = report.examine(*layouts.load("clip", tmp_path))
    assert found.problems == [] and found.warnings == ["classes with a single training sample: 2 (class 0, class 1)"]


def test_a_prepared_set(tmp_path, monkeypatch):
    prepare = serial_prepare(monkeypatch)
    root = image_folders(tmp_path / "set")
    copied = (root / "train/cat/0.png").read_bytes()
    (root / "val/cat/0.png").write_bytes(copied)
    for form in ("files", "packs"):
        out = tmp_path / form
        assert prepare("imagenet", root, "--out", out, *(["--pack"] if form == "packs" else [])) == 0
        found = report.examine(*layouts.load("image", out))
        assert found.problems == []
        assert found.warnings == ["validation files that are training files too: 1 (val/cat/0.png is train/cat/0.png)"]


def test_synthetic_data_are_not_checked():
    assert report.examine(*synthetic.load(synthetic.Settings(kind="image"))) is None
    with pytest.raises(ValueError, match="allow_missing_classes: synthetic data have samples of all classes"):
        synthetic.Settings(allow_missing_classes=True)
