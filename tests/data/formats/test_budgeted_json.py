"""JSON that asks for much by little text."""

import json
import math

import pytest

from zoo.data.errors import BadSample
from zoo.data.formats import regular


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, True, "ü"]}, [], 3, "text", {"": {"": {}}}])
def test_values_within_the_budget(tmp_path, value):
    assert regular.parse_json(json.dumps(value)) == value
    (tmp_path / "a.json").write_text("\ufeff" + json.dumps(value), encoding="utf-8")
    assert regular.load_json(str(tmp_path / "a.json")) == value


@pytest.mark.parametrize("item", ["[],", "{},", '{"a":{}},', "0,"])
def test_memory_and_depth(item):
    with pytest.raises(ValueError, match="more memory than a file of its size should"):
        regular.parse_json("[" + item * (regular.FREE_BYTES // 50) + "0]")
    with pytest.raises(ValueError, match="too many levels"):
        regular.parse_json("[" * 100_000 + "1" + "]" * 100_000)


def test_other_texts_and_files(tmp_path):
    for text in ("", "{", "[1 2]", "nan", "1" * 5000):
        with pytest.raises(ValueError):
            regular.parse_json(text)
    with pytest.raises(BadSample, match="not a regular file"):
        regular.load_json("/dev/zero")
    (tmp_path / "a.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError):
        regular.load_json(str(tmp_path / "a.json"))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite(number):
    assert not math.isfinite(regular.parse_json(f"[{number}]")[0])
    with pytest.raises(ValueError, match=f"the number {number} is not finite"):
        regular.parse_json(f"[{number}]", finite=True)
    assert regular.parse_json("[1e308, -2.5, 3]", finite=True) == [1e308, -2.5, 3]
