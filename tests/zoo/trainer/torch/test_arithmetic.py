"""PyTorch's settings of TF32 and 16-bit sums, which exist without a GPU too."""

import pytest
import torch

from zoo.trainer.plan import Arithmetic
from zoo.trainer.torch import arithmetic

MATMUL, CUDNN = "torch.backends.cuda.matmul", "torch.backends.cudnn"


@pytest.fixture(autouse=True)
def restored():
    before = arithmetic.settings()
    yield
    for name, value in before.items():
        owner, _, attribute = name.rpartition(".")
        setattr(torch.backends.cuda.matmul if owner == MATMUL else torch.backends.cudnn, attribute, value)


@pytest.mark.parametrize("tf32, benchmark", [(False, True), (True, False)])
def test_settings_in_force_are_those_of_the_run(tf32, benchmark):
    arithmetic.apply(Arithmetic(tf32, benchmark))
    assert arithmetic.settings() == {
        f"{MATMUL}.allow_tf32": tf32,
        f"{MATMUL}.allow_fp16_reduced_precision_reduction": False,
        f"{MATMUL}.allow_bf16_reduced_precision_reduction": False,
        f"{CUDNN}.allow_tf32": tf32,
        f"{CUDNN}.benchmark": benchmark,
        f"{CUDNN}.deterministic": False,
    }


@pytest.mark.parametrize("tf32", [False, True])
def test_older_and_newer_settings_of_tf32_agree(tf32):
    """torch.compile reads both."""
    arithmetic.apply(Arithmetic(tf32))
    assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
    for newer in (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn):
        assert (newer.fp32_precision == "tf32") == tf32
