"""PReLU of differentiable operations: MindSpore's kernel for its gradient on a CPU has no fp64, and is not repeatable.

The kernel adds the sums of its threads in the order in which they end, so equal runs differ by rounding.
"""

from mindspore import Tensor, nn, ops


class RepeatablePReLU(nn.PReLU):
    """PReLU whose gradient has the same bits in every run; at 0 it is the slope, as in all frameworks' kernels."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.select(x > 0, x, self.w.reshape((1, -1) + (1,) * (x.ndim - 2)) * x)


def convert_prelu(model: nn.Cell) -> None:
    """Make the PReLUs of a model compute as RepeatablePReLU."""
    for _, cell in model.cells_and_names():
        if type(cell) is nn.PReLU:
            cell.__class__ = RepeatablePReLU
