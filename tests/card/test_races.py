"""Copies and kernels on two streams: PyTorch's CUDA sanitizer finds no race."""

import pytest

pytestmark = pytest.mark.card


def test_the_copy_of_a_batch_is_ordered_before_the_update(card):
    card("-m", "tests.card.race")
