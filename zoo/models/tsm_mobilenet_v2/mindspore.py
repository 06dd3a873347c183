"""TSM on MobileNetV2 in MindSpore, parallel to torch.py and paddle.py; spec.py describes options and tensor names."""

from mindspore import Tensor, nn, ops

from zoo.models.tsm.mindspore import shift_frame, temporal_shift
from zoo.models.tsm.spec import check_causal
from zoo.models.tsm_mobilenet_v2.spec import Arch, Block, blocks


class InvertedResidual(nn.Cell):
    """1x1 convolution that expands, depthwise 3x3 with stride, 1x1 that projects; linear at its end."""

    def __init__(self, block: Block):
        super().__init__()
        self.expands, self.has_shortcut = block.expands, block.has_shortcut
        if block.expands:
            self.expand = nn.Conv2d(block.inputs, block.hidden, 1, has_bias=False)
            self.bn1 = nn.BatchNorm2d(block.hidden)
        self.depthwise = nn.Conv2d(
            block.hidden, block.hidden, 3, block.stride, "pad", 1, group=block.hidden, has_bias=False
        )
        self.bn2 = nn.BatchNorm2d(block.hidden)
        self.project = nn.Conv2d(block.hidden, block.outputs, 1, has_bias=False)
        self.bn3 = nn.BatchNorm2d(block.outputs)

    def construct(self, x: Tensor, residual_input: Tensor) -> Tensor:
        """Return the block of x; `residual_input`: what the residual branch gets instead of x."""
        residual = residual_input
        if self.expands:
            residual = ops.relu6(self.bn1(self.expand(residual)))
        residual = ops.relu6(self.bn2(self.depthwise(residual)))
        residual = self.bn3(self.project(residual))
        return x + residual if self.has_shortcut else residual


class Model(nn.Cell):
    """TSM: video (N, T, 3, H, W) float, dropout mask (N, T, features) or None -> logits (N, num_classes)."""

    def __init__(self, arch: Arch):
        super().__init__()
        self.arch, self.dropout_rate = arch, arch.dropout
        sizes = blocks(arch)
        self.conv1 = nn.Conv2d(3, sizes[0].inputs, 3, 2, "pad", 1, has_bias=False)
        self.bn1 = nn.BatchNorm2d(sizes[0].inputs)
        self.blocks = nn.SequentialCell(*(InvertedResidual(block) for block in sizes))
        self.conv2 = nn.Conv2d(sizes[-1].outputs, arch.features, 1, has_bias=False)
        self.bn2 = nn.BatchNorm2d(arch.features)
        self.fc = nn.Dense(arch.features, arch.outputs)

    def construct(self, video: Tensor, dropout: Tensor | None = None) -> Tensor:
        return self.frame_logits(video, dropout).mean(1)

    def forward_features(self, video: Tensor) -> Tensor:
        """Return the maps of all frames: (N, T, 3, H, W) -> (N * T, features, H/32, W/32)."""
        segments = video.shape[1]
        x = ops.relu6(self.bn1(self.conv1(video.reshape((-1,) + video.shape[2:]))))
        for block in self.blocks:
            x = block(x, self.shift(x, segments) if block.has_shortcut else x)
        return ops.relu6(self.bn2(self.conv2(x)))

    def frame_logits(self, video: Tensor, dropout: Tensor | None = None) -> Tensor:
        """Return the logits of every frame, (N, T, num_classes); their mean is the output for a clip."""
        x = self.forward_features(video)
        x = x.mean((2, 3)).reshape(video.shape[0], -1, self.fc.in_channels)  # (N, T, features)
        if dropout is not None:
            x = x * (dropout / (1 - self.dropout_rate))
        return self.fc(x)

    def forward_frame(self, frame: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Compute the next frame of a stream with a causal shift; see zoo/models/tsm/torch.py."""
        check_causal(self.arch)
        x = ops.relu6(self.bn1(self.conv1(frame)))
        new_state: list[Tensor] = []
        for block in self.blocks:
            if not block.has_shortcut or x.shape[1] < self.arch.shift_div:
                x = block(x, x)
                continue
            shifted, kept = shift_frame(x, state[len(new_state)], self.arch.shift_div)
            new_state.append(kept)
            x = block(x, shifted)
        x = ops.relu6(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3))), tuple(new_state)

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier by one for other classes, with the framework's own initial values."""
        self.fc = nn.Dense(self.fc.in_channels, num_classes)

    def shift(self, x: Tensor, segments: int) -> Tensor:
        """Shift (N*T, C, H, W) as the architecture defines it."""
        return temporal_shift(x, segments, self.arch.shift_div, self.arch.shift_direction)
