"""The files that arguments stand for; rows, names and the file of the results."""

import json
import os

import pytest

from zoo.predict.results import (
    FILE_NAME,
    Failure,
    count_frames,
    find_inputs,
    output_stems,
    printable,
    write_results,
)


def test_outputs_of_files_of_the_same_name_are_kept_apart():
    assert output_stems(["a/x.png", "b/x.png", "x-2.png", "c/x.jpg", "y", "a.b.mp4"]) == [
        "x",
        "x-2",
        "x-2-2",
        "x-3",
        "y",
        "a.b",
    ]


def test_results_are_json_with_a_line_per_file_and_never_overwritten(tmp_path):
    rows = [{"file": "a", "top": ["cat"]}, Failure("b", "no such file").row]
    write_results(str(tmp_path), {"model": "resnet"}, rows)
    text = (tmp_path / FILE_NAME).read_text()
    assert json.loads(text) == {"model": "resnet", "files": rows}
    assert sum('"file":' in line for line in text.splitlines()) == 2
    with pytest.raises(FileExistsError):
        write_results(str(tmp_path), {}, [])


def test_paths_that_are_not_utf_8_can_be_printed():
    assert printable("a\udcff.jpg") == "a\N{REPLACEMENT CHARACTER}.jpg"


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
