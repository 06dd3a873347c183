"""The files that arguments stand for, the file of the results, and a predictor for every data set."""

import json
import os

import numpy as np
import pytest

from zoo import data
from zoo.data.errors import BadSample, UserError
from zoo.predict.classify import softmax
from zoo.predict.predictors import PREDICTORS, find_predictor
from zoo.predict.results import (
    FILE_NAME,
    Failure,
    count_frames,
    find_inputs,
    output_stems,
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


def test_every_data_set_has_a_predictor_that_describes_its_model_input():
    assert sorted(name for datasets in PREDICTORS.values() for name in datasets) == data.names()
    for datasets in PREDICTORS.values():
        for name, predictor in datasets.items():
            field = predictor.fields(data.find(name).Settings())[0]
            assert field.mean and field.shape[-1] == 3 and predictor.extensions
    with pytest.raises(UserError, match="task classify and the data set cityscapes: add one to PREDICTORS"):
        find_predictor("classify", "cityscapes")


def test_logits_that_are_large_or_not_finite():
    np.testing.assert_allclose(softmax(np.array([1e4, 1e4, -1e4])), [0.5, 0.5, 0])
    with pytest.raises(BadSample, match="logits are not finite"):
        softmax(np.array([0.0, np.inf]))
