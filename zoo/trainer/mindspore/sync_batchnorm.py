"""Batch normalization with statistics over all ranks, which MindSpore has only for GPUs and NPUs (nn.SyncBatchNorm)."""

from typing import Any

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype


class SyncBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm2d in training mode with statistics over all ranks.

    On CPUs in float64, so that the result does not depend on how samples are distributed over ranks.

    Attributes:
        world_size: number of ranks.
        all_reduce: the collective; None for one rank.
        wide_type: floating-point type of the computation.
    """

    world_size: int
    all_reduce: Any
    wide_type: Any

    def construct(self, x: Tensor) -> Tensor:
        axes = (0, 2, 3)
        count = x.size // x.shape[1] * self.world_size  # every rank has the same batch size
        wide = x.astype(self.wide_type)
        mean = self._sum_over_ranks(wide.sum(axes)) / count
        centered = wide - mean.reshape(1, -1, 1, 1)
        variance = self._sum_over_ranks((centered * centered).sum(axes)) / count
        old_weight = 1 - self.momentum  # MindSpore stores the weight of the new statistics
        ops.assign(self.moving_mean, old_weight * self.moving_mean + (1 - old_weight) * mean.astype(mstype.float32))
        unbiased = (variance * (count / max(count - 1, 1))).astype(mstype.float32)
        ops.assign(self.moving_variance, old_weight * self.moving_variance + (1 - old_weight) * unbiased)
        factor = self.gamma * ops.rsqrt(variance + self.eps)
        return (centered * factor.reshape(1, -1, 1, 1) + self.beta.reshape(1, -1, 1, 1)).astype(x.dtype)

    def _sum_over_ranks(self, x: Tensor) -> Tensor:
        return self.all_reduce(x) if self.world_size > 1 else x


def convert_sync_batchnorm(model: nn.Cell, world_size: int, on_cpu: bool) -> None:
    """Make the batch normalizations of a model in training mode use statistics over all ranks, in place."""
    for _, cell in model.cells_and_names():
        if type(cell) is nn.BatchNorm2d and cell.use_batch_statistics is not False:
            cell.__class__ = SyncBatchNorm2d
            cell.world_size, cell.all_reduce = world_size, ops.AllReduce() if world_size > 1 else None
            cell.wide_type = mstype.float64 if on_cpu else mstype.float32
