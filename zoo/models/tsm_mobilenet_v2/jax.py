"""TSM on MobileNetV2 in JAX, channels last, parallel to torch.py and the others; spec.py has options and names."""

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax import Array

from zoo.models.resnet.jax import conv, conv1x1, linear, norm
from zoo.models.tsm.jax import shift_frame, temporal_shift
from zoo.models.tsm.spec import check_causal
from zoo.models.tsm_mobilenet_v2.spec import Arch, Block, blocks


def relu6(x: Array) -> Array:
    """Return x between 0 and 6, where alone it has a derivative; that of nnx.relu6 is 1/2 at both ends."""
    return jnp.where(x < 6, nnx.relu(x), 6)


class InvertedResidual(nnx.Module):
    """1x1 convolution that expands, depthwise 3x3 with stride, 1x1 that projects; linear at its end."""

    def __init__(self, block: Block):
        self.expands, self.has_shortcut = block.expands, block.has_shortcut
        if block.expands:
            self.expand = conv1x1(block.inputs, block.hidden, 1)
            self.bn1 = norm(block.hidden)
        self.depthwise = conv(
            block.hidden, block.hidden, 3, block.stride, 1, feature_group_count=block.hidden, use_bias=False
        )
        self.bn2 = norm(block.hidden)
        self.project = conv1x1(block.hidden, block.outputs, 1)
        self.bn3 = norm(block.outputs)

    def __call__(self, x: Array, residual_input: Array) -> Array:
        """Return the block of x; `residual_input`: what the residual branch gets instead of x."""
        residual = residual_input
        if self.expands:
            residual = relu6(self.bn1(self.expand(residual)))
        residual = relu6(self.bn2(self.depthwise(residual)))
        residual = self.bn3(self.project(residual))
        return x + residual if self.has_shortcut else residual


class Model(nnx.Module):
    """TSM: video (N, T, H, W, 3) float, dropout mask (N, T, features) or None -> logits (N, num_classes)."""

    def __init__(self, arch: Arch):
        self.arch, self.dropout_rate = arch, arch.dropout
        sizes = blocks(arch)
        self.conv1 = conv(3, sizes[0].inputs, 3, 2, 1, use_bias=False)
        self.bn1 = norm(sizes[0].inputs)
        self.blocks: Any = nnx.Sequential(*(InvertedResidual(block) for block in sizes))
        self.conv2 = conv1x1(sizes[-1].outputs, arch.features, 1)
        self.bn2 = norm(arch.features)
        self.fc = linear(arch.features, arch.outputs)

    def __call__(self, video: Array, dropout: Array | None = None) -> Array:
        return self.frame_logits(video, dropout).mean(1)

    def forward_features(self, video: Array) -> Array:
        """Return the maps of all frames: (N, T, H, W, 3) -> (N * T, H/32, W/32, features)."""
        segments = video.shape[1]
        x = relu6(self.bn1(self.conv1(video.reshape(-1, *video.shape[2:]))))
        for block in self.blocks.layers:
            x = block(x, self.shift(x, segments) if block.has_shortcut else x)
        return relu6(self.bn2(self.conv2(x)))

    def frame_logits(self, video: Array, dropout: Array | None = None) -> Array:
        """Return the logits of every frame, (N, T, num_classes); their mean is the output for a clip."""
        x = self.forward_features(video)
        x = x.mean((1, 2)).reshape(video.shape[0], -1, x.shape[-1])  # (N, T, features)
        if dropout is not None:
            x = x * (dropout / (1 - self.dropout_rate))
        return self.fc(x)

    def forward_frame(self, frame: Array, state: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
        """Compute the next frame of a stream with a causal shift; see zoo/models/tsm/jax.py."""
        check_causal(self.arch)
        x = relu6(self.bn1(self.conv1(frame)))
        new_state: list[Array] = []
        for block in self.blocks.layers:
            if not block.has_shortcut or x.shape[-1] < self.arch.shift_div:
                x = block(x, x)
                continue
            shifted, kept = shift_frame(x, state[len(new_state)], self.arch.shift_div)
            new_state.append(kept)
            x = block(x, shifted)
        x = relu6(self.bn2(self.conv2(x)))
        return self.fc(x.mean((1, 2))), tuple(new_state)

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier by one for other classes, with the framework's own initial values."""
        self.fc = linear(self.fc.in_features, num_classes)

    def shift(self, x: Array, segments: int) -> Array:
        """Shift (N*T, H, W, C) as the architecture defines it."""
        return temporal_shift(x, segments, self.arch.shift_div, self.arch.shift_direction)
