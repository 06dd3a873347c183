"""Fixtures of the tests of weights."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Run on one thread, which is faster for small images and models."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
