"""What counts in a profile of PyTorch on a CPU and on a GPU."""

from types import SimpleNamespace

import pytest

from zoo.trainer.torch.profiling import is_work


@pytest.mark.parametrize(
    "on_device, kind, is_annotation, counts",
    [
        (False, "CPU", False, True),
        (True, "CPU", False, False),  # the operator that launched a kernel
        (True, "CUDA", False, True),
        (True, "CUDA", True, False),  # Optimizer.step, which spans kernels
    ],
)
def test_what_counts_as_work(on_device, kind, is_annotation, counts):
    event = SimpleNamespace(device_type=SimpleNamespace(name=kind), is_user_annotation=is_annotation)
    assert is_work(event, on_device) == counts
