"""TSM on MobileNetV2 in PaddlePaddle, parallel to torch.py and mindspore.py; spec.py describes options and names."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from zoo.models.tsm.paddle import shift_frame, temporal_shift
from zoo.models.tsm.spec import check_causal
from zoo.models.tsm_mobilenet_v2.spec import Arch, Block, blocks


class InvertedResidual(nn.Layer):
    """1x1 convolution that expands, depthwise 3x3 with stride, 1x1 that projects; linear at its end."""

    def __init__(self, block: Block):
        super().__init__()
        self.expands, self.has_shortcut = block.expands, block.has_shortcut
        if block.expands:
            self.expand = nn.Conv2D(block.inputs, block.hidden, 1, bias_attr=False)
            self.bn1 = nn.BatchNorm2D(block.hidden)
        self.depthwise = nn.Conv2D(block.hidden, block.hidden, 3, block.stride, 1, groups=block.hidden, bias_attr=False)
        self.bn2 = nn.BatchNorm2D(block.hidden)
        self.project = nn.Conv2D(block.hidden, block.outputs, 1, bias_attr=False)
        self.bn3 = nn.BatchNorm2D(block.outputs)

    def forward(self, x: paddle.Tensor, residual_input: paddle.Tensor) -> paddle.Tensor:
        """Return the block of x; `residual_input`: what the residual branch gets instead of x."""
        residual = residual_input
        if self.expands:
            residual = F.relu6(self.bn1(self.expand(residual)))
        residual = F.relu6(self.bn2(self.depthwise(residual)))
        residual = self.bn3(self.project(residual))
        return x + residual if self.has_shortcut else residual


class Model(nn.Layer):
    """TSM: video (N, T, 3, H, W) float, dropout mask (N, T, features) or None -> logits (N, num_classes)."""

    def __init__(self, arch: Arch):
        super().__init__()
        self.arch, self.dropout_rate = arch, arch.dropout
        sizes = blocks(arch)
        self.conv1 = nn.Conv2D(3, sizes[0].inputs, 3, 2, 1, bias_attr=False)
        self.bn1 = nn.BatchNorm2D(sizes[0].inputs)
        self.blocks = nn.Sequential(*(InvertedResidual(block) for block in sizes))
        self.conv2 = nn.Conv2D(sizes[-1].outputs, arch.features, 1, bias_attr=False)
        self.bn2 = nn.BatchNorm2D(arch.features)
        self.fc = nn.Linear(arch.features, arch.outputs)

    def forward(self, video: paddle.Tensor, dropout: paddle.Tensor | None = None) -> paddle.Tensor:
        return self.frame_logits(video, dropout).mean(1)

    def forward_features(self, video: paddle.Tensor) -> paddle.Tensor:
        """Return the maps of all frames: (N, T, 3, H, W) -> (N * T, features, H/32, W/32)."""
        segments = video.shape[1]
        x = F.relu6(self.bn1(self.conv1(video.flatten(0, 1))))
        for block in self.blocks:
            x = block(x, self.shift(x, segments) if block.has_shortcut else x)
        return F.relu6(self.bn2(self.conv2(x)))

    def frame_logits(self, video: paddle.Tensor, dropout: paddle.Tensor | None = None) -> paddle.Tensor:
        """Return the logits of every frame, (N, T, num_classes); their mean is the output for a clip."""
        x = self.forward_features(video)
        x = x.mean((2, 3)).reshape((video.shape[0], -1, x.shape[1]))  # (N, T, features)
        if dropout is not None:
            x = x * (dropout.astype(x.dtype) / (1 - self.dropout_rate))
        return self.fc(x)

    def forward_frame(
        self, frame: paddle.Tensor, state: tuple[paddle.Tensor, ...]
    ) -> tuple[paddle.Tensor, tuple[paddle.Tensor, ...]]:
        """Compute the next frame of a stream with a causal shift; see zoo/models/tsm/torch.py."""
        check_causal(self.arch)
        x = F.relu6(self.bn1(self.conv1(frame)))
        new_state: list[paddle.Tensor] = []
        for block in self.blocks:
            if not block.has_shortcut or x.shape[1] < self.arch.shift_div:
                x = block(x, x)
                continue
            shifted, kept = shift_frame(x, state[len(new_state)], self.arch.shift_div)
            new_state.append(kept)
            x = block(x, shifted)
        x = F.relu6(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3))), tuple(new_state)

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier by one for other classes, with the framework's own initial values."""
        self.fc = nn.Linear(self.fc.weight.shape[0], num_classes)

    def shift(self, x: paddle.Tensor, segments: int) -> paddle.Tensor:
        """Shift (N*T, C, H, W) as the architecture defines it."""
        return temporal_shift(x, segments, self.arch.shift_div, self.arch.shift_direction)
