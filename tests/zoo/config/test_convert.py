"""Values of settings whose type is a union."""

from typing import Literal

import pytest

from zoo.config.convert import convert

Workers = int | Literal["auto"]


def test_a_number_or_a_word():
    assert convert(3, Workers) == 3 and convert("auto", Workers) == "auto"


@pytest.mark.parametrize("value", ["fast", "", None, True, 1.5, [1]])
def test_neither_a_number_nor_the_word(value):
    with pytest.raises(ValueError) as caught:
        convert(value, Workers)
    assert str(caught.value) == f"expected a whole number or auto, got {value!r}"


def test_null_is_accepted_where_the_type_says_so():
    assert convert(None, int | None) is None and convert("", int | None) is None and convert(2, int | None) == 2
    with pytest.raises(ValueError, match="^expected a whole number or null, got 'x'$"):
        convert("x", int | None)
