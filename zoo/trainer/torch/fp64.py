"""Updates in fp64 by operations that round once each, so that every framework computes the same bits.

PyTorch's fused kernel takes the divisor of the gradients in fp32, and rounds products and sums together.
"""

from collections.abc import Sequence

import torch

from zoo.trainer.rounding import FACTOR, FLOOR


@torch.no_grad()
def round_gradients(gradients: Sequence[torch.Tensor], shard_gradients: Sequence[torch.Tensor]) -> None:
    """Round gradients in place; see zoo/trainer/rounding.py."""
    floor = FLOOR * torch.stack([gradient.abs().max() for gradient in gradients]).max()
    for gradient in (*gradients, *shard_gradients):
        c = FACTOR * torch.maximum(gradient.abs().max(), floor)
        gradient.add_(c).sub_(c)


@torch.no_grad()
def momentum_update(
    parameter: torch.Tensor,
    gradient: torch.Tensor,
    buffer: torch.Tensor,
    lr: float,
    weight_decay: float,
    momentum: float,
) -> None:
    """Update in place: buffer = momentum * buffer + (gradient + weight_decay * p); p -= lr * buffer."""
    buffer.mul_(momentum).add_(gradient + weight_decay * parameter)
    parameter.sub_(lr * buffer)
