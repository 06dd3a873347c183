"""Values of options."""

import argparse

import pytest

from zoo.bench.options import count, natural


@pytest.mark.parametrize("kind, least", [(count, 1), (natural, 0)])
def test_whole_numbers(kind, least):
    assert kind(str(least)) == least and kind("0030") == 30
    for text in (str(least - 1), "-0", "1.5", "²", "", "9" * 10):
        with pytest.raises(argparse.ArgumentTypeError, match=f"at least {least}, got "):
            kind(text)
