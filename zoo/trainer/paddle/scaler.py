"""Loss scale, static or dynamic. It is on the host, which decides whether an update is skipped."""

from collections.abc import Mapping

import numpy as np

from zoo.trainer.loss_scale import (
    BACKOFF_FACTOR,
    GOOD_STEPS_KEY,
    GROWTH_FACTOR,
    GROWTH_INTERVAL,
    SCALE_KEY,
    SKIPPED_KEY,
)


class LossScaler:
    """Loss scale and counters of updates.

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
        self.scale = initial
        self.good_steps = self.skipped = self.consecutive_skips = 0.0

    def update(self, finite: bool) -> None:
        """Count an update and adapt a dynamic scale; finite: whether its gradient was finite."""
        self.skipped += not finite
        self.consecutive_skips = 0.0 if finite else self.consecutive_skips + 1
        if not self.dynamic:
            return
        self.good_steps = self.good_steps + 1 if finite else 0.0
        if not finite:
            self.scale *= BACKOFF_FACTOR
        elif self.good_steps >= GROWTH_INTERVAL:
            self.scale, self.good_steps = self.scale * GROWTH_FACTOR, 0.0

    def state_dict(self) -> dict[str, np.ndarray]:
        values = {SCALE_KEY: self.scale, GOOD_STEPS_KEY: self.good_steps, SKIPPED_KEY: self.skipped}
        return {key: np.array(value, np.float32) for key, value in values.items()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Load those values that the state dict contains."""
        self.scale = float(state.get(SCALE_KEY, self.scale))
        self.good_steps = float(state.get(GOOD_STEPS_KEY, self.good_steps))
        self.skipped = float(state.get(SKIPPED_KEY, self.skipped))
