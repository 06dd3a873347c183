"""The files that arguments stand for."""

import os

import pytest

from zoo.predict.results import count_frames, find_inputs


@pytest.fixture
def folder(tmp_path):
    for name in ("b.PNG", "a/z.jpg", "a/c/d.txt", "a/.hidden.jpg", ".git/e.jpg", "x/img_00001.jpg", "x/img_2.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def test_folders_are_searched_and_files_are_taken_as_they_are(folder):
    empty = str(folder / "a/c")
    paths, failures = find_inputs([str(folder), str(folder / "a/c/d.txt"), empty, "lost"], (".png", ".jpg"), None)
    assert [os.path.relpath(path, folder) for path in paths] == [
        "b.PNG",
        "a/z.jpg",
        "x/img_00001.jpg",
        "x/img_2.jpg",
        "a/c/d.txt",
    ]
    assert failures == [(empty, "nothing in this folder ends in .png, .jpg"), ("lost", "no such file")]


def test_folders_of_frames_are_inputs(folder):
    paths, _ = find_inputs([str(folder)], (".mp4",), "img_{:05d}.jpg")
    assert paths == [str(folder / "x")] and count_frames(paths[0], "img_{:05d}.jpg") == 2
    assert count_frames(paths[0], None) == count_frames("lost", "img_{:05d}.jpg") == 0
