"""A dynamic loss scale, as in torch.amp.GradScaler, and the names of its state in a state dict.

All of it is on the device, so that an overflow is handled without waiting for it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

INITIAL_SCALE = 65536.0  # optim.initial_loss_scale replaces it
GROWTH_FACTOR = 2.0  # after GROWTH_INTERVAL finite updates in a row
BACKOFF_FACTOR = 0.5  # after an update that was not finite
GROWTH_INTERVAL = 2000.0

SCALE_KEY = "scaler/scale"
GOOD_STEPS_KEY = "scaler/good"  # finite updates since the scale last changed
SKIPPED_KEY = "scaler/skipped"
KEYS = (SCALE_KEY, GOOD_STEPS_KEY, SKIPPED_KEY)


def updated(ops: Any, state: tuple[Any, ...], finite: Any, dynamic: bool) -> tuple[Any, ...]:
    """Return the state after an update.

    Args:
        ops: of the framework.
        state: loss scale, finite updates since it last changed, updates skipped so far, and skipped last in a row.
        finite: whether the gradient was finite, bool ().
        dynamic: whether the scale changes.
    """
    scale, good, skipped, consecutive = state
    overflow = 1 - ops.cast(finite, scale.dtype)
    skipped, consecutive = skipped + overflow, (consecutive + 1) * overflow
    if dynamic:
        good = (good + 1) * (1 - overflow)
        grows = good >= GROWTH_INTERVAL
        grown = ops.where(grows, scale * GROWTH_FACTOR, scale)
        scale, good = ops.where(finite, grown, scale * BACKOFF_FACTOR), ops.where(grows, ops.zeros_like(good), good)
    return scale, good, skipped, consecutive


class LossScaler:
    """Loss scale and counters of updates, as fp32 tensors ().

    Args:
        ops: of the framework.
        tensor: makes a tensor of a number.
        dynamic: adapt the scale; else it never changes.
        initial: scale of the first update.

    Attributes:
        scale: factor of the loss.
        skipped: updates skipped so far.
        consecutive_skips: the last updates that were skipped in a row.
    """

    def __init__(self, ops: Any, tensor: Callable[[float], Any], dynamic: bool, initial: float):
        self.ops, self.tensor, self.dynamic = ops, tensor, dynamic
        self.scale, self.good_steps, self.skipped, self.consecutive_skips = map(tensor, (initial, 0.0, 0.0, 0.0))

    def update(self, finite: Any) -> None:
        """Count an update and adapt a dynamic scale; finite: bool (), whether its gradient was finite."""
        state = self.scale, self.good_steps, self.skipped, self.consecutive_skips
        state = updated(self.ops, state, finite, self.dynamic)
        self.scale, self.good_steps, self.skipped, self.consecutive_skips = state

    def state_dict(self) -> dict[str, Any]:
        return {SCALE_KEY: self.scale, GOOD_STEPS_KEY: self.good_steps, SKIPPED_KEY: self.skipped}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Load those values that the state dict contains."""
        values = {**self.state_dict(), **{key: self.tensor(float(state[key])) for key in KEYS if key in state}}
        self.scale, self.good_steps, self.skipped = (values[key] for key in KEYS)
