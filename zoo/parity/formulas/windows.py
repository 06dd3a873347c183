"""Dense layers, convolutions and pooling: padding, strides, layout of weights and what a mean counts."""

from collections.abc import Callable, Sequence
from itertools import combinations, product

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from zoo.parity.formulas.formula import Case, Formula, Options, is_float, is_unary, of_difference, rows

STRIDES = (1, 2, 4, 3, 8, 16, 32)
MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
Padding = int | str  # of each side, or how "same" divides what a size needs: "more_after", "more_before"
CHANNELS = 6  # output channels that are computed in the search


def dense_options(case: Case) -> Options | None:
    weight = case.params.get("weight")
    if weight is None or weight.ndim != 2 or len(case.inputs) != 1 or not is_float(case.inputs[0]):
        return None
    if case.inputs[0].shape[-1:] not in (weight.shape[1:], weight.shape[:1]):
        return None
    bias = {"bias": (True, False)} if "bias" in case.params else {}
    square = ("as_is", "transposed") if weight.shape[0] == weight.shape[1] else ("as_is",)
    return {"weight": square, **bias}


def dense(case: Case, weight: str, bias: bool = False) -> np.ndarray:
    matrix = case.params["weight"]
    if weight == "transposed" or case.inputs[0].shape[-1] != matrix.shape[1]:
        matrix = matrix.T
    return case.inputs[0] @ matrix.T + (case.params["bias"] if bias else 0.0)


def pads(padding: Padding, sizes: Sequence[int], spans: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return what is added before and after each axis.

    Args:
        sizes: of the input.
        spans: elements of the input that one output covers.
    """
    if not isinstance(padding, str):
        return [(padding, padding)] * len(sizes)
    pairs = []
    for size, span, stride in zip(sizes, spans, strides):
        total = max((-(-size // stride) - 1) * stride + span - size, 0)
        less, more = total // 2, total - total // 2
        pairs.append((less, more) if padding == "more_after" else (more, less))
    return pairs


def _windows(x: np.ndarray, spans: Sequence[int]) -> np.ndarray:
    """Return all windows over the axes from the third on, as axes behind the others."""
    return sliding_window_view(x, tuple(spans), tuple(range(2, x.ndim)))  # type: ignore[call-overload]


def convolution_options(case: Case) -> Options | None:
    weight = case.params.get("weight")
    if weight is None or len(case.inputs) != 1 or not 3 <= weight.ndim == case.inputs[0].ndim == case.reference.ndim:
        return None
    channels = case.inputs[0].shape[1]
    if (
        channels % weight.shape[1]
        or case.reference.shape[1] != len(weight)
        or len(weight) % (channels // weight.shape[1])
    ):
        return None
    kernel = max(weight.shape[2:])
    paddings = [*range(kernel // 2, -1, -1), "more_after", "more_before", *range(kernel // 2 + 1, kernel)]
    paddings += [dilation * (kernel // 2) for dilation in (2, 4, 6, 8, 12, 18, 24, 36) if kernel > 1]
    options: dict[str, Sequence] = {
        "padding": list(dict.fromkeys(paddings)),
        "stride": (*STRIDES, *(() if kernel in STRIDES else (kernel,))),
        "dilation": (1, 2, 4, 6, 8, 12, 18, 24, 36) if kernel > 1 else (1,),
        "mode": tuple(MODES),
        "kernel": ("as_is", "turned", "transposed") if kernel > 1 else ("as_is",),
    }
    groups = channels // weight.shape[1]
    if groups > 1 and len(weight) > groups:
        options["groups"] = ("neighbours", "strided")
    return options | ({"bias": (True, False)} if "bias" in case.params else {})


def turned(weight: np.ndarray, kernel: str) -> np.ndarray | None:
    """Return a kernel as it is, turned by 180 degrees, or with height and width exchanged."""
    if kernel == "transposed":
        return np.swapaxes(weight, -1, -2) if weight.ndim == 4 and weight.shape[2] == weight.shape[3] else None
    return np.flip(weight, tuple(range(2, weight.ndim))) if kernel == "turned" else weight


def convolution(
    case: Case,
    padding: Padding,
    stride: int,
    dilation: int,
    mode: str,
    kernel: str,
    groups: str = "neighbours",
    bias: bool = False,
) -> np.ndarray | None:
    x, weight = case.inputs[0], turned(case.params["weight"], kernel)
    if weight is None:
        return None
    axes = weight.ndim - 2
    spans = [dilation * (size - 1) + 1 for size in weight.shape[2:]]
    added = pads(padding, x.shape[2:], spans, [stride] * axes)
    outer = [size + sum(pair) for size, pair in zip(x.shape[2:], added)]
    sizes = tuple((size - span) // stride + 1 for size, span in zip(outer, spans))
    if sizes != case.target.shape[2:] or (mode != "zeros" and any(max(p) >= n for p, n in zip(added, x.shape[2:]))):
        return None
    padded = np.pad(x, [(0, 0), (0, 0), *added], MODES[mode])  # type: ignore[call-overload]
    windows = _windows(padded, spans)
    step, inner = (slice(None, None, stride),) * axes, (slice(None, None, dilation),) * axes
    windows = windows[(slice(None), slice(None), *step, *inner)]
    chosen = np.linspace(0, len(weight) - 1, case.target.shape[1]).astype(int)  # all of them, or those of a sample
    count = x.shape[1] // weight.shape[1]
    planes = []
    for channel in chosen:
        group = channel * count // len(weight) if groups == "neighbours" else channel % count
        own = windows[:, group * weight.shape[1] : (group + 1) * weight.shape[1]]
        planes.append(np.tensordot(own, weight[channel], ([1, *range(-axes, 0)], range(axes + 1))))
    y = np.stack(planes, 1)
    return y + case.params["bias"][chosen].reshape(-1, *(1,) * axes) if bias else y


def some_outputs(case: Case) -> Case:
    """Return a case with the first sample of the input and a few channels of the output."""
    chosen = [np.linspace(0, y.shape[1] - 1, CHANNELS).astype(int) for y in (case.reference, case.suspect)]
    if case.reference.shape[1] <= CHANNELS:
        chosen = [np.arange(case.reference.shape[1])] * 2
    return case._replace(
        inputs=[case.inputs[0][:1]],
        reference=case.reference[:1, chosen[0]],
        suspect=case.suspect[:1, chosen[1]],
    )


def transposed_options(case: Case) -> Options | None:
    weight = case.params.get("weight")
    if weight is None or len(case.inputs) != 1 or not 3 <= weight.ndim == case.inputs[0].ndim == case.reference.ndim:
        return None
    if case.inputs[0].shape[1] != len(weight) or case.reference.shape[1] % weight.shape[1]:
        return None
    strides = (2, 1, 4, 3, 8, 16)
    options = {
        "stride": strides,
        "cut": range(max(weight.shape[2:])),
        "output_padding": (0, 1, -1, 2, 3),
        "kernel": ("as_is", "turned", "transposed"),
    }
    return options | ({"bias": (True, False)} if "bias" in case.params else {})


def transposed(
    case: Case, stride: int, cut: int, output_padding: int, kernel: str, bias: bool = False
) -> np.ndarray | None:
    """Return a transposed convolution, of which `cut` elements are left out on each side but for output_padding."""
    x, weight = case.inputs[0], turned(case.params["weight"], kernel)
    if weight is None:
        return None
    sides = weight.shape[2:]
    full = [(size - 1) * stride + side for size, side in zip(x.shape[2:], sides)]
    sizes = tuple(size - 2 * cut + output_padding for size in full)
    if sizes != case.target.shape[2:] or output_padding >= stride:
        return None
    groups = case.target.shape[1] // weight.shape[1]
    if len(weight) % groups:
        return None
    y = np.zeros((len(x), case.target.shape[1], *(max(a, b + cut) for a, b in zip(full, sizes))))
    x = x.reshape(len(x), groups, -1, *x.shape[2:])
    weight = weight.reshape(groups, -1, *weight.shape[1:])
    taps = weight.reshape(*weight.shape[:3], -1)
    for i, at in enumerate(product(*map(range, sides))):
        part = np.einsum("bgi...,gio->bgo...", x, taps[..., i])
        place = tuple(slice(begin, begin + (n - 1) * stride + 1, stride) for begin, n in zip(at, x.shape[3:]))
        y[(slice(None), slice(None), *place)] += part.reshape(len(x), -1, *x.shape[3:])
    y = y[(slice(None), slice(None), *(slice(cut, cut + size) for size in sizes))]
    return y + case.params["bias"].reshape(-1, *(1,) * len(sides)) if bias else y


def pool_options(case: Case) -> Options | None:
    if not is_unary(case) or case.inputs[0].ndim < 3:
        return None
    x, shapes = case.inputs[0], (case.reference.shape, case.suspect.shape)
    if any(len(shape) != x.ndim or shape[:2] != x.shape[:2] for shape in shapes):
        return None
    is_same_size = all(shape[2:] == x.shape[2:] for shape in shapes)
    if any(n > m + 2 for shape in shapes for n, m in zip(shape[2:], x.shape[2:])):
        return None
    return {
        "ceil_mode": (False, True),
        "padding": (0, 1, 2, 3, "more_after", "more_before"),
        "kernel": (3, 5, 2, 7) if is_same_size else (2, 3, 7, 5, 4, 8),
        "stride": (1,) if is_same_size else (2, 1, 3, 4, 5, 7, 8),
        "counted": ("with_padding", "without_padding"),
        "mean": (False, True) if "max" in case.kind.lower() else (True, False),
    }


def pool(
    case: Case, padding: Padding, kernel: int, stride: int, ceil_mode: bool, counted: str, mean: bool
) -> np.ndarray | None:
    """Return a mean over windows, which counts the padding or not, or their maximum."""
    x = case.inputs[0]
    axes, sizes, spans = x.ndim - 2, x.shape[2:], [kernel] * (x.ndim - 2)
    if not isinstance(padding, str) and padding > kernel // 2:
        return None
    added = pads(padding, sizes, spans, [stride] * axes)
    outer = [size + sum(pair) for size, pair in zip(sizes, added)]
    if min(outer) < kernel:
        return None
    count = [-(-(n - kernel) // stride) + 1 if ceil_mode else (n - kernel) // stride + 1 for n in outer]
    # a window that would begin in the padding behind is left out
    count = [n - ((n - 1) * stride >= size + pair[0]) for n, size, pair in zip(count, sizes, added)]
    if tuple(count) != case.target.shape[2:]:
        return None
    more = [(n - 1) * stride + kernel - size for n, size in zip(count, outer)]
    behind = [(begin, end + max(extra, 0)) for (begin, end), extra in zip(added, more)]
    step = (slice(None), slice(None), *(slice(0, (n - 1) * stride + 1, stride) for n in count))

    def windows(values: np.ndarray, fill: float) -> np.ndarray:
        padded = np.pad(values, [(0, 0), (0, 0), *behind], constant_values=fill)
        return _windows(padded, spans)[step]

    inner = tuple(range(-axes, 0))
    if not mean:
        return windows(x, -np.inf).max(inner)
    cells = np.ones((1, 1, *sizes))
    if counted == "with_padding":
        cells = np.pad(cells, [(0, 0), (0, 0), *added], constant_values=1.0)
        behind_cells = [(0, max(extra, 0)) for extra in more]
        padded = np.pad(cells, [(0, 0), (0, 0), *behind_cells])
        number = _windows(padded, spans)[step].sum(inner)
    else:
        number = windows(cells, 0.0).sum(inner)
    return windows(x, 0.0).sum(inner) / number


def few_planes(case: Case) -> Case:
    """Return a case with one sample and two channels."""
    sample, channel = of_difference(case)[:2]
    some = slice(sample, sample + 1), slice(channel, channel + 2)
    return case._replace(inputs=[case.inputs[0][some]], reference=case.reference[some], suspect=case.suspect[some])


def adaptive_options(case: Case) -> Options | None:
    options = pool_options(case)
    if options is None or any(n > m for n, m in zip(case.reference.shape[2:], case.inputs[0].shape[2:])):
        return None
    return {"bins": ("overlapping", "floor"), "mean": options["mean"]}


def adaptive_pool(case: Case, bins: str, mean: bool) -> np.ndarray:
    """Return means or maxima over bins whose ends are rounded up, so that they may overlap, or down."""
    y = case.inputs[0]
    for axis in range(2, y.ndim):
        size, count = y.shape[axis], case.target.shape[axis]
        ends = [-(-(i + 1) * size // count) if bins == "overlapping" else (i + 1) * size // count for i in range(count)]
        parts = [y.take(range(i * size // count, end), axis) for i, end in enumerate(ends)]
        y = np.stack([part.mean(axis) if mean else part.max(axis) for part in parts], axis)
    return y


REDUCED: dict[str, Callable[..., np.ndarray]] = {
    "mean": np.mean,
    "max": np.max,
    "sum": np.sum,
    "first": lambda x, axis: x[tuple(0 if i in axis else slice(None) for i in range(x.ndim))],
    "last": lambda x, axis: x[tuple(-1 if i in axis else slice(None) for i in range(x.ndim))],
}


def reduction_options(case: Case) -> Options | None:
    """Return options of what is made of all positions of a map or a sequence."""
    if not is_unary(case):
        return None
    shape, count = case.inputs[0].shape, case.inputs[0].ndim - case.reference.ndim
    axes = [
        found
        for found in combinations(range(1, len(shape)), max(count, 0))
        if found and tuple(n for i, n in enumerate(shape) if i not in found) == case.reference.shape
    ]
    return {"what_is_taken": tuple(REDUCED), "axes": axes} if axes else None


def reduction(case: Case, what_is_taken: str, axes: tuple[int, ...]) -> np.ndarray:
    return REDUCED[what_is_taken](case.inputs[0], axis=axes)


FORMULAS = (
    Formula("dense", dense_options, dense, "linear|dense|fc|mlp", rows),
    Formula("convolution", convolution_options, convolution, "conv", some_outputs),
    Formula("transposed_convolution", transposed_options, transposed, "conv|deconv"),
    Formula("pool", pool_options, pool, "pool", few_planes),
    Formula("adaptive_pool", adaptive_options, adaptive_pool, "pool", few_planes),
    Formula("all_positions", reduction_options, reduction, "pool|mean"),
)
