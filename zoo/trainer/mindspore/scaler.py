"""Loss scale, static or dynamic, on the device, so that an overflow is handled without waiting for it."""

from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.trainer.loss_scale import (
    BACKOFF_FACTOR,
    GOOD_STEPS_KEY,
    GROWTH_FACTOR,
    GROWTH_INTERVAL,
    SCALE_KEY,
    SKIPPED_KEY,
)


def scalar(value: float, dtype: mstype.Type = mstype.float32) -> Tensor:
    """Return a 0-d tensor."""
    return Tensor(value, dtype)


class LossScaler(nn.Cell):
    """Loss scale and counters of updates, as 0-d fp32 parameters.

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
        super().__init__()
        self.dynamic, self.growth_interval = dynamic, float(GROWTH_INTERVAL)
        self.scale = Parameter(scalar(initial), SCALE_KEY, requires_grad=False)
        self.good_steps = Parameter(scalar(0.0), GOOD_STEPS_KEY, requires_grad=False)
        self.skipped = Parameter(scalar(0.0), SKIPPED_KEY, requires_grad=False)
        self.consecutive_skips = Parameter(scalar(0.0), "scaler/consecutive_skips", requires_grad=False)

    def construct(self, finite: Tensor) -> tuple[Tensor, Tensor]:
        """Count an update and adapt a dynamic scale.

        Args:
            finite: 0-d bool, whether its gradient was finite.

        Returns:
            The new values of skipped and consecutive_skips.
        """
        overflow = 1 - finite.astype(mstype.float32)
        skipped = self.skipped + overflow
        consecutive_skips = (self.consecutive_skips + 1) * overflow
        ops.assign(self.skipped, skipped)
        ops.assign(self.consecutive_skips, consecutive_skips)
        if self.dynamic:
            good_steps = (self.good_steps + 1) * (1 - overflow)
            grows = (good_steps >= self.growth_interval).astype(mstype.float32)
            growth, backoff = 1 + (GROWTH_FACTOR - 1) * grows, 1 - (1 - BACKOFF_FACTOR) * overflow
            ops.assign(self.scale, self.scale * growth * backoff)
            ops.assign(self.good_steps, good_steps * (1 - grows))
        return skipped, consecutive_skips
