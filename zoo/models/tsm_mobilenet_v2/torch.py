"""TSM on MobileNetV2 in PyTorch, parallel to paddle.py and mindspore.py; spec.py describes options and tensor names."""

import torch
import torch.nn.functional as F
from torch import nn

from zoo.models.tsm.spec import check_causal
from zoo.models.tsm.torch import shift_frame, temporal_shift
from zoo.models.tsm_mobilenet_v2.spec import Arch, Block, blocks


class InvertedResidual(nn.Module):
    """1x1 convolution that expands, depthwise 3x3 with stride, 1x1 that projects; linear at its end."""

    def __init__(self, block: Block):
        super().__init__()
        self.expands, self.has_shortcut = block.expands, block.has_shortcut
        if block.expands:
            self.expand = nn.Conv2d(block.inputs, block.hidden, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(block.hidden)
        self.depthwise = nn.Conv2d(block.hidden, block.hidden, 3, block.stride, 1, groups=block.hidden, bias=False)
        self.bn2 = nn.BatchNorm2d(block.hidden)
        self.project = nn.Conv2d(block.hidden, block.outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(block.outputs)

    def forward(self, x: torch.Tensor, residual_input: torch.Tensor) -> torch.Tensor:
        """Return the block of x; `residual_input`: what the residual branch gets instead of x."""
        residual = residual_input
        if self.expands:
            residual = F.relu6(self.bn1(self.expand(residual)), inplace=True)
        residual = F.relu6(self.bn2(self.depthwise(residual)), inplace=True)
        residual = self.bn3(self.project(residual))
        return x + residual if self.has_shortcut else residual


class Model(nn.Module):
    """TSM: video (N, T, 3, H, W) float, dropout mask (N, T, features) or None -> logits (N, num_classes)."""

    def __init__(self, arch: Arch):
        super().__init__()
        self.arch, self.dropout_rate = arch, arch.dropout
        sizes = blocks(arch)
        self.conv1 = nn.Conv2d(3, sizes[0].inputs, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(sizes[0].inputs)
        self.blocks = nn.Sequential(*(InvertedResidual(block) for block in sizes))
        self.conv2 = nn.Conv2d(sizes[-1].outputs, arch.features, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(arch.features)
        self.fc = nn.Linear(arch.features, arch.outputs)

    def forward(self, video: torch.Tensor, dropout: torch.Tensor | None = None) -> torch.Tensor:
        return self.frame_logits(video, dropout).mean(1)

    def forward_features(self, video: torch.Tensor) -> torch.Tensor:
        """Return the maps of all frames: (N, T, 3, H, W) -> (N * T, features, H/32, W/32)."""
        segments = video.shape[1]
        x = F.relu6(self.bn1(self.conv1(video.flatten(0, 1))), inplace=True)
        for block in self.blocks:
            x = block(x, self.shift(x, segments) if block.has_shortcut else x)
        return F.relu6(self.bn2(self.conv2(x)), inplace=True)

    def frame_logits(self, video: torch.Tensor, dropout: torch.Tensor | None = None) -> torch.Tensor:
        """Return the logits of every frame, (N, T, num_classes); their mean is the output for a clip."""
        x = self.forward_features(video)
        x = x.mean((2, 3)).unflatten(0, (video.shape[0], -1))  # (N, T, features)
        if dropout is not None:
            x = x * (dropout / (1 - self.dropout_rate))
        return self.fc(x)

    def forward_frame(
        self, frame: torch.Tensor, state: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Compute the next frame of a stream with a causal shift; see zoo/models/tsm/torch.py."""
        check_causal(self.arch)
        x = F.relu6(self.bn1(self.conv1(frame)), inplace=True)
        new_state: list[torch.Tensor] = []
        for block in self.blocks:
            if not block.has_shortcut or x.shape[1] < self.arch.shift_div:
                x = block(x, x)
                continue
            shifted, kept = shift_frame(x, state[len(new_state)], self.arch.shift_div)
            new_state.append(kept)
            x = block(x, shifted)
        x = F.relu6(self.bn2(self.conv2(x)), inplace=True)
        return self.fc(x.mean((2, 3))), tuple(new_state)

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier by one for other classes, with the framework's own initial values."""
        self.fc = nn.Linear(self.fc.in_features, num_classes, device=self.fc.weight.device)

    def shift(self, x: torch.Tensor, segments: int) -> torch.Tensor:
        """Shift (N*T, C, H, W) as the architecture defines it."""
        return temporal_shift(x, segments, self.arch.shift_div, self.arch.shift_direction)
