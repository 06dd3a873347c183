"""16-bit computation of a MindSpore model."""

import numpy as np
from mindspore import Tensor, amp, nn, ops
from mindspore import dtype as mstype

from zoo.data.batch import Field
from zoo.trainer import preprocessing
from zoo.trainer.plan import Plan

DTYPES = {"fp16": mstype.float16, "bf16": mstype.bfloat16}


def convert_precision(model: nn.Cell, plan: Plan) -> nn.Cell:
    """Return the model with the precision of the plan's mode; its parameters stay fp32."""
    if not plan.mode.is_mixed:
        return model
    # MindSpore's own O1 rewrites source code and misses methods; `auto` decides by operator, as autocast does.
    level = "auto" if plan.mode.level == "O1" else plan.mode.level
    fp32_cells = [cell for name, cell in model.cells_and_names() if name in plan.fp32_modules]
    model = amp.auto_mixed_precision(model, level, DTYPES[plan.mode.compute])
    for cell in fp32_cells:
        cell.to_float(mstype.float32)  # its own operators; in pynative O2 and O3 those around it still round to 16 bits
    for _, cell in model.cells_and_names():
        if getattr(cell, "_backbone", None) in fp32_cells:  # O2's wrapper of a normalization, which casts to 16 bits
            cell.dtype = mstype.float32
    return model


class PixelNormalization(nn.Cell):
    """uint8 pixels (N, ..., H, W, C) -> normalized (N, ..., C, H, W) of type dtype.

    A field without pixels is unchanged, but fp64 if dtype is.
    """

    def __init__(self, field: Field, dtype: mstype.Type = mstype.float32):
        super().__init__()
        constants = preprocessing.scale_and_offset(field, np.float64)
        self.has_pixels, self.dtype = constants is not None, dtype
        self.widens = dtype == mstype.float64 and field.dtype.startswith("float")
        if constants is not None:
            self.factor, self.offset = (Tensor(array, dtype) for array in constants)
            self.axes = preprocessing.channels_first(1 + len(field.shape))

    def construct(self, x: Tensor) -> Tensor:
        if not self.has_pixels:
            return x.astype(self.dtype) if self.widens else x
        return ops.transpose(x.astype(self.dtype) * self.factor + self.offset, self.axes)
