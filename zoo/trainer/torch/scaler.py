"""Loss scale, static or dynamic, on the device, so that an overflow is handled without waiting for it."""

from collections.abc import Mapping

import numpy as np
import torch

from zoo.trainer.loss_scale import (
    BACKOFF_FACTOR,
    GOOD_STEPS_KEY,
    GROWTH_FACTOR,
    GROWTH_INTERVAL,
    SCALE_KEY,
    SKIPPED_KEY,
)


class LossScaler:
    """Loss scale and counters of updates, as 0-d fp32 tensors.

    Args:
        device: of the tensors.
        dynamic: adapt the scale; else it never changes.
        initial: scale of the first update.

    Attributes:
        scale: factor of the loss.
        good_steps: finite updates since the scale last changed.
        skipped: updates skipped so far.
        consecutive_skips: the last updates that were skipped in a row.
    """

    def __init__(self, device: torch.device, dynamic: bool, initial: float):
        self.dynamic = dynamic
        self.scale = torch.full((), initial, device=device)
        self.good_steps = torch.zeros((), device=device)
        self.skipped = torch.zeros((), device=device)
        self.consecutive_skips = torch.zeros((), device=device)

    def update(self, finite: torch.Tensor) -> None:
        """Count an update and adapt a dynamic scale; finite: 0-d bool, whether its gradient was finite."""
        overflow = (~finite).float()
        self.skipped = self.skipped + overflow
        self.consecutive_skips = (self.consecutive_skips + 1) * overflow
        if self.dynamic:
            good_steps = (self.good_steps + 1) * (1 - overflow)
            grows = good_steps >= GROWTH_INTERVAL
            grown = torch.where(grows, self.scale * GROWTH_FACTOR, self.scale)
            self.good_steps = torch.where(grows, torch.zeros_like(good_steps), good_steps)
            self.scale = torch.where(finite, grown, self.scale * BACKOFF_FACTOR)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {SCALE_KEY: self.scale, GOOD_STEPS_KEY: self.good_steps, SKIPPED_KEY: self.skipped}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Load those values that the state dict contains."""
        tensors = self.state_dict()
        tensors.update(
            (key, torch.tensor(float(state[key]), device=self.scale.device)) for key in tensors.keys() & state.keys()
        )
        self.scale, self.good_steps, self.skipped = (tensors[key] for key in (SCALE_KEY, GOOD_STEPS_KEY, SKIPPED_KEY))
