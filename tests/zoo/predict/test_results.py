"""Rows, names and the file of the results."""

import json

import pytest

from zoo.predict.results import FILE_NAME, Failure, output_stems, printable, write_results


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
