"""Fields of events whose types are wrong."""

import pytest

from zoo.bench.report import fields


@pytest.mark.parametrize(
    "value, expected",
    [
        (3, 3.0),
        (-0.5, -0.5),
        (True, None),
        ("3", None),
        (None, None),
        ([3], None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
        (1e308, None),
        (1e-308, None),
        (1e-20, 1e-20),
        (0, 0.0),
    ],
)
def test_numbers(value, expected):
    assert fields.number({"a": {"b": value}}, "a", "b") == expected


@pytest.mark.parametrize("event", [None, 3, [], {}, {"a": None}, {"a": 3}, {"a": []}])
def test_missing_fields(event):
    assert fields.number(event, "a", "b") is None and fields.text(event, "a", "b") is None
    assert fields.items(event, "a", "b") == [] and fields.whole(event, "a", "b") is None


@pytest.mark.parametrize("value, expected", [(1, 1), (4.0, 4), (0, None), (-2, None), (1.5, None), (False, None)])
def test_whole_numbers(value, expected):
    assert fields.whole({"a": value}, "a") == expected


@pytest.mark.parametrize(
    "value, expected", [("a\n b", "a b"), ("", None), (" ", None), (3, None), ("x" * 600, "x" * 500)]
)
def test_texts(value, expected):
    assert fields.text({"a": value}, "a") == expected


def test_positive_numbers():
    assert [fields.positive({"a": value}, "a") for value in (2, 0, -1)] == [2.0, None, None]
