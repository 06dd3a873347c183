"""The model of a trainer: canonical names of its tensors, and the precision and memory that a plan asks for."""

from collections.abc import Mapping, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, amp, nn
from mindspore import dtype as mstype

from zoo.data.batch import Batch
from zoo.data.errors import UserError
from zoo.trainer.plan import Plan
from zoo.trainer.state import STATISTICS

DTYPES = {"fp16": mstype.float16, "bf16": mstype.bfloat16}

CANONICAL = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "w": "weight",  # of a PReLU
}


def named_tensors(model: nn.Cell) -> dict[str, Parameter]:
    """Return every parameter, then every running statistic, by canonical name; not copied."""
    tensors = {_canonical_name(name): parameter for name, parameter in model.parameters_and_names()}
    return dict(sorted(tensors.items(), key=lambda item: is_statistic(item[0])))  # stable: keeps the model's order


def is_statistic(name: str) -> bool:
    return name.endswith(STATISTICS)


def _canonical_name(name: str) -> str:
    *cells, last = [part for part in name.split(".") if part != "bn2d"]  # BatchNorm3d contains a BatchNorm2d
    return ".".join([*cells, CANONICAL.get(last, last)])


def to_tensors(batch: Batch) -> dict[str, Tensor]:
    """Return the arrays of a batch as tensors; whole numbers have 32 bits."""
    return {name: Tensor(array.astype(np.int32) if array.dtype == np.int64 else array) for name, array in batch.items()}


def create(Model: type[nn.Cell], arch: Any, tensors: Mapping[str, np.ndarray]) -> nn.Cell:
    """Return a model whose tensors have the values of arrays.

    Args:
        tensors: every parameter and running statistic by canonical name, in canonical layout.
    """
    model = Model(arch)
    for name, parameter in named_tensors(model).items():
        parameter.set_data(Tensor(np.ascontiguousarray(tensors[name], np.float32)))
    return model


def convert_precision(model: nn.Cell, plan: Plan) -> nn.Cell:
    """Return the model with the precision of the plan's mode; its parameters stay fp32.

    Dilated convolutions stay fp32 on GPUs, where MindSpore computes 16-bit ones in the format NHWC, in which it has no
    gradient of dilated ones.
    """
    if not plan.mode.is_mixed:
        return model
    # MindSpore's own O1 rewrites source code and misses methods; `auto` decides by operator, as autocast does.
    level = "auto" if plan.mode.level == "O1" else plan.mode.level
    on_gpu = mindspore.get_context("device_target") == "GPU"
    fp32_cells = [
        cell
        for name, cell in model.cells_and_names()
        if name in plan.fp32_modules or (on_gpu and isinstance(cell, nn.Conv2d) and max(cell.dilation) > 1)
    ]
    model = amp.auto_mixed_precision(model, level, DTYPES[plan.mode.compute])
    for cell in fp32_cells:
        cell.to_float(mstype.float32)  # its own operators; in pynative O2 and O3 those around it still round to 16 bits
    for _, cell in model.cells_and_names():
        if getattr(cell, "_backbone", None) in fp32_cells:  # O2's wrapper of a normalization, which casts to 16 bits
            cell.dtype = mstype.float32
    return model


def checkpointed_cells(model: nn.Cell, plan: Plan) -> list[nn.Cell]:
    """Return the cells that the plan names; called before the precision is converted, which changes their names.

    Graph mode alone: in pynative mode, MindSpore runs the whole module again, and updates its running statistics.
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
