"""TSM in MindSpore, parallel to torch.py and paddle.py; spec.py describes options and tensor names."""

from mindspore import Tensor, nn, ops

from zoo.models.resnet import mindspore as resnet
from zoo.models.tsm.spec import NON_LOCAL_BLOCKS, SHIFT_OFFSETS, Arch, check_causal, shifts


def temporal_shift(x: Tensor, segments: int, div: int = 8, direction: str = "future") -> Tensor:
    """Shift channels between neighbouring frames of the same clip: see zoo/models/tsm/torch.py."""
    if x.shape[0] % segments:
        raise ValueError(f"{x.shape[0]} frames are not whole clips of {segments}")
    if div < 2:
        raise ValueError(f"div must be at least 2, not {div}")
    if direction not in SHIFT_OFFSETS:
        raise ValueError(f"direction must be future, past or causal, not {direction!r}")
    return _shift_channels(x, segments, x.shape[1] // div, SHIFT_OFFSETS[direction])


def _shift_channels(x: Tensor, segments: int, fold: int, offsets: tuple[int, ...]) -> Tensor:
    if fold == 0:
        return x
    clips = x.reshape((-1, segments) + x.shape[1:])  # (N, T, C, H, W)
    parts = []
    for i, offset in enumerate(offsets):
        moved = clips[:, :, i * fold : (i + 1) * fold]
        parts.append(_from_next(moved) if offset == 1 else _from_previous(moved))
    if len(offsets) * fold < x.shape[1]:  # MindSpore rejects empty parts
        parts.append(clips[:, :, len(offsets) * fold :])
    return ops.concat(parts, 2).reshape(x.shape)


def _from_next(clips: Tensor) -> Tensor:
    zeros = ops.zeros_like(clips[:, :1])
    return zeros if clips.shape[1] == 1 else ops.concat((clips[:, 1:], zeros), 1)


def _from_previous(clips: Tensor) -> Tensor:
    zeros = ops.zeros_like(clips[:, :1])
    return zeros if clips.shape[1] == 1 else ops.concat((zeros, clips[:, :-1]), 1)


def shift_frame(x: Tensor, previous: Tensor, div: int) -> tuple[Tensor, Tensor]:
    """Shift a single frame causally: see zoo/models/tsm/torch.py."""
    fold = x.shape[1] // div
    return ops.concat((previous, x[:, fold:]), 1), x[:, :fold]


def temporal_pool(x: Tensor, segments: int) -> Tensor:
    """Max-pool over three neighbouring frames with stride 2: (N*T, C, H, W) -> (N*T/2, C, H, W)."""
    if segments % 2:
        raise ValueError(f"temporal pooling needs an even number of frames, not {segments}")
    pairs = x.reshape((-1, segments // 2, 2) + x.shape[1:])  # no steps of 2, whose gradient MindSpore lacks in fp64
    pooled = ops.maximum(pairs[:, :, 0], pairs[:, :, 1])
    if segments > 2:  # the first frame has no previous one
        before = ops.maximum(pooled[:, 1:], pairs[:, :-1, 1])
        pooled = ops.concat((pooled[:, :1], before), 1)
    return pooled.reshape((-1,) + x.shape[1:])


class NonLocal(nn.Cell):
    """Non-local block (arXiv:1711.07971): embedded-Gaussian attention over all positions of a clip, with a shortcut."""

    def __init__(self, channels: int):
        super().__init__()
        self.theta = nn.Conv3d(channels, channels // 2, 1, pad_mode="pad", has_bias=True)
        self.phi = nn.Conv3d(channels, channels // 2, 1, pad_mode="pad", has_bias=True)
        self.g = nn.Conv3d(channels, channels // 2, 1, pad_mode="pad", has_bias=True)
        self.out = nn.Conv3d(channels // 2, channels, 1, pad_mode="pad", has_bias=True)
        self.bn = nn.BatchNorm3d(channels)
        self.max_pool = nn.MaxPool2d(2, 2)  # over space, not over time

    def construct(self, x: Tensor, segments: int) -> Tensor:
        clips = x.reshape((-1, segments) + x.shape[1:]).swapaxes(1, 2)  # (N, C, T, H, W)
        query = self.theta(clips).reshape(clips.shape[0], clips.shape[1] // 2, -1).swapaxes(1, 2)  # (N, THW, C/2)
        key = self.pooled(self.phi(clips))  # (N, C/2, THW/4)
        value = self.pooled(self.g(clips)).swapaxes(1, 2)
        attended = ops.matmul(ops.softmax(ops.matmul(query, key), -1), value)  # (N, THW, C/2)
        attended = attended.swapaxes(1, 2).reshape((clips.shape[0], -1) + clips.shape[2:])
        return (self.bn(self.out(attended)) + clips).swapaxes(1, 2).reshape(x.shape)

    def pooled(self, clips: Tensor) -> Tensor:
        """Max-pool each frame over 2x2 pixels: (N, C, T, H, W) -> (N, C, THW/4)."""
        n, c, t, h, w = clips.shape
        return self.max_pool(clips.reshape(n, c * t, h, w)).reshape(n, c, -1)


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

    def construct(self, video: Tensor, dropout: Tensor | None = None) -> Tensor:
        return self.frame_logits(video, dropout).mean(1)

    def forward_features(self, video: Tensor) -> Tensor:
        """Return the maps of all frames: (N, T, 3, H, W) -> (N * T', features, H/32, W/32)."""
        segments = video.shape[1]
        x = self.stem(video.reshape((-1,) + video.shape[2:]))
        for number, layer in enumerate((self.layer1, self.layer2, self.layer3, self.layer4)):
            if number == 1 and self.arch.temporal_pool:
                x, segments = temporal_pool(x, segments), segments // 2
            for block, has_shift in zip(layer, self.shifts[number]):
                x = self.run_block(block, x, segments, has_shift)
        return x

    def frame_logits(self, video: Tensor, dropout: Tensor | None = None) -> Tensor:
        """Return the logits of every frame, (N, T', num_classes); their mean is the output for a clip."""
        x = self.forward_features(video)
        x = x.mean((2, 3)).reshape(video.shape[0], -1, self.fc.in_channels)  # (N, T', features)
        if dropout is not None:
            x = x * (dropout / (1 - self.dropout_rate))
        return self.fc(x)

    def forward_frame(self, frame: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Compute the next frame of a stream with a causal shift: see zoo/models/tsm/torch.py."""
        check_causal(self.arch)
        x = self.stem(frame)
        new_state: list[Tensor] = []
        for layer, has_shifts in zip((self.layer1, self.layer2, self.layer3, self.layer4), self.shifts):
            for block, has_shift in zip(layer, has_shifts):
                if not has_shift or x.shape[1] < self.arch.shift_div:
                    x = block(x)
                    continue
                shifted, kept = shift_frame(x, state[len(new_state)], self.arch.shift_div)
                new_state.append(kept)
                x = block(shifted) if self.arch.shift_place == "block" else block(x, shifted)
        return self.fc(x.mean((2, 3))), tuple(new_state)

    def run_block(self, block: nn.Cell, x: Tensor, segments: int, has_shift: bool) -> Tensor:
        """Run a BasicBlock or Bottleneck, with its shift and its non-local block if it has them."""
        if not has_shift:
            x = block(x)
        elif self.arch.shift_place == "block":
            x = block(self.shift(x, segments))
        else:  # blockres: the shortcut gets the unshifted frames
            x = block(x, self.shift(x, segments))
        return block.nl(x, segments) if hasattr(block, "nl") else x

    def shift(self, x: Tensor, segments: int) -> Tensor:
        """Shift (N*T, C, H, W) as the architecture defines it."""
        return temporal_shift(x, segments, self.arch.shift_div, self.arch.shift_direction)
