"""Calibrations in files: what is written is read, and every wrong value is named."""

import json

import pytest

from tests.bench.scale.calibrations import EIGHT, make
from zoo.bench.scale import calibration_file
from zoo.commands.new_file import require_new
from zoo.data.errors import UserError


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "calibration.json"
    calibration_file.write(make(noise=0.1, runs=[(EIGHT, 0.35)]), str(file))
    return file


def test_what_is_written_is_read(path):
    assert calibration_file.read(str(path)) == make(noise=0.1, runs=[(EIGHT, 0.35)])


def test_a_file_is_not_overwritten(path):
    with pytest.raises(UserError, match="this file exists"):
        require_new(str(path), "--out")
    with pytest.raises(UserError, match="File exists"):
        calibration_file.write(make(), str(path))
    with pytest.raises(UserError, match="no such folder"):
        require_new(str(path.parent / "none" / "x.json"), "--out")


@pytest.mark.parametrize(
    "place, value, message",
    [
        (("batch",), 0, "batch: expected a whole number from 1 on, got 0"),
        (("batch",), True, "batch: expected"),
        (("recipe",), 3, "recipe: expected a text"),
        (("steps",), [], "steps: expected a list of 1 objects or more"),
        (("steps", 0, "rounds"), [[0.2], [0.1, -1]], r"steps\[0\].rounds\[1\]: expected a list of positive numbers"),
        (("steps", 0, "rounds"), [], r"steps\[0\].rounds: expected a list of lists of positive numbers"),
        (("input", 1, "samples_per_s"), ["fast"], r"input\[1\].samples_per_s: expected"),
        (("input",), [3], "input: expected a list of 0 objects or more"),
        (("all_reduce", 2, "processes"), 1, r"all_reduce\[2\].processes: expected a whole number from 2 on"),
        (("all_reduce", 2, "seconds"), None, r"all_reduce\[2\].seconds: expected a positive number"),
        (("messages",), [], "messages: expected an object"),
        (("messages", "buckets"), 0, "messages.buckets: expected a whole number from 1 on"),
        (("runs", 0, "hosts"), 0.5, r"runs\[0\].hosts: expected a whole number"),
        (("format",), 2, "no calibration of format 1"),
    ],
)
def test_a_wrong_value_is_named(path, place, value, message):
    content = json.loads(path.read_text())
    parent = content
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        calibration_file.read(str(path))


@pytest.mark.parametrize("text, message", [("{", "no JSON"), ("[]", "no calibration"), ("{}", "no calibration")])
def test_another_file_is_refused(tmp_path, text, message):
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        calibration_file.read(str(file))


def test_a_missing_key_and_a_missing_file_are_named(path):
    content = json.loads(path.read_text())
    del content["runs"]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match="runs: expected a list of 0 objects or more, got None"):
        calibration_file.read(str(path))
    with pytest.raises(UserError, match="No such file"):
        calibration_file.read("/no/such/file.json")
