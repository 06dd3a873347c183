"""Loss scale, static or dynamic, as MindSpore compiles it; see zoo/trainer/loss_scale.py."""

from mindspore import Parameter, Tensor, nn
from mindspore import dtype as mstype
from mindspore import ops as mint

from zoo.trainer.loss_scale import GOOD_STEPS_KEY, SCALE_KEY, SKIPPED_KEY, updated
from zoo.trainer.mindspore import ops


def scalar(value: float, dtype: mstype.Type = mstype.float32) -> Tensor:
    """Return a 0-d tensor."""
    return Tensor(value, dtype)


class LossScaler(nn.Cell):
    """(finite) -> new values of skipped and consecutive_skips; finite: 0-d bool, whether the gradient was finite.

    Args:
        dynamic: adapt the scale; else it never changes.
        initial: scale of the first update.

    Attributes:
        scale, good_steps, skipped, consecutive_skips: 0-d fp32 parameters.
    """

    def __init__(self, dynamic: bool, initial: float):
        super().__init__()
        self.dynamic, self.ops = dynamic, ops
        self.scale = Parameter(scalar(initial), SCALE_KEY, requires_grad=False)
        self.good_steps = Parameter(scalar(0.0), GOOD_STEPS_KEY, requires_grad=False)
        self.skipped = Parameter(scalar(0.0), SKIPPED_KEY, requires_grad=False)
        self.consecutive_skips = Parameter(scalar(0.0), "scaler/consecutive_skips", requires_grad=False)

    def construct(self, finite: Tensor) -> tuple[Tensor, Tensor]:
        state = (self.scale, self.good_steps, self.skipped, self.consecutive_skips)
        scale, good_steps, skipped, consecutive_skips = updated(self.ops, state, finite, self.dynamic)
        mint.assign(self.skipped, skipped)
        mint.assign(self.consecutive_skips, consecutive_skips)
        if self.dynamic:
            mint.assign(self.scale, scale)
            mint.assign(self.good_steps, good_steps)
        return skipped, consecutive_skips
