"""Temporal Shift Module on ResNet in PaddlePaddle. Names, options and arithmetic are those of spec.py."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from zoo.models.resnet import paddle as resnet
from zoo.models.tsm.spec import NON_LOCAL_BLOCKS, Arch, shifts


def temporal_shift(x: paddle.Tensor, segments: int, div: int = 8, direction: str = "future") -> paddle.Tensor:
    """Move channels between neighbouring frames of the same clip: (N*T, C, H, W) -> a new tensor of the same shape.

    With f = C // div, channels [0, f) come from the next frame (`direction` future; else from the previous one),
    channels [f, 2f) from the other neighbour, the rest stay. Where there is no neighbour, zeros. The input is not
    touched: the shortcut needs it, and so does autograd.
    """
    if x.shape[0] % segments:
        raise ValueError(f"{x.shape[0]} frames are not whole clips of {segments}")
    if div < 2:
        raise ValueError(f"div must be at least 2, not {div}")
    if direction not in ("future", "past"):
        raise ValueError(f"direction must be future or past, not {direction!r}")
    return _shift(x, segments, x.shape[1] // div, direction == "future")


def _shift(x, segments, fold, future_first):
    if paddle.is_grad_enabled() and not x.stop_gradient:
        return _Shift.apply(x, segments, fold, future_first)
    return _shifted(x, segments, fold, future_first)


class _Shift(paddle.autograd.PyLayer):
    """The gradient of a shift is the opposite shift."""

    @staticmethod
    def forward(ctx, x, segments, fold, future_first):
        ctx.arguments = segments, fold, not future_first
        return _shifted(x, segments, fold, future_first)

    @staticmethod
    def backward(ctx, gradient):
        return _shifted(gradient, *ctx.arguments)


def _shifted(x, segments, fold, future_first):
    if fold == 0:
        return x.clone()
    clips = x.reshape((-1, segments, *x.shape[1:]))  # (N, T, C, H, W)
    # A frame of zeros at either end: so no slice is ever empty, which Paddle does not take everywhere.
    edge = paddle.zeros_like(clips[:, :1, : 2 * fold])
    padded = paddle.concat([edge, clips[:, :, : 2 * fold], edge], 1)  # (N, T+2, 2f, H, W)
    following, previous = slice(2, None), slice(None, -2)
    first, second = (following, previous) if future_first else (previous, following)
    parts = [padded[:, first, :fold], padded[:, second, fold:]]
    if 2 * fold < x.shape[1]:
        parts.append(clips[:, :, 2 * fold :])
    return paddle.concat(parts, 2).reshape(x.shape)


def temporal_pool(x: paddle.Tensor, segments: int) -> paddle.Tensor:
    """Max over three neighbouring frames at every second one: (N*T, C, H, W) -> (N*T/2, C, H, W)."""
    if segments % 2:
        raise ValueError(f"temporal pooling needs an even number of frames, not {segments}")
    clips = x.reshape((-1, segments, *x.shape[1:]))
    clips = paddle.concat([paddle.full_like(clips[:, :1], float("-inf")), clips], 1)
    return paddle.maximum(paddle.maximum(clips[:, 1::2], clips[:, 2::2]), clips[:, :-1:2]).flatten(0, 1)


class NonLocal(nn.Layer):
    """Embedded-Gaussian attention over all places of a clip (arXiv:1711.07971), with a residual sum."""

    def __init__(self, channels: int):
        super().__init__()
        self.theta = nn.Conv3D(channels, channels // 2, 1)
        self.phi = nn.Conv3D(channels, channels // 2, 1)
        self.g = nn.Conv3D(channels, channels // 2, 1)
        self.out = nn.Conv3D(channels // 2, channels, 1)
        self.bn = nn.BatchNorm3D(channels)

    def forward(self, x: paddle.Tensor, segments: int) -> paddle.Tensor:
        clips = x.reshape((-1, segments, *x.shape[1:])).transpose((0, 2, 1, 3, 4))  # (N, C, T, H, W)
        query = self.theta(clips).flatten(2).transpose((0, 2, 1))  # (N, THW, C/2)
        key = F.max_pool3d(self.phi(clips), (1, 2, 2)).flatten(2)  # (N, C/2, THW/4)
        value = F.max_pool3d(self.g(clips), (1, 2, 2)).flatten(2).transpose((0, 2, 1))
        mixed = F.softmax(query @ key, -1) @ value  # (N, THW, C/2)
        mixed = mixed.transpose((0, 2, 1)).reshape((clips.shape[0], -1, *clips.shape[2:]))
        return (self.bn(self.out(mixed)) + clips).transpose((0, 2, 1, 3, 4)).flatten(0, 1)


class Model(resnet.Model):
    """video (N, T, 3, H, W) float, dropout mask (N, T', features) or None -> logits (N, num_classes)."""

    def __init__(self, arch: Arch):
        super().__init__(arch.backbone)
        self.arch = arch
        self.shifts = shifts(arch)
        if arch.non_local:
            for layer, blocks in NON_LOCAL_BLOCKS.items():
                for block in blocks:
                    stage = getattr(self, f"layer{layer}")
                    stage[block].nl = NonLocal(arch.backbone.width * 2 ** (layer - 1) * arch.backbone.expansion)

    def forward(self, video: paddle.Tensor, dropout: paddle.Tensor | None = None) -> paddle.Tensor:
        segments = video.shape[1]
        x = self.stem(video.flatten(0, 1))
        for number, layer in enumerate((self.layer1, self.layer2, self.layer3, self.layer4)):
            if number == 1 and self.arch.temporal_pool:
                x, segments = temporal_pool(x, segments), segments // 2
            for block, shifted in zip(layer, self.shifts[number]):
                x = self.block(block, x, segments, shifted)
        x = x.mean((2, 3)).reshape((-1, segments, x.shape[1]))  # (N, T', features)
        if dropout is not None:
            x = x * (dropout.astype(x.dtype) / (1 - self.arch.dropout))
        return self.fc(x).mean(1)

    def block(self, block: nn.Layer, x: paddle.Tensor, segments: int, shifted: bool) -> paddle.Tensor:
        if not shifted:
            x = block(x)
        elif self.arch.shift_place == "block":
            x = block(self.shift(x, segments))
        else:  # blockres: the shortcut sees the unshifted frames
            residual = block.residual(self.shift(x, segments))
            x = F.relu(residual + block.downsample(x))
        return block.nl(x, segments) if hasattr(block, "nl") else x

    def shift(self, x: paddle.Tensor, segments: int) -> paddle.Tensor:
        return temporal_shift(x, segments, self.arch.shift_div, self.arch.shift_direction)
