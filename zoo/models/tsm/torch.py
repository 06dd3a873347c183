"""TSM in PyTorch, parallel to paddle.py and mindspore.py; spec.py describes options and tensor names."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from zoo.models.resnet import torch as resnet
from zoo.models.tsm.spec import NON_LOCAL_BLOCKS, SHIFT_OFFSETS, Arch, check_causal, shifts


def temporal_shift(x: torch.Tensor, segments: int, div: int = 8, direction: str = "future") -> torch.Tensor:
    """Shift channels between neighbouring frames of the same clip (arXiv:1811.08383).

    With f = C // div, channels [0, f) come from the next frame and channels [f, 2f) from the previous one if
    `direction` is future, the other way round if it is past. If it is causal, channels [0, f) come from the previous
    frame. The other channels stay. A frame without that neighbour gets zeros. The input is not modified, because the
    shortcut and autograd need it.

    Args:
        x: (N*T, C, H, W), the frames of a clip one after the other.
        segments: T, frames per clip.
        div: 1 / div of the channels is shifted in each direction.

    Returns:
        A new tensor of the same shape.
    """
    if x.shape[0] % segments:
        raise ValueError(f"{x.shape[0]} frames are not whole clips of {segments}")
    if div < 2:
        raise ValueError(f"div must be at least 2, not {div}")
    if direction not in SHIFT_OFFSETS:
        raise ValueError(f"direction must be future, past or causal, not {direction!r}")
    return _differentiable_shift(x, segments, x.shape[1] // div, SHIFT_OFFSETS[direction])


def _differentiable_shift(x: torch.Tensor, segments: int, fold: int, offsets: tuple[int, ...]) -> torch.Tensor:
    if torch.is_grad_enabled() and x.requires_grad:
        return _ShiftFunction.apply(x, segments, fold, offsets)
    return _shift_channels(x, segments, fold, offsets)


class _ShiftFunction(torch.autograd.Function):
    """Shift whose gradient is the opposite shift: five times as fast as autograd through slice assignments."""

    @staticmethod
    def forward(ctx, x, segments, fold, offsets):
        ctx.arguments = segments, fold, tuple(-offset for offset in offsets)
        return _shift_channels(x, segments, fold, offsets)

    @staticmethod
    def backward(ctx, gradient):
        return _differentiable_shift(gradient, *ctx.arguments), None, None, None


def _shift_channels(x: torch.Tensor, segments: int, fold: int, offsets: tuple[int, ...]) -> torch.Tensor:
    out = torch.empty_like(x)
    clips, shifted = x.unflatten(0, (-1, segments)), out.unflatten(0, (-1, segments))  # views (N, T, C, H, W)
    for i, offset in enumerate(offsets):
        moved = slice(i * fold, (i + 1) * fold)
        if offset == 1:  # from the next frame
            shifted[:, :-1, moved] = clips[:, 1:, moved]
            shifted[:, -1, moved] = 0
        else:
            shifted[:, 1:, moved] = clips[:, :-1, moved]
            shifted[:, 0, moved] = 0
    kept = slice(len(offsets) * fold, None)
    shifted[:, :, kept] = clips[:, :, kept]
    return out


def shift_frame(x: torch.Tensor, previous: torch.Tensor, div: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Shift a single frame causally.

    Args:
        x: (N, C, H, W), the frame.
        previous: (N, C // div, H, W), the first channels of the frame before.
        div: 1 / div of the channels is shifted.

    Returns:
        x with these channels in place of its own, and its own, copied.
    """
    fold = x.shape[1] // div
    return torch.cat((previous, x[:, fold:]), 1), x[:, :fold].clone()  # a view would keep all of x in memory


def temporal_pool(x: torch.Tensor, segments: int) -> torch.Tensor:
    """Max-pool over three neighbouring frames with stride 2: (N*T, C, H, W) -> (N*T/2, C, H, W)."""
    if segments % 2:
        raise ValueError(f"temporal pooling needs an even number of frames, not {segments}")
    clips = x.unflatten(0, (-1, segments))
    before = F.pad(clips[:, 1:-1:2], (0, 0) * 3 + (1, 0), value=float("-inf"))
    return torch.maximum(torch.maximum(clips[:, ::2], clips[:, 1::2]), before).flatten(0, 1)


class NonLocal(nn.Module):
    """Non-local block (arXiv:1711.07971): embedded-Gaussian attention over all positions of a clip, with a shortcut."""

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
        attended = (query @ key).softmax(-1) @ value  # (N, THW, C/2)
        attended = attended.transpose(1, 2).reshape(clips.shape[0], -1, *clips.shape[2:])
        return (self.bn(self.out(attended)) + clips).transpose(1, 2).flatten(0, 1)


class Model(resnet.Model):
    """TSM: video (N, T, 3, H, W) float, dropout mask (N, T', features) or None -> logits (N, num_classes).

    T' is the number of frames after the temporal pool.
    """

    def __init__(self, arch: Arch):
        super().__init__(arch.backbone)
        self.arch, self.dropout_rate = arch, arch.dropout
        self.shifts = shifts(arch)
        if arch.non_local:
            for layer, blocks in NON_LOCAL_BLOCKS.items():
                for block in blocks:
                    stage = getattr(self, f"layer{layer}")
                    stage[block].nl = NonLocal(arch.backbone.width * 2 ** (layer - 1) * arch.backbone.expansion)

    def forward(self, video: torch.Tensor, dropout: torch.Tensor | None = None) -> torch.Tensor:
        return self.frame_logits(video, dropout).mean(1)

    def forward_features(self, video: torch.Tensor) -> torch.Tensor:
        """Return the maps of all frames: (N, T, 3, H, W) -> (N * T', features, H/32, W/32)."""
        segments = video.shape[1]
        x = self.stem(video.flatten(0, 1))
        for number, layer in enumerate((self.layer1, self.layer2, self.layer3, self.layer4)):
            if number == 1 and self.arch.temporal_pool:
                x, segments = temporal_pool(x, segments), segments // 2
            for block, has_shift in zip(layer, self.shifts[number]):
                x = self.run_block(block, x, segments, has_shift)
        return x

    def frame_logits(self, video: torch.Tensor, dropout: torch.Tensor | None = None) -> torch.Tensor:
        """Return the logits of every frame, (N, T', num_classes); their mean is the output for a clip."""
        x = self.forward_features(video)
        x = x.mean((2, 3)).unflatten(0, (video.shape[0], -1))  # (N, T', features)
        if dropout is not None:
            x = x * (dropout / (1 - self.dropout_rate))
        return self.fc(x)

    def forward_frame(
        self, frame: torch.Tensor, state: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Compute the next frame of a stream with a causal shift, as `frame_logits` computes it within a clip.

        Args:
            frame: (N, 3, H, W), the next frame of each of N streams.
            state: what the call for the frame before returned, (N, *shape) for each of spec.state_shapes; zeros for
                the first frame.

        Returns:
            The frame's logits (N, num_classes), and the state for the next call.

        Raises:
            ValueError: the shift is not causal.
        """
        check_causal(self.arch)
        x = self.stem(frame)
        new_state: list[torch.Tensor] = []
        for layer, has_shifts in zip((self.layer1, self.layer2, self.layer3, self.layer4), self.shifts):
            for block, has_shift in zip(layer, has_shifts):
                if not has_shift or x.shape[1] < self.arch.shift_div:
                    x = block(x)
                    continue
                shifted, kept = shift_frame(x, state[len(new_state)], self.arch.shift_div)
                new_state.append(kept)
                x = block(shifted) if self.arch.shift_place == "block" else block(x, shifted)
        return self.fc(x.mean((2, 3))), tuple(new_state)

    def run_block(self, block: Any, x: torch.Tensor, segments: int, has_shift: bool) -> torch.Tensor:
        """Run a BasicBlock or Bottleneck, with its shift and its non-local block if it has them."""
        if not has_shift:
            x = block(x)
        elif self.arch.shift_place == "block":
            x = block(self.shift(x, segments))
        else:  # blockres: the shortcut gets the unshifted frames
            x = block(x, self.shift(x, segments))
        return block.nl(x, segments) if hasattr(block, "nl") else x

    def shift(self, x: torch.Tensor, segments: int) -> torch.Tensor:
        """Shift (N*T, C, H, W) as the architecture defines it."""
        return temporal_shift(x, segments, self.arch.shift_div, self.arch.shift_direction)
