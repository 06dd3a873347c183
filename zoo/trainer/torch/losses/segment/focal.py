"""zoo/losses/segment/focal.py in PyTorch."""

import torch
import torch.nn.functional as F

from zoo.losses.segment import focal
from zoo.tasks.segment import IGNORE_INDEX
from zoo.trainer.torch.losses.constants import constant


class Loss:
    """Sum over pixels of the loss of logits (N, K, H, W) and labels int64 (N, H, W), and what it is divided by."""

    def __init__(self, settings: focal.Loss):
        self.settings, self.equal_counts = settings, settings.average == "all"

    def count(self, labels: torch.Tensor) -> int | torch.Tensor:
        return labels.numel() if self.equal_counts else (labels != IGNORE_INDEX).sum()

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        classes = torch.arange(logits.shape[1], device=logits.device)[:, None, None]
        is_target = labels[:, None] == classes
        signed = torch.where(is_target, logits, -logits)  # p_t = sigmoid(signed)
        losses = (self.settings.gamma * F.logsigmoid(-signed)).exp() * -F.logsigmoid(signed)
        alpha = self.settings.alpha
        if alpha is not None:
            losses = torch.where(is_target, alpha * losses, (1 - alpha) * losses)
        if self.settings.class_weights is not None:
            losses = losses * constant(self.settings.class_weights, logits.dtype, logits.device)[:, None, None]
        return (losses * (labels != IGNORE_INDEX)[:, None]).sum() / logits.shape[1]
