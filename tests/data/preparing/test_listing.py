"""What the file system says of the listed files: sizes, links, missing files, names that are no text."""

import os

import pytest

from tests.helpers.files import touch
from zoo.data.errors import UserError
from zoo.data.preparing import listing
from zoo.data.preparing.listing import Item, Missing, Sample


def stat_all(root, *paths):
    return list(listing.stat_samples(str(root), [Sample("train", path, 0) for path in paths]))


def test_files_have_their_size_and_time(tmp_path):
    touch(tmp_path, "a", "b", content=b"12345")
    os.utime(tmp_path / "b", ns=(7, 123456789))
    pair = Sample("train", "a", -1, mask="b")
    (item,) = listing.stat_samples(str(tmp_path), [pair])
    assert item == Item(pair, 10, os.stat(tmp_path / "a").st_mtime_ns)
    assert stat_all(tmp_path, "b")[0].modified == 123456789


def test_what_is_no_file(tmp_path):
    touch(tmp_path, "a/x.mp4/inside")
    os.symlink("nowhere", tmp_path / "link")
    os.symlink("circle", tmp_path / "circle")
    os.mkfifo(tmp_path / "pipe")
    entries = stat_all(tmp_path, "a/x.mp4", "link", "circle", "pipe", "none", "a/x.mp4/inside/none")
    assert [entry.problem for entry in entries[:4]] == [
        "a folder, not a file",
        "a link to a file that does not exist",
        "a link that leads to itself",
        "not a regular file",
    ]
    assert entries[4:] == [Missing("train", "none", 0), Missing("train", "a/x.mp4/inside/none", 0)]


def test_a_missing_mask(tmp_path):
    touch(tmp_path, "a")
    assert list(listing.stat_samples(str(tmp_path), [Sample("val", "a", -1, mask="b")])) == [Missing("val", "b", -1)]


def test_names_that_are_not_utf8(tmp_path):
    name = os.fsdecode(b"caf\xe9.mp4")
    touch(tmp_path, name)
    assert stat_all(tmp_path, name)[0].sample.path == name


def test_a_folder_that_cannot_be_searched(tmp_path, monkeypatch):
    def refuse(path, **_):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(UserError, match="a: cannot be read .Permission denied.; make it readable"):
        stat_all(tmp_path, "a")


def test_samples_that_are_listed_twice():
    first, same = Sample("train", "a", 1), Sample("train", "a", 1)
    samples, notes = listing.unique_samples([first, same, Sample("val", "a", 1), Sample("train", "b", 0)])
    assert [sample.path for sample in samples] == ["a", "a", "b"]
    assert notes == (
        "1 samples are listed more than once; each is used once",
        "warning: 1 files are in more than one split",
    )
    with pytest.raises(UserError, match="names it twice, with the labels 1 and 2"):
        listing.unique_samples([first, Sample("train", "a", 2)])


def test_links_to_a_folder_above(tmp_path):
    touch(tmp_path, "train/a/x", "other/y")
    os.symlink("..", tmp_path / "train" / "up")
    os.symlink("../other", tmp_path / "train" / "fine")
    listing.check_links(str(tmp_path), [Sample("train", "train/a/x", 0), Sample("train", "train/fine/y", 1)])
    with pytest.raises(UserError, match="up: this link leads to .* which contains it"):
        listing.check_links(str(tmp_path), [Sample("train", "train/up/train/a/x", 0)])
