"""Numbers in arguments and variables."""

import pytest

from zoo.data.numerals import natural


@pytest.mark.parametrize("text, number", [("0", 0), ("8", 8), ("007", 7), ("999999999", 999_999_999)])
def test_numbers(text, number):
    assert natural(text) == number


@pytest.mark.parametrize("text", ["", "²", "٣", "-1", "+1", "1 ", "1\n", "1_000", "1.0", "1" * 10, "1" * 5000])
def test_what_is_none(text):
    assert natural(text) is None
