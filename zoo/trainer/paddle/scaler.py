"""Loss scale, static or dynamic, on the device, so that an overflow is handled without waiting for it."""

from collections.abc import Mapping

import numpy as np
import paddle

from zoo.trainer.loss_scale import (
    BACKOFF_FACTOR,
    GOOD_STEPS_KEY,
    GROWTH_FACTOR,
    GROWTH_INTERVAL,
    SCALE_KEY,
    SKIPPED_KEY,
)


class LossScaler:
    """Loss scale and counters of updates, as fp32 tensors ().

    Args:
        dynamic: adapt the scale; else it never changes.
        initial: scale of the first update.

    Attributes:
        scale: factor of the loss.
        good_steps: finite updates since the scale last changed.
        skipped: updates skipped so far.
        consecutive_skips: the last updates that were skipped in a row.
    """

    def __init__(self, dynamic: bool, initial: float):
        self.dynamic = dynamic
        self.scale = _number(initial)
        self.good_steps, self.skipped, self.consecutive_skips = (_number(0.0) for _ in range(3))

    def update(self, finite: paddle.Tensor) -> None:
        """Count an update and adapt a dynamic scale; finite: bool (), whether its gradient was finite."""
        overflow = paddle.logical_not(finite).astype("float32")
        self.skipped = self.skipped + overflow
        self.consecutive_skips = (self.consecutive_skips + 1) * overflow
        if self.dynamic:
            good_steps = (self.good_steps + 1) * (1 - overflow)
            grows = good_steps >= GROWTH_INTERVAL
            grown = paddle.where(grows, self.scale * GROWTH_FACTOR, self.scale)
            self.good_steps = paddle.where(grows, paddle.zeros_like(good_steps), good_steps)
            self.scale = paddle.where(finite, grown, self.scale * BACKOFF_FACTOR)

    def state_dict(self) -> dict[str, np.ndarray]:
        tensors = {SCALE_KEY: self.scale, GOOD_STEPS_KEY: self.good_steps, SKIPPED_KEY: self.skipped}
        return {key: np.array(tensor.numpy()) for key, tensor in tensors.items()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Load those values that the state dict contains."""
        numbers = {**self.state_dict(), **state}
        self.scale, self.good_steps, self.skipped = (
            _number(float(numbers[key])) for key in (SCALE_KEY, GOOD_STEPS_KEY, SKIPPED_KEY)
        )


def _number(value: float) -> paddle.Tensor:
    return paddle.full((), value, "float32")
