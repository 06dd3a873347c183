"""Calibrations in files: what is written is read, and a wrong value is named; worlds on the command line."""

import json

import pytest

from tests.bench.scale.calibrations import EIGHT, make
from zoo.bench.options import Cluster, parse_clusters
from zoo.bench.scale import calibration
from zoo.data.errors import UserError


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "calibration.json"
    calibration.write(make(noise=0.1, runs=[(EIGHT, 0.35)]), str(file))
    return file


def test_what_is_written_is_read(path):
    assert calibration.read(str(path)) == make(noise=0.1, runs=[(EIGHT, 0.35)])
    with pytest.raises(UserError, match="File exists"):
        calibration.write(make(), str(path))


@pytest.mark.parametrize(
    "place, value",
    [
        (("batch",), 0),
        (("batch",), True),
        (("steps",), []),
        (("steps", 0, "rounds"), [[0.2], [0.1, -1]]),
        (("steps", 0, "rounds"), []),
        (("input", 1, "samples_per_s"), ["fast"]),
        (("all_reduce", 2, "processes"), 1),
        (("all_reduce", 2, "seconds"), None),
        (("messages", "buckets"), 0),
        (("runs", 0, "hosts"), 0.5),
        (("runs",), None),
        (("format",), 2),
    ],
)
def test_a_wrong_value_is_named(path, place, value):
    content = json.loads(path.read_text())
    parent = content
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"(?s){path}: .*{place[-1]}"):
        calibration.read(str(path))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": 1}', '{"format": 1, "steps": [3]}'])
def test_another_file_is_refused(tmp_path, text):
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(UserError, match="x.json"):
        calibration.read(str(file))
    with pytest.raises(UserError, match="No such file"):
        calibration.read("/no/such/file.json")


def test_hosts_and_cards_are_read():
    clusters = parse_clusters("1,8, 4x8,128X8", "--worlds")
    assert clusters == [Cluster(1, 1), Cluster(1, 8), Cluster(4, 8), Cluster(128, 8)]
    assert clusters[2].size == 32 and str(clusters[2]) == "4x8"


@pytest.mark.parametrize("text", ["", "0", "4x0", "-1", "4x8x2", "1e3", "x8", "8x", "1.5", "²", "99999", "1000x1000"])
def test_other_worlds_are_refused(text):
    with pytest.raises(UserError, match="--worlds"):
        parse_clusters(text, "--worlds")
