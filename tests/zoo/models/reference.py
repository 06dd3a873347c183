"""The four models in numpy and float64, from their papers' definitions, for tensors by canonical name.

Images are (N, C, H, W). Strides and dilations are written out here, not taken from the specifications.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Arrays = dict[str, np.ndarray]
BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
STATISTICS_RATE = 0.1


class Layers:
    """Layers with given tensors.

    Args:
        tensors: by canonical name.
        training: normalize with the statistics of the batch; else with the running ones.
        epsilon: of every batch normalization.

    Attributes:
        statistics: running statistics after a forward pass in training, by canonical name.
    """

    def __init__(self, tensors: Mapping[str, np.ndarray], training: bool, epsilon: float = 1e-5):
        self.tensors = {name: array.astype(np.float64) for name, array in tensors.items()}
        self.training, self.epsilon = training, epsilon
        self.statistics: Arrays = {}

    def conv(self, name: str, x: np.ndarray, stride: int = 1, dilation: int = 1) -> np.ndarray:
        """Convolve, padded with zeros so that stride 1 keeps the size; one input channel per filter: depthwise."""
        weight = self.tensors[f"{name}.weight"]
        kernel = weight.shape[-1]
        patches = windows(x, kernel, stride, kernel // 2 * dilation, dilation)
        if weight.shape[1] < x.shape[1]:
            y = np.einsum("nchwij,cij->nchw", patches, weight[:, 0])
        else:
            y = np.moveaxis(np.tensordot(patches, weight, ((1, 4, 5), (1, 2, 3))), -1, 1)
        return y + column(self.tensors[f"{name}.bias"]) if f"{name}.bias" in self.tensors else y

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        weight, bias, mean, variance = (
            self.tensors[f"{name}.{part}"] for part in ("weight", "bias", "running_mean", "running_var")
        )
        if self.training:
            axes, count = (0, 2, 3), x.size // x.shape[1]
            new_mean, new_variance = x.mean(axes), x.var(axes)
            unbiased = new_variance * count / (count - 1)
            for part, old, new in (("running_mean", mean, new_mean), ("running_var", variance, unbiased)):
                self.statistics[f"{name}.{part}"] = (1 - STATISTICS_RATE) * old + STATISTICS_RATE * new
            mean, variance = new_mean, new_variance
        return (x - column(mean)) / np.sqrt(column(variance) + self.epsilon) * column(weight) + column(bias)

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def prelu(self, name: str, x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, x, x * column(self.tensors[f"{name}.weight"]))

    def has(self, name: str) -> bool:
        return f"{name}.weight" in self.tensors


def column(values: np.ndarray) -> np.ndarray:
    return values.reshape(1, -1, 1, 1)


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def windows(x: np.ndarray, kernel: int, stride: int, padding: int, dilation: int = 1, fill: float = 0.0) -> np.ndarray:
    """Return the pixels under each position of a kernel: (N, C, H', W', kernel, kernel)."""
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=fill)
    span = (kernel - 1) * dilation + 1
    return sliding_window_view(padded, (span, span), (2, 3))[:, :, ::stride, ::stride, ::dilation, ::dilation]


def max_pool(x: np.ndarray) -> np.ndarray:
    """Return the maximum of 3x3 pixels with stride 2."""
    return windows(x, 3, 2, 1, fill=-np.inf).max((-2, -1))


def average_pool(x: np.ndarray) -> np.ndarray:
    """Return the mean of 2x2 pixels; at an odd border of those that are there."""
    odd = ((0, 0), (0, 0), (0, x.shape[2] % 2), (0, x.shape[3] % 2))
    return np.nanmean(windows(np.pad(x, odd, constant_values=np.nan), 2, 2, 0), (-2, -1))


def resize(x: np.ndarray, size: Sequence[int], align_corners: bool) -> np.ndarray:
    """Resize bilinearly."""
    for axis, length in zip((2, 3), size):
        source = x.shape[axis]
        positions = (np.arange(length) + 0.5) * source / length - 0.5
        if align_corners:
            positions = np.linspace(0, source - 1, length)
        positions = positions.clip(0, source - 1)
        low = positions.astype(int)
        fraction = (positions - low).reshape([-1 if i == axis else 1 for i in range(4)])
        x = x.take(low, axis) * (1 - fraction) + x.take(np.minimum(low + 1, source - 1), axis) * fraction
    return x


def residual(layers: Layers, name: str, x: np.ndarray, stride: int, dilation: int = 1) -> np.ndarray:
    """Return the residual branch of a basic block or, if it has three convolutions, of a bottleneck (v1.5)."""
    if not layers.has(f"{name}.conv3"):
        x = relu(layers.norm(f"{name}.bn1", layers.conv(f"{name}.conv1", x, stride, dilation)))
        return layers.norm(f"{name}.bn2", layers.conv(f"{name}.conv2", x))
    x = relu(layers.norm(f"{name}.bn1", layers.conv(f"{name}.conv1", x)))
    x = relu(layers.norm(f"{name}.bn2", layers.conv(f"{name}.conv2", x, stride, dilation)))
    return layers.norm(f"{name}.bn3", layers.conv(f"{name}.conv3", x))


def shortcut(layers: Layers, name: str, x: np.ndarray, stride: int, averages: bool = False) -> np.ndarray:
    """Return the shortcut of a block; averages: of a stride by average pooling."""
    if not layers.has(f"{name}.downsample.0"):
        return x
    if averages and stride == 2:
        x, stride = average_pool(x), 1
    return layers.norm(f"{name}.downsample.1", layers.conv(f"{name}.downsample.0", x, stride))


def resnet(layers: Layers, image: np.ndarray, depth: int, dilate: tuple[bool, ...] = (False,) * 4) -> np.ndarray:
    """Return the logits (N, K)."""
    x = max_pool(relu(layers.norm("bn1", layers.conv("conv1", image, 2))))
    dilation = 1
    for number, (blocks, is_dilated) in enumerate(zip(BLOCKS[depth], dilate)):
        first_dilation, stride = dilation, 1 if number == 0 or is_dilated else 2
        dilation *= 1 + is_dilated
        for i in range(blocks):
            name, step = f"layer{number + 1}.{i}", stride if i == 0 else 1
            branch = residual(layers, name, x, step, first_dilation if i == 0 else dilation)
            x = relu(branch + shortcut(layers, name, x, step))
    return layers.linear("fc", x.mean((2, 3)))


def shift(clips: np.ndarray, div: int, direction: str) -> np.ndarray:
    """Shift channels of clips (N, T, C, H, W) along T; zeros come from outside of a clip."""
    fold = clips.shape[2] // div
    out = clips.copy()
    folds = [(slice(0, fold), direction == "future"), (slice(fold, 2 * fold), direction == "past")]
    for channels, is_next in folds[:1] if direction == "causal" else folds:
        out[:, :, channels] = 0
        if is_next:
            out[:, :-1, channels] = clips[:, 1:, channels]
        else:
            out[:, 1:, channels] = clips[:, :-1, channels]
    return out


def temporal_pool(clips: np.ndarray) -> np.ndarray:
    """Return the maxima of frames 2t-1, 2t and 2t+1: (N, T, ...) -> (N, T/2, ...)."""
    return np.stack([clips[:, max(t - 1, 0) : t + 2].max(1) for t in range(0, clips.shape[1], 2)], 1)


def tsm(
    layers: Layers,
    video: np.ndarray,
    place: str,
    div: int = 8,
    direction: str = "future",
    pools: bool = False,
    mask: np.ndarray | None = None,
    rate: float = 0.0,
) -> np.ndarray:
    """Return the logits (N, K) of a TSM of depth 18 for a video (N, T, 3, H, W)."""
    frames = video.reshape(-1, *video.shape[2:])
    x, segments = max_pool(relu(layers.norm("bn1", layers.conv("conv1", frames, 2)))), video.shape[1]
    for number in range(4):
        if number == 1 and pools:
            x = temporal_pool(x.reshape(-1, segments, *x.shape[1:])).reshape(-1, *x.shape[1:])
            segments //= 2
        for i in range(2):
            name, step = f"layer{number + 1}.{i}", 2 if number > 0 and i == 0 else 1
            moved = shift(x.reshape(-1, segments, *x.shape[1:]), div, direction).reshape(x.shape)
            branch = residual(layers, name, moved, step)
            x = relu(branch + shortcut(layers, name, moved if place == "block" else x, step))
    features = x.mean((2, 3)).reshape(-1, segments, x.shape[1])
    if mask is not None:
        features = features * mask / (1 - rate)
    return layers.linear("fc", features).mean(1)


def non_local(layers: Layers, x: np.ndarray, segments: int) -> np.ndarray:
    """Return softmax(theta phi) g of x (N*T, C, H, W) over the positions of a clip, plus x; no temperature."""
    clips = x.reshape(-1, segments, *x.shape[1:])

    def project(name: str, source: np.ndarray) -> np.ndarray:
        weight = layers.tensors[f"{name}.weight"][:, :, 0, 0, 0]
        return np.einsum("oc,ntchw->ntohw", weight, source) + column(layers.tensors[f"{name}.bias"])

    def pooled(values: np.ndarray) -> np.ndarray:
        n, t, c, h, w = values.shape
        return values.reshape(n, t, c, h // 2, 2, w // 2, 2).max((4, 6))

    query, keys, values = project("theta", clips), pooled(project("phi", clips)), pooled(project("g", clips))
    similarity = np.einsum("ntchw,nscij->nthwsij", query, keys)
    powers = np.exp(similarity - similarity.max((4, 5, 6), keepdims=True))
    attended = np.einsum("nthwsij,nscij->ntchw", powers / powers.sum((4, 5, 6), keepdims=True), values)
    return layers.norm("bn", project("out", attended).reshape(x.shape)) + x


def conv_module(layers: Layers, name: str, x: np.ndarray, dilation: int = 1, activation: Callable = relu) -> np.ndarray:
    return activation(layers.norm(f"{name}.bn", layers.conv(f"{name}.conv", x, 1, dilation)))


def separable(layers: Layers, name: str, x: np.ndarray, dilation: int, between: Callable) -> np.ndarray:
    """Return a depthwise, then a pointwise convolution; between: the activation between them."""
    return conv_module(layers, f"{name}.pointwise", conv_module(layers, f"{name}.depthwise", x, dilation, between))


def drop(x: np.ndarray, mask: np.ndarray | None, rate: float) -> np.ndarray:
    """Drop channels (N, C) or elements (N, C, H, W), and scale up the others."""
    return x if mask is None else x * (mask[:, :, None, None] if mask.ndim == 2 else mask) / (1 - rate)


def backbone(
    layers: Layers,
    x: np.ndarray,
    strides: Sequence[int],
    dilations: Sequence[Sequence[int]],
    averages: bool,
) -> list[np.ndarray]:
    """Return the outputs of layer1..layer4 of a dilated ResNet with a deep or plain stem."""
    x = relu(layers.norm("backbone.bn1", layers.conv("backbone.conv1", x, 2)))
    for i in (2, 3) if layers.has("backbone.conv2") else ():
        x = relu(layers.norm(f"backbone.bn{i}", layers.conv(f"backbone.conv{i}", x)))
    x, outputs = max_pool(x), []
    for number, (stride, of_blocks) in enumerate(zip(strides, dilations), 1):
        for i, dilation in enumerate(of_blocks):
            name, step = f"backbone.layer{number}.{i}", stride if i == 0 else 1
            branch = residual(layers, name, x, step, dilation)
            x = relu(branch + shortcut(layers, name, x, step, averages))
        outputs.append(x)
    return outputs


def deeplab(
    layers: Layers,
    image: np.ndarray,
    strides: Sequence[int],
    dilations: Sequence[Sequence[int]],
    rates: Sequence[int],
    is_mmseg: bool,
    align_corners: bool = False,
    masks: Sequence[np.ndarray | None] = (None, None),
    rate: float = 0.0,
) -> list[np.ndarray]:
    """Return the logits (N, K, H, W) of the head and, if there is one, of the auxiliary head."""
    low, _, middle, high = backbone(layers, image, strides, dilations, averages=not is_mmseg)
    between = relu if is_mmseg else lambda x: x
    pooled = conv_module(layers, "head.image_pool", high.mean((2, 3), keepdims=True)) + np.zeros(
        (1, 1, *high.shape[2:])
    )
    pyramid = [conv_module(layers, "head.aspp.0", high)]
    pyramid += [separable(layers, f"head.aspp.{i}", high, rates[i - 1], between) for i in (1, 2, 3)]
    x = np.concatenate([pooled, *pyramid] if is_mmseg else [*pyramid, pooled], 1)
    x = conv_module(layers, "head.bottleneck", x)
    if not is_mmseg:
        x = drop(x, masks[0], rate)
    skip = conv_module(layers, "head.low", low)
    x = np.concatenate([resize(x, skip.shape[2:], align_corners), skip], 1)
    x = separable(layers, "head.fuse.1", separable(layers, "head.fuse.0", x, 1, between), 1, between)
    if is_mmseg:
        x = drop(x, masks[0], rate)
    logits = [layers.conv("head.classifier", x)]
    if layers.has("aux.classifier"):
        auxiliary = drop(conv_module(layers, "aux.project", middle), masks[1], rate)
        logits.append(layers.conv("aux.classifier", auxiliary))
    return [resize(x, image.shape[2:], align_corners) for x in logits]


def arcface(layers: Layers, image: np.ndarray, mask: np.ndarray | None = None, rate: float = 0.0) -> np.ndarray:
    """Return the embeddings (N, d) of an IResNet-18."""
    x = layers.prelu("prelu", layers.norm("bn1", layers.conv("conv1", image)))
    for number in range(1, 5):
        for i in range(2):
            name, step = f"layer{number}.{i}", 2 if i == 0 else 1
            branch = layers.norm(f"{name}.bn2", layers.conv(f"{name}.conv1", layers.norm(f"{name}.bn1", x)))
            branch = layers.conv(f"{name}.conv2", layers.prelu(f"{name}.prelu", branch), step)
            x = layers.norm(f"{name}.bn3", branch) + shortcut(layers, name, x, step)
    features = layers.norm("bn2", x).reshape(len(x), -1)
    if mask is not None:
        features = features * mask / (1 - rate)
    return layers.norm("features", layers.linear("fc", features)[:, :, None, None])[:, :, 0, 0]
