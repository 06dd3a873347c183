"""JSON that asks for much by little text."""

import json
import math

import pytest

from zoo.data.errors import BadSample
from zoo.data.formats import budgeted_json


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, True, "ü"]}, [], 3, "text", {"": {"": {}}}])
def test_values_within_the_budget(tmp_path, value):
    assert budgeted_json.loads(json.dumps(value)) == value
    (tmp_path / "a.json").write_text("\ufeff" + json.dumps(value), encoding="utf-8")
    assert budgeted_json.load(str(tmp_path / "a.json")) == value


@pytest.mark.parametrize("item", ["[],", "{},", '{"a":{}},', "0,"])
def test_memory_and_depth(item):
    with pytest.raises(ValueError, match="more memory than a file of its size should"):
        budgeted_json.loads("[" + item * (budgeted_json.FREE_BYTES // 50) + "0]")
    with pytest.raises(ValueError, match="too many levels"):
        budgeted_json.loads("[" * 100_000 + "1" + "]" * 100_000)


def test_other_texts_and_files(tmp_path):
    for text in ("", "{", "[1 2]", "nan", "1" * 5000):
        with pytest.raises(ValueError):
            budgeted_json.loads(text)
    with pytest.raises(BadSample, match="not a regular file"):
        budgeted_json.load("/dev/zero")
    (tmp_path / "a.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError):
        budgeted_json.load(str(tmp_path / "a.json"))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite(number):
    assert not math.isfinite(budgeted_json.loads(f"[{number}]")[0])
    with pytest.raises(ValueError, match=f"the number {number} is not finite"):
        budgeted_json.loads(f"[{number}]", finite=True)
    assert budgeted_json.loads("[1e308, -2.5, 3]", finite=True) == [1e308, -2.5, 3]
