"""Blocks of a large activation."""

import numpy as np
import pytest

from zoo.trainer.blocks import blocks


@pytest.mark.parametrize("size", (1, 50, 400, 1 << 20))
@pytest.mark.parametrize("shape", [(4, 3, 5, 6), (2, 3, 1, 1), (3, 3, 2, 4, 5)])
def test_blocks_cover_every_element_once(shape, size):
    counts = np.zeros(shape, int)
    for block in blocks(shape, size):
        counts[block] += 1
    assert (counts == 1).all()


def test_blocks_have_about_the_given_size():
    """Whole samples, or rows of one; never less than one row."""
    shape = (4, 3, 8, 6)  # a row of all channels has 18 elements, a sample 144

    def sizes(size):
        return {np.zeros(shape)[block].size for block in blocks(shape, size)}

    assert sizes(1) == {18} and sizes(40) == {36} and sizes(300) == {288} and sizes(1 << 20) == {576}
