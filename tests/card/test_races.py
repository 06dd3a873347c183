"""Copies and kernels on two streams: PyTorch's CUDA sanitizer finds no race, and finds one that is planted."""

import pytest

pytestmark = pytest.mark.card


def test_the_copy_of_a_batch_is_ordered_before_the_update(card):
    card("-m", "tests.card.race")


def test_without_the_wait_the_race_is_found(card):
    with pytest.raises(AssertionError, match="CUDASanitizerErrors"):
        card("-m", "tests.card.race", "planted")
