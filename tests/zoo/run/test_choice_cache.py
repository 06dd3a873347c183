import json
import os

import pytest

from zoo.run import choice_cache

FACTS = {"model": "tsm", "arch": {"depth": 18}, "batch": 4, "level": None}
OTHER = {**FACTS, "batch": 8}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_times_are_found_by_all_facts(folder):
    assert choice_cache.read(FACTS, 2) is None
    assert choice_cache.add(FACTS, [0.5, 0.25]) is None and choice_cache.add(OTHER, [2.0, 3.0]) is None
    assert choice_cache.read(dict(reversed(FACTS.items())), 2) == [0.5, 0.25]
    assert choice_cache.read(OTHER, 2) == [2.0, 3.0] and choice_cache.read({**FACTS, "batch": 16}, 2) is None
    assert os.listdir(folder / "vision-zoo") == ["choices.json"]


def test_without_the_variable_it_is_in_the_home_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert choice_cache.path() == tmp_path / ".cache/vision-zoo/choices.json"


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"x": 1}', "\x00\xff", "[" * 100_000])
def test_a_damaged_file_counts_for_nothing_and_is_replaced(folder, text):
    choice_cache.add(FACTS, [1.0, 2.0])
    choice_cache.path().write_bytes(text.encode("latin-1"))
    assert choice_cache.read(FACTS, 2) is None
    assert choice_cache.add(FACTS, [3.0, 4.0]) is None and choice_cache.read(FACTS, 2) == [3.0, 4.0]


@pytest.mark.parametrize("seconds", [None, [1.0], [1.0, 2.0, 3.0], [1.0, "2"], [1.0, -2.0], [1.0, float("nan")], {}])
def test_damaged_times_count_for_nothing(folder, seconds):
    choice_cache.add(FACTS, [1.0, 2.0])
    entries = json.loads(choice_cache.path().read_text())
    for entry in entries.values():
        entry["seconds"] = seconds
    choice_cache.path().write_text(json.dumps(entries))
    assert choice_cache.read(FACTS, 2) is None


def test_a_file_that_cannot_be_written_is_told(folder):
    (folder / "vision-zoo").write_text("a file where the folder should be")
    problem = choice_cache.add(FACTS, [1.0, 2.0])
    assert problem.startswith(str(choice_cache.path())) and "the next run measures again" in problem
