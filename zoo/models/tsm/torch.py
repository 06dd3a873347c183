"""Temporal Shift Module on ResNet in PyTorch. Names, options and arithmetic are those of spec.py."""

import torch
import torch.nn.functional as F
from torch import nn

from zoo.models.resnet import torch as resnet
from zoo.models.tsm.spec import NON_LOCAL_BLOCKS, Arch, shifts


def temporal_shift(x: torch.Tensor, segments: int, div: int = 8, direction: str = "future") -> torch.Tensor:
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
    if torch.is_grad_enabled() and x.requires_grad:
        return _Shift.apply(x, segments, fold, future_first)
    return _shifted(x, segments, fold, future_first)


class _Shift(torch.autograd.Function):
    """The gradient of a shift is the opposite shift. Stated here, because autograd through slice assignments costs
    five times as much."""

    @staticmethod
    def forward(ctx, x, segments, fold, future_first):
        ctx.arguments = segments, fold, not future_first
        return _shifted(x, segments, fold, future_first)

    @staticmethod
    def backward(ctx, gradient):
        return _shift(gradient, *ctx.arguments), None, None, None


def _shifted(x, segments, fold, future_first):
    out = torch.empty_like(x)
    clips, moved = x.unflatten(0, (-1, segments)), out.unflatten(0, (-1, segments))  # views (N, T, C, H, W)
    a, b = slice(0, fold), slice(fold, 2 * fold)
    from_next, from_last = (a, b) if future_first else (b, a)
    moved[:, :-1, from_next] = clips[:, 1:, from_next]
    moved[:, -1, from_next] = 0
    moved[:, 1:, from_last] = clips[:, :-1, from_last]
    moved[:, 0, from_last] = 0
    moved[:, :, 2 * fold :] = clips[:, :, 2 * fold :]
    return out


def temporal_pool(x: torch.Tensor, segments: int) -> torch.Tensor:
    """Max over three neighbouring frames at every second one: (N*T, C, H, W) -> (N*T/2, C, H, W)."""
    if segments % 2:
        raise ValueError(f"temporal pooling needs an even number of frames, not {segments}")
    clips = x.unflatten(0, (-1, segments))
    before = F.pad(clips[:, 1:-1:2], (0, 0) * 3 + (1, 0), value=float("-inf"))
    return torch.maximum(torch.maximum(clips[:, ::2], clips[:, 1::2]), before).flatten(0, 1)


class NonLocal(nn.Module):
    """Embedded-Gaussian attention over all places of a clip (arXiv:1711.07971), with a residual sum."""

    def __init__(self, channels: int):
        super().__init__()
        self.theta = nn.Conv3d(channels, channels // 2, 1)
        self.phi = nn.Conv3d(channels, channels // 2, 1)
        self.g = nn.Conv3d(channels, channels // 2, 1)
        self.out = nn.Conv3d(channels // 2, channels, 1)
        self.bn = nn.BatchNorm3d(channels)

    def forward(self, x: torch.Tensor, segments: int) -> torch.Tensor:
        clips = x.unflatten(0, (-1, segments)).transpose(1, 2)  # (N, C, T, H, W)
        query = self.theta(clips).flatten(2).transpose(1, 2)  # (N, THW, C/2)
        key = F.max_pool3d(self.phi(clips), (1, 2, 2)).flatten(2)  # (N, C/2, THW/4)
        value = F.max_pool3d(self.g(clips), (1, 2, 2)).flatten(2).transpose(1, 2)
        mixed = (query @ key).softmax(-1) @ value  # (N, THW, C/2)
        mixed = mixed.transpose(1, 2).reshape(clips.shape[0], -1, *clips.shape[2:])
        return (self.bn(self.out(mixed)) + clips).transpose(1, 2).flatten(0, 1)


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

    def forward(self, video: torch.Tensor, dropout: torch.Tensor | None = None) -> torch.Tensor:
        segments = video.shape[1]
        x = self.stem(video.flatten(0, 1))
        for number, layer in enumerate((self.layer1, self.layer2, self.layer3, self.layer4)):
            if number == 1 and self.arch.temporal_pool:
                x, segments = temporal_pool(x, segments), segments // 2
            for block, shifted in zip(layer, self.shifts[number]):
                x = self.block(block, x, segments, shifted)
        x = x.mean((2, 3)).unflatten(0, (-1, segments))  # (N, T', features)
        if dropout is not None:
            x = x * (dropout / (1 - self.arch.dropout))
        return self.fc(x).mean(1)

    def block(self, block: nn.Module, x: torch.Tensor, segments: int, shifted: bool) -> torch.Tensor:
        if not shifted:
            x = block(x)
        elif self.arch.shift_place == "block":
            x = block(self.shift(x, segments))
        else:  # blockres: the shortcut sees the unshifted frames
            residual = block.residual(self.shift(x, segments))
            x = F.relu(residual + block.downsample(x), inplace=True)
        return block.nl(x, segments) if hasattr(block, "nl") else x

    def shift(self, x: torch.Tensor, segments: int) -> torch.Tensor:
        return temporal_shift(x, segments, self.arch.shift_div, self.arch.shift_direction)
