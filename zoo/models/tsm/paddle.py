"""TSM in PaddlePaddle, parallel to torch.py and mindspore.py; spec.py describes options and tensor names."""

import paddle
import paddle.nn.functional as F
from paddle import _C_ops, nn

from zoo.models.resnet import paddle as resnet
from zoo.models.tsm.spec import NON_LOCAL_BLOCKS, SHIFT_OFFSETS, Arch, check_causal, shifts


def temporal_shift(x: paddle.Tensor, segments: int, div: int = 8, direction: str = "future") -> paddle.Tensor:
    """Shift channels between neighbouring frames of the same clip: see zoo/models/tsm/torch.py."""
    if x.shape[0] % segments:
        raise ValueError(f"{x.shape[0]} frames are not whole clips of {segments}")
    if div < 2:
        raise ValueError(f"div must be at least 2, not {div}")
    if direction not in SHIFT_OFFSETS:
        raise ValueError(f"direction must be future, past or causal, not {direction!r}")
    return _differentiable_shift(x, segments, x.shape[1] // div, SHIFT_OFFSETS[direction])


def _differentiable_shift(x: paddle.Tensor, segments: int, fold: int, offsets: tuple[int, ...]) -> paddle.Tensor:
    if paddle.is_grad_enabled() and not x.stop_gradient:
        return _ShiftFunction.apply(x, segments, fold, offsets)
    return _shift_channels(x, segments, fold, offsets)


class _ShiftFunction(paddle.autograd.PyLayer):
    """Shift whose gradient is the opposite shift."""

    @staticmethod
    def forward(ctx, x, segments, fold, offsets):
        ctx.arguments = segments, fold, tuple(-offset for offset in offsets)
        return _shift_channels(x, segments, fold, offsets)

    @staticmethod
    def backward(ctx, gradient):
        return _shift_channels(gradient, *ctx.arguments)


def has_fused_shift() -> bool:
    """Return whether Paddle's own kernel shifts: one instead of eight on a GPU, where it has not been run so far.

    On a CPU it takes 0.9 to 1.8 times as long as slices and concatenations. In Paddle 2.6 it has no gradient here.
    """
    return paddle.get_device().startswith("gpu") and hasattr(_C_ops, "temporal_shift_grad")


def _shift_channels(x: paddle.Tensor, segments: int, fold: int, offsets: tuple[int, ...]) -> paddle.Tensor:
    channels, moved = x.shape[1], len(offsets) * fold
    if fold == 0:
        return x.clone()
    if len(offsets) == 2 and moved < channels and has_fused_shift():
        # The kernel shifts from the past first; that of its gradient from the future. It rounds down the products of
        # the ratio with the channels and with twice as many: to fold and 2 * fold.
        shift = _C_ops.temporal_shift_grad if offsets[0] == 1 else _C_ops.temporal_shift
        return shift(x, segments, (fold + 0.25) / channels, "NCHW")
    clips = x.reshape((-1, segments, *x.shape[1:]))  # (N, T, C, H, W)
    # Padding with a frame of zeros at both ends keeps all slices non-empty; some Paddle operators reject empty ones.
    zeros = paddle.zeros_like(clips[:, :1, :moved])
    padded = paddle.concat([zeros, clips[:, :, :moved], zeros], 1)  # (N, T+2, moved, H, W)
    parts = [
        padded[:, 1 + offset : 1 + offset + segments, i * fold : (i + 1) * fold] for i, offset in enumerate(offsets)
    ]
    if moved < channels:
        parts.append(clips[:, :, moved:])
    return paddle.concat(parts, 2).reshape(x.shape)


def shift_frame(x: paddle.Tensor, previous: paddle.Tensor, div: int) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Shift a single frame causally: see zoo/models/tsm/torch.py."""
    fold = x.shape[1] // div
    return paddle.concat((previous, x[:, fold:]), 1), x[:, :fold]


def temporal_pool(x: paddle.Tensor, segments: int) -> paddle.Tensor:
    """Max-pool over three neighbouring frames with stride 2: (N*T, C, H, W) -> (N*T/2, C, H, W)."""
    if segments % 2:
        raise ValueError(f"temporal pooling needs an even number of frames, not {segments}")
    clips = x.reshape((-1, segments, *x.shape[1:]))
    clips = paddle.concat([paddle.full_like(clips[:, :1], float("-inf")), clips], 1)
    return paddle.maximum(paddle.maximum(clips[:, 1::2], clips[:, 2::2]), clips[:, :-1:2]).flatten(0, 1)


class NonLocal(nn.Layer):
    """Non-local block (arXiv:1711.07971): embedded-Gaussian attention over all positions of a clip, with a shortcut."""

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
        attended = F.softmax(query @ key, -1) @ value  # (N, THW, C/2)
        attended = attended.transpose((0, 2, 1)).reshape((clips.shape[0], -1, *clips.shape[2:]))
        return (self.bn(self.out(attended)) + clips).transpose((0, 2, 1, 3, 4)).flatten(0, 1)


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

    def forward(self, video: paddle.Tensor, dropout: paddle.Tensor | None = None) -> paddle.Tensor:
        return self.frame_logits(video, dropout).mean(1)

    def forward_features(self, video: paddle.Tensor) -> paddle.Tensor:
        """Return the maps of all frames: (N, T, 3, H, W) -> (N * T', features, H/32, W/32)."""
        segments = video.shape[1]
        x = self.stem(video.flatten(0, 1))
        for number, layer in enumerate((self.layer1, self.layer2, self.layer3, self.layer4)):
            if number == 1 and self.arch.temporal_pool:
                x, segments = temporal_pool(x, segments), segments // 2
            for block, has_shift in zip(layer, self.shifts[number]):
                x = self.run_block(block, x, segments, has_shift)
        return x

    def frame_logits(self, video: paddle.Tensor, dropout: paddle.Tensor | None = None) -> paddle.Tensor:
        """Return the logits of every frame, (N, T', num_classes); their mean is the output for a clip."""
        x = self.forward_features(video)
        x = x.mean((2, 3)).reshape((video.shape[0], -1, x.shape[1]))  # (N, T', features)
        if dropout is not None:
            x = x * (dropout.astype(x.dtype) / (1 - self.dropout_rate))
        return self.fc(x)

    def forward_frame(
        self, frame: paddle.Tensor, state: tuple[paddle.Tensor, ...]
    ) -> tuple[paddle.Tensor, tuple[paddle.Tensor, ...]]:
        """Compute the next frame of a stream with a causal shift: see zoo/models/tsm/torch.py."""
        check_causal(self.arch)
        x = self.stem(frame)
        new_state: list[paddle.Tensor] = []
        for layer, has_shifts in zip((self.layer1, self.layer2, self.layer3, self.layer4), self.shifts):
            for block, has_shift in zip(layer, has_shifts):
                if not has_shift or x.shape[1] < self.arch.shift_div:
                    x = block(x)
                    continue
                shifted, kept = shift_frame(x, state[len(new_state)], self.arch.shift_div)
                new_state.append(kept)
                x = block(shifted) if self.arch.shift_place == "block" else block(x, shifted)
        return self.fc(x.mean((2, 3))), tuple(new_state)

    def run_block(self, block: nn.Layer, x: paddle.Tensor, segments: int, has_shift: bool) -> paddle.Tensor:
        """Run a BasicBlock or Bottleneck, with its shift and its non-local block if it has them."""
        if not has_shift:
            x = block(x)
        elif self.arch.shift_place == "block":
            x = block(self.shift(x, segments))
        else:  # blockres: the shortcut gets the unshifted frames
            x = block(x, self.shift(x, segments))
        return block.nl(x, segments) if hasattr(block, "nl") else x

    def shift(self, x: paddle.Tensor, segments: int) -> paddle.Tensor:
        """Shift (N*T, C, H, W) as the architecture defines it."""
        return temporal_shift(x, segments, self.arch.shift_div, self.arch.shift_direction)
