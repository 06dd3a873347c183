"""Pixel normalization as a MindSpore cell."""

import numpy as np
from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.data.batch import Field
from zoo.trainer import preprocessing


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
