"""Temporal Shift Module on ResNet in MindSpore. Names, options and arithmetic are those of spec.py."""

from mindspore import Tensor, nn, ops

from zoo.models.resnet import mindspore as resnet
from zoo.models.tsm.spec import NON_LOCAL_BLOCKS, Arch, shifts


def temporal_shift(x: Tensor, segments: int, div: int = 8, direction: str = "future") -> Tensor:
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
    return _shifted(x, segments, x.shape[1] // div, direction == "future")


def _shifted(x, segments, fold, future_first):
    if fold == 0:
        return x
    clips = x.reshape((-1, segments) + x.shape[1:])  # (N, T, C, H, W)
    a, b, rest = clips[:, :, :fold], clips[:, :, fold : 2 * fold], clips[:, :, 2 * fold :]
    moved = (_from_next(a), _from_last(b)) if future_first else (_from_last(a), _from_next(b))
    if 2 * fold < x.shape[1]:  # an empty part is an error here
        moved = moved + (rest,)
    return ops.concat(moved, 2).reshape(x.shape)


def _from_next(clips):
    nothing = ops.zeros_like(clips[:, :1])
    return nothing if clips.shape[1] == 1 else ops.concat((clips[:, 1:], nothing), 1)


def _from_last(clips):
    nothing = ops.zeros_like(clips[:, :1])
    return nothing if clips.shape[1] == 1 else ops.concat((nothing, clips[:, :-1]), 1)


def temporal_pool(x: Tensor, segments: int) -> Tensor:
    """Max over three neighbouring frames at every second one: (N*T, C, H, W) -> (N*T/2, C, H, W)."""
    if segments % 2:
        raise ValueError(f"temporal pooling needs an even number of frames, not {segments}")
    clips = x.reshape((-1, segments) + x.shape[1:])
    pooled = ops.maximum(clips[:, ::2], clips[:, 1::2])
    if segments > 2:  # the first frame has none before it
        before = ops.maximum(pooled[:, 1:], clips[:, 1:-1:2])
        pooled = ops.concat((pooled[:, :1], before), 1)
    return pooled.reshape((-1,) + x.shape[1:])


class NonLocal(nn.Cell):
    """Embedded-Gaussian attention over all places of a clip (arXiv:1711.07971), with a residual sum."""

    def __init__(self, channels: int):
        super().__init__()
        self.theta = nn.Conv3d(channels, channels // 2, 1, pad_mode="pad", has_bias=True)
        self.phi = nn.Conv3d(channels, channels // 2, 1, pad_mode="pad", has_bias=True)
        self.g = nn.Conv3d(channels, channels // 2, 1, pad_mode="pad", has_bias=True)
        self.out = nn.Conv3d(channels // 2, channels, 1, pad_mode="pad", has_bias=True)
        self.bn = nn.BatchNorm3d(channels)
        self.max_pool = nn.MaxPool2d(2, 2)  # space alone: a frame at a time

    def construct(self, x: Tensor, segments: int) -> Tensor:
        clips = x.reshape((-1, segments) + x.shape[1:]).swapaxes(1, 2)  # (N, C, T, H, W)
        query = self.theta(clips).reshape(clips.shape[0], clips.shape[1] // 2, -1).swapaxes(1, 2)  # (N, THW, C/2)
        key = self.pooled(self.phi(clips))  # (N, C/2, THW/4)
        value = self.pooled(self.g(clips)).swapaxes(1, 2)
        mixed = ops.matmul(ops.softmax(ops.matmul(query, key), -1), value)  # (N, THW, C/2)
        mixed = mixed.swapaxes(1, 2).reshape((clips.shape[0], -1) + clips.shape[2:])
        return (self.bn(self.out(mixed)) + clips).swapaxes(1, 2).reshape(x.shape)

    def pooled(self, clips: Tensor) -> Tensor:
        n, c, t, h, w = clips.shape
        return self.max_pool(clips.reshape(n, c * t, h, w)).reshape(n, c, -1)


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

    def construct(self, video: Tensor, dropout: Tensor | None = None) -> Tensor:
        segments = video.shape[1]
        x = self.stem(video.reshape((-1,) + video.shape[2:]))
        for number, layer in enumerate((self.layer1, self.layer2, self.layer3, self.layer4)):
            if number == 1 and self.arch.temporal_pool:
                x, segments = temporal_pool(x, segments), segments // 2
            for block, shifted in zip(layer, self.shifts[number]):
                x = self.block(block, x, segments, shifted)
        x = x.mean((2, 3)).reshape(-1, segments, self.fc.in_channels)  # (N, T', features)
        if dropout is not None:
            x = x * (dropout / (1 - self.arch.dropout))
        return self.fc(x).mean(1)

    def block(self, block: nn.Cell, x: Tensor, segments: int, shifted: bool) -> Tensor:
        if not shifted:
            x = block(x)
        elif self.arch.shift_place == "block":
            x = block(self.shift(x, segments))
        else:  # blockres: the shortcut sees the unshifted frames
            residual = block.residual(self.shift(x, segments))
            x = ops.relu(residual + block.downsample(x))
        return block.nl(x, segments) if hasattr(block, "nl") else x

    def shift(self, x: Tensor, segments: int) -> Tensor:
        return temporal_shift(x, segments, self.arch.shift_div, self.arch.shift_direction)
