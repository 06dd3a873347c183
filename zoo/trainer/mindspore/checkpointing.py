"""Modules of a MindSpore model whose activations the backward pass computes again (train.checkpoint_activations).

Graph mode alone: in pynative mode, MindSpore runs the whole module again, with the update of its running statistics.
"""

from collections.abc import Sequence

from mindspore import nn

from zoo.data.errors import UserError
from zoo.trainer.plan import Plan


def checkpointed_cells(model: nn.Cell, plan: Plan) -> list[nn.Cell]:
    """Return the cells that the plan names; called before the precision is converted, which changes their names.

    Raises:
        UserError: there are some in pynative mode.
    """
    if plan.checkpointed_modules and not plan.mode.compile:
        raise UserError("train.checkpoint_activations: MindSpore has it in graph mode only; leave train.compile out")
    return [cell for name, cell in model.cells_and_names() if name in plan.checkpointed_modules]


def checkpoint(cells: Sequence[nn.Cell]) -> None:
    """Make the compiler copy the operators of cells, apart from normalizations, into the backward pass.

    A normalization updates its running statistics, and a second time if it is copied. So its output is kept, but what
    the convolutions before it and the activations after it return is computed again.
    """
    for cell in cells:
        cell.recompute()
        for _, inner in cell.cells_and_names():
            if isinstance(inner, nn.BatchNorm2d):
                inner.bn_train.recompute(False)
