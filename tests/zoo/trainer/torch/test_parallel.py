"""What DistributedDataParallel exchanges, in a process group of one process."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from zoo.trainer.torch.parallel import data_parallel


@pytest.fixture(autouse=True)
def group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_running_statistics_are_those_of_each_rank():
    assert not data_parallel(nn.BatchNorm1d(2), False).will_sync_module_buffers()


@pytest.mark.parametrize("fp16_allreduce", [False, True])
def test_gradients_travel_as_fp16_where_the_plan_says_so(fp16_allreduce):
    model = data_parallel(nn.Linear(1, 1, bias=False), fp16_allreduce)
    value = 1 + 2.0**-12  # which fp16 rounds to 1
    model(torch.full((1, 1), value)).backward()
    assert model.module.weight.grad.item() == (1.0 if fp16_allreduce else value)
