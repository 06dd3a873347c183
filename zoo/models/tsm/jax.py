"""TSM in JAX, channels last, parallel to torch.py and the others; spec.py describes options and names."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from zoo.models.resnet import jax as resnet
from zoo.models.tsm.spec import NON_LOCAL_BLOCKS, SHIFT_OFFSETS, Arch, check_causal, shifts


def temporal_shift(x: Array, segments: int, div: int = 8, direction: str = "future") -> Array:
    """Shift channels between neighbouring frames of the same clip (arXiv:1811.08383).

    With f = C // div, channels [0, f) come from the next frame and channels [f, 2f) from the previous one if
    `direction` is future, the other way round if it is past. If it is causal, channels [0, f) come from the previous
    frame. The other channels stay. A frame without that neighbour gets zeros.

    Args:
        x: (N*T, H, W, C), the frames of a clip one after the other.
        segments: T, frames per clip.
        div: 1 / div of the channels is shifted in each direction.
    """
    if x.shape[0] % segments:
        raise ValueError(f"{x.shape[0]} frames are not whole clips of {segments}")
    if div < 2:
        raise ValueError(f"div must be at least 2, not {div}")
    if direction not in SHIFT_OFFSETS:
        raise ValueError(f"direction must be future, past or causal, not {direction!r}")
    clips, fold, offsets = unflatten(x, segments), x.shape[-1] // div, SHIFT_OFFSETS[direction]
    parts = [
        _moved(clips[..., i * fold : (i + 1) * fold], offset)  # 1: from the next frame
        for i, offset in enumerate(offsets)
    ]
    return jnp.concatenate([*parts, clips[..., len(offsets) * fold :]], -1).reshape(x.shape)


def _moved(clips: Array, offset: int) -> Array:
    """Return the next frame (offset 1) or the previous one (-1) in place of each; zeros where there is none."""
    padding = [(0, 0), (0, 1) if offset == 1 else (1, 0)] + [(0, 0)] * 3
    padded = jnp.pad(clips, padding)
    return padded[:, 1:] if offset == 1 else padded[:, :-1]


def shift_frame(x: Array, previous: Array, div: int) -> tuple[Array, Array]:
    """Shift a single frame causally.

    Args:
        x: (N, H, W, C), the frame.
        previous: (N, C // div, H, W), the first channels of the frame before.
        div: 1 / div of the channels is shifted.

    Returns:
        x with these channels in place of its own, and its own.
    """
    fold = x.shape[-1] // div
    shifted = jnp.concatenate([jnp.moveaxis(previous, 1, -1).astype(x.dtype), x[..., fold:]], -1)
    return shifted, jnp.moveaxis(x[..., :fold], -1, 1)


def unflatten(x: Array, segments: int) -> Array:
    """Return the frames of each clip along an axis of their own: (N*T, ...) -> (N, T, ...)."""
    return x.reshape(-1, segments, *x.shape[1:])


def temporal_pool(x: Array, segments: int) -> Array:
    """Max-pool over three neighbouring frames with stride 2: (N*T, H, W, C) -> (N*T/2, H, W, C)."""
    if segments % 2:
        raise ValueError(f"temporal pooling needs an even number of frames, not {segments}")
    clips = unflatten(x, segments)
    flat = clips.reshape(*clips.shape[:2], -1)
    pooled = nnx.max_pool(flat, (3,), (2,), ((1, 0),))
    return pooled.reshape(-1, *x.shape[1:])


class NonLocal(nnx.Module):
    """Non-local block (arXiv:1711.07971): embedded-Gaussian attention over all positions of a clip, with a shortcut."""

    def __init__(self, channels: int):
        self.theta = conv3d(channels, channels // 2)
        self.phi = conv3d(channels, channels // 2)
        self.g = conv3d(channels, channels // 2)
        self.out = conv3d(channels // 2, channels)
        self.bn = resnet.norm(channels)

    def __call__(self, x: Array, segments: int) -> Array:
        clips = unflatten(x, segments)  # (N, T, H, W, C)
        samples, width = clips.shape[0], clips.shape[-1] // 2
        query = self.theta(clips).reshape(samples, -1, width)  # (N, THW, C/2)
        key, value = (  # (N, THW/4, C/2)
            nnx.max_pool(part(clips), (1, 2, 2), (1, 2, 2)).reshape(samples, -1, width) for part in (self.phi, self.g)
        )
        scores = query @ key.swapaxes(1, 2)
        weights = jax.nn.softmax(scores.astype(jnp.promote_types(scores.dtype, jnp.float32)), -1)
        attended = (weights.astype(value.dtype) @ value).reshape(*clips.shape[:-1], width)
        return (self.bn(self.out(attended)) + clips).reshape(x.shape)


def conv3d(inputs: int, outputs: int) -> nnx.Conv:
    """Return a 1x1x1 convolution."""
    return nnx.Conv(inputs, outputs, (1, 1, 1), rngs=nnx.Rngs(0))


class Model(resnet.Model):
    """TSM: video (N, T, H, W, 3) float, dropout mask (N, T', features) or None -> logits (N, num_classes).

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
                    stage.layers[block].nl = NonLocal(arch.backbone.width * 2 ** (layer - 1) * arch.backbone.expansion)

    def __call__(self, video: Array, dropout: Array | None = None) -> Array:
        return self.frame_logits(video, dropout).mean(1)

    def forward_features(self, video: Array) -> Array:
        """Return the maps of all frames: (N, T, H, W, 3) -> (N * T', H/32, W/32, features)."""
        segments = video.shape[1]
        x = self.stem(video.reshape(-1, *video.shape[2:]))
        for number, layer in enumerate((self.layer1, self.layer2, self.layer3, self.layer4)):
            if number == 1 and self.arch.temporal_pool:
                x, segments = temporal_pool(x, segments), segments // 2
            for block, has_shift in zip(layer.layers, self.shifts[number]):
                x = self.run_block(block, x, segments, has_shift)
        return x

    def frame_logits(self, video: Array, dropout: Array | None = None) -> Array:
        """Return the logits of every frame, (N, T', num_classes); their mean is the output for a clip."""
        x = self.forward_features(video)
        x = x.mean((1, 2)).reshape(video.shape[0], -1, x.shape[-1])  # (N, T', features)
        if dropout is not None:
            x = x * (dropout / (1 - self.dropout_rate))
        return self.fc(x)

    def forward_frame(self, frame: Array, state: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
        """Compute the next frame of a stream with a causal shift, as `frame_logits` computes it within a clip.

        Args:
            frame: (N, H, W, 3), the next frame of each of N streams.
            state: what the call for the frame before returned, (N, *shape) for each of spec.state_shapes; zeros for
                the first frame.

        Returns:
            The frame's logits (N, num_classes), and the state for the next call.

        Raises:
            ValueError: the shift is not causal.
        """
        check_causal(self.arch)
        x = self.stem(frame)
        new_state: list[Array] = []
        for layer, has_shifts in zip((self.layer1, self.layer2, self.layer3, self.layer4), self.shifts):
            for block, has_shift in zip(layer.layers, has_shifts):
                if not has_shift or x.shape[-1] < self.arch.shift_div:
                    x = block(x)
                    continue
                shifted, kept = shift_frame(x, state[len(new_state)], self.arch.shift_div)
                new_state.append(kept)
                x = block(shifted) if self.arch.shift_place == "block" else block(x, shifted)
        return self.fc(x.mean((1, 2))), tuple(new_state)

    def run_block(self, block: Any, x: Array, segments: int, has_shift: bool) -> Array:
        """Run a BasicBlock or Bottleneck, with its shift and its non-local block if it has them."""
        if not has_shift:
            x = block(x)
        elif self.arch.shift_place == "block":
            x = block(self.shift(x, segments))
        else:  # blockres: the shortcut gets the unshifted frames
            x = block(x, self.shift(x, segments))
        return block.nl(x, segments) if hasattr(block, "nl") else x

    def shift(self, x: Array, segments: int) -> Array:
        """Shift (N*T, H, W, C) as the architecture defines it."""
        return temporal_shift(x, segments, self.arch.shift_div, self.arch.shift_direction)
