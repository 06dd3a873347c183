"""Missing and tiny files of a split, and which of them are looked at."""

import os

from tests.data.audit import layouts
from tests.helpers.files import touch
from zoo.data.audit import report, sizes


def check(root, deep=False):
    return sizes.check(layouts.load("image", root)[0].inventory(deep), deep)


def test_missing_and_tiny_files(tmp_path):
    layouts.lists(tmp_path, "image", [0, 1, 0, 1], [0, 1])
    touch(tmp_path, "train/1.jpg", content=b"")
    touch(tmp_path, "train/3.jpg", content=b"x" * (sizes.TINY - 1))
    os.remove(tmp_path / "train/2.jpg")
    assert check(tmp_path) == (["train/2.jpg"], ["train/1.jpg (0 bytes)", "train/3.jpg (63 bytes)"], 4)
    warnings = report.examine(*layouts.load("image", tmp_path)).warnings
    assert warnings == [
        "training files that are missing: 1 (train/2.jpg)",
        "training files that are tiny: 2 (train/1.jpg (0 bytes), train/3.jpg (63 bytes))",
    ]


def test_a_file_is_tiny_next_to_large_ones(tmp_path):
    layouts.lists(tmp_path, "image", [0, 1, 0], [0, 1])
    for number, size in ((0, sizes.LARGE), (1, sizes.LARGE), (2, sizes.SMALL - 1)):
        touch(tmp_path, f"train/{number}.jpg", content=b"x" * size)
    assert check(tmp_path).tiny == ["train/2.jpg (1023 bytes)"]
    touch(tmp_path, "train/1.jpg", content=b"x" * 2000)
    assert check(tmp_path).tiny == []


def test_a_large_split_is_sampled(tmp_path, monkeypatch):
    layouts.lists(tmp_path, "image", [0, 1, 0, 1, 0], [0, 1])
    monkeypatch.setattr(sizes, "FILES", 3)
    touch(tmp_path, "train/1.jpg", "train/2.jpg", content=b"")
    assert check(tmp_path) == ([], ["train/2.jpg (0 bytes)"], 3)
    assert len(check(tmp_path, deep=True).tiny) == 2
    (warning,) = report.examine(*layouts.load("image", tmp_path)).warnings
    assert warning == "training files that are tiny, of 3 that were looked at: 1 (train/2.jpg (0 bytes))"
