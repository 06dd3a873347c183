"""Rounding of gradients in an exact run."""

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
