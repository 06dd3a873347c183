"""Validation files that are training files too: by name and size, by content with deep, and within limits."""

import pytest

from tests.data.audit import layouts
from tests.helpers.face_sets import PACK, write_set
from tests.helpers.files import touch
from zoo.data.audit import copies, report


@pytest.fixture
def images(tmp_path):
    """Two classes, with a file of the same name and size, but other content, in both splits."""
    layouts.folders(tmp_path, "image", a=(3, 2), b=(3, 2))
    touch(tmp_path, "train/a/x.jpg", content=b"1" * 100)
    touch(tmp_path, "val/b/x.jpg", content=b"2" * 100)
    return tmp_path


def found(root, deep=False, kind="image", **keys):
    train, val = layouts.load(kind, root, **keys)
    return copies.find(train.inventory(deep), val.inventory(deep), deep)


def test_equal_names_and_sizes_are_no_copies(images):
    assert found(images) == found(images, deep=True) == ([], [])


def test_a_copy_with_its_name(images):
    touch(images, "val/b/x.jpg", content=b"1" * 100)
    assert found(images).pairs == found(images, deep=True).pairs == [("train/a/x.jpg", "val/b/x.jpg")]
    warning = "validation files that are training files too: 1 (val/b/x.jpg is train/a/x.jpg)"
    assert report.examine(*layouts.load("image", images)).warnings == [warning]
    touch(images, "train/b/x.jpg", content=b"1" * 100)
    assert len(found(images).pairs) == 2 and report.examine(*layouts.load("image", images)).warnings == [warning]


def test_a_copy_with_another_name_needs_deep(images):
    touch(images, "val/b/y.jpg", content=b"1" * 100)
    assert found(images).pairs == []
    assert found(images, deep=True).pairs == [("train/a/x.jpg", "val/b/y.jpg")]


def test_clips_and_scenes(tmp_path):
    layouts.folders(tmp_path / "clips", "clip", a=(2, 2))
    touch(tmp_path / "clips", "train/a/same.mp4", "val/a/same.mp4", content=b"video" * 20)
    assert found(tmp_path / "clips", kind="clip").pairs == [("train/a/same.mp4", "val/a/same.mp4")]
    layouts.scenes(tmp_path / "scenes")
    touch(tmp_path / "scenes", "images/val/0.jpg", content=(tmp_path / "scenes/images/train/0.jpg").read_bytes())
    pairs = [(f"images/train/{number}.jpg", "images/val/0.jpg") for number in range(2)]  # both have the same pixels
    assert found(tmp_path / "scenes", kind="scene").pairs == pairs[:1]
    assert found(tmp_path / "scenes", True, "scene").pairs == pairs


@pytest.mark.parametrize("layout", ["rec", "list", "folder"])
def test_an_image_of_a_verification_set_that_is_trained_on(layout, tmp_path):
    write_set(tmp_path, layout)
    keys = {"kind": "face", "verification": ("own.txt",)}
    for name in ("p.png", "q.png"):
        touch(tmp_path, name, content=b"other")
    touch(tmp_path, "seen.png", content=PACK[1][2])
    (tmp_path / "own.txt").write_text("seen.png p.png 0\n" * 9 + "p.png q.png 1\n")
    assert found(tmp_path, eval_bad="wrong", **keys).pairs == []
    name = {"rec": "train.rec key 8", "list": "images/p1/2.png", "folder": "train/p1/2.png"}[layout]
    assert (name, "seen.png") in found(tmp_path, True, eval_bad="wrong", **keys).pairs


def test_what_is_left_out_is_said(images, monkeypatch):
    touch(images, "val/b/x.jpg", content=b"1" * 100)
    monkeypatch.setattr(copies, "NAMES", 6)
    result = found(images)
    assert result.limits == ["the names of 6 of 7 train files"]
    summary = report.examine(*layouts.load("image", images)).summary
    assert summary.endswith(", 2 classes; copies were looked for by the names of 6 of 7 train files")
    monkeypatch.setattr(copies, "NAMES", 7)
    monkeypatch.setattr(copies, "SIZES", 0)
    assert (
        found(images).limits == [f"the sizes of 0 of 1 {split} files" for split in ("train", "val")]
        and found(images).pairs == []
    )
    assert found(images, deep=True).limits == [] and len(found(images, deep=True).pairs) == 1


def test_numbers_are_spread():
    assert list(copies.spread(5, 5)) == [0, 1, 2, 3, 4]
    assert list(copies.spread(101, 3)) == [0, 50, 100]
