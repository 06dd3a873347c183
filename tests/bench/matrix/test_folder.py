"""The folder of a matrix: what it refuses, and what survives a kill."""

import pytest

from zoo.bench.matrix.cases import Case, Recipe, Variant
from zoo.bench.matrix.folder import Folder, differences
from zoo.bench.options import Cluster
from zoo.data.errors import UserError

CASE = Case(Variant(), Recipe("tsm_demo", "tsm_demo.yaml", "tsm", "tsm"), "torch", "fp32", 8, Cluster(1, 1))


def test_a_folder_with_other_things_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="something else"):
        Folder(tmp_path, {})
    (tmp_path / "matrix.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        Folder(tmp_path, {})
    with pytest.raises(UserError, match="cannot be written to"):
        Folder(tmp_path / "notes.txt" / "m", {})


def test_the_journal_survives_a_truncated_line(tmp_path):
    target = Folder(tmp_path / "m", {})
    target.add("failure", CASE, reason="out of memory")
    with open(tmp_path / "m/benchmark.jsonl", "a") as file:
        file.write('{"kind": "run", "ca')
    target = Folder(tmp_path / "m", {})
    assert [entry["reason"] for entry in target.of("failure", CASE)] == ["out of memory"]
    target.add("run", CASE, run=1, busy=False)
    again = Folder(tmp_path / "m", {})
    assert [entry["kind"] for entry in again.attempts] == ["failure", "run"]
    again.forget("failure")
    assert again.of("failure", CASE) == []


def test_differences():
    assert differences({"a": {"b": 1, "c": [1]}, "d": {}}, {"a": {"b": 1, "c": [2]}, "d": {}}) == ["a: c: [1] -> [2]"]
    assert differences({"a": {}}, {"a": {"b": None}}) == ["a: b: absent -> None"]
