"""Pixel normalization as a MindSpore cell."""

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from data.batch import Field
from zoo.trainer import preprocessing


class PixelNormalization(nn.Cell):
    """uint8 pixels (N, ..., H, W, C) -> normalized float32 (N, ..., C, H, W); a field without pixels is unchanged."""

    def __init__(self, field: Field):
        super().__init__()
        constants = preprocessing.scale_and_offset(field)
        self.has_pixels = constants is not None
        if constants is not None:
            self.factor, self.offset = (Tensor(array) for array in constants)
            self.axes = preprocessing.channels_first(1 + len(field.shape))

    def construct(self, x: Tensor) -> Tensor:
        if not self.has_pixels:
            return x
        return ops.transpose(x.astype(mstype.float32) * self.factor + self.offset, self.axes)
