"""Resizing, sampling at points, and the order of elements: flattening, pixels from channels, groups of channels."""

from collections.abc import Callable
from itertools import permutations

import numpy as np

from zoo.parity.formulas.formula import Case, Formula, Number, Options, is_unary
from zoo.parity.formulas.windows import few_planes


def linear(distance: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(distance), 0)


def cubic(distance: np.ndarray, a: float) -> np.ndarray:
    x = np.abs(distance)
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x <= 1, inner, np.where(x < 2, outer, 0.0))


def positions(size: int, count: int, grid: str) -> np.ndarray:
    """Return where each of `count` outputs lies in an input: in pixels, whose centres are whole numbers."""
    at = np.arange(count)
    if grid == "corners":
        return at * ((size - 1) / (count - 1) if count > 1 else 0.0)
    return (at + 0.5) * size / count - 0.5 if grid == "half_pixels" else at * (size / count)


def matrix(size: int, count: int, grid: str, kernel: Callable, radius: int, antialias: bool) -> np.ndarray:
    """Return the weights (count, size) of the inputs in each output; those beyond the border are the border's."""
    centers = positions(size, count, grid)
    wide = max(size / count, 1.0) if antialias else 1.0
    if antialias:
        weights = kernel((np.arange(size) - centers[:, None]) / wide)
        return weights / weights.sum(1, keepdims=True)
    weights = np.zeros((count, size))
    first = np.floor(centers).astype(int)
    for offset in range(1 - radius, radius + 1):
        at = first + offset
        np.add.at(weights, (np.arange(count), np.clip(at, 0, size - 1)), kernel(centers - at))
    return weights


ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "half_down": lambda x: np.ceil(x - 0.5),
    "half_up": lambda x: np.floor(x + 0.5),
    "ceil": np.ceil,
    "even": np.round,
}


def nearest(size: int, count: int, grid: str, rounding: str) -> np.ndarray:
    at = np.clip(ROUNDINGS[rounding](positions(size, count, grid)).astype(int), 0, size - 1)
    return np.eye(size)[at]


def resize_options(case: Case) -> Options | None:
    if not is_unary(case) or not 3 <= case.inputs[0].ndim <= 5:
        return None
    shapes = case.inputs[0].shape, case.reference.shape, case.suspect.shape
    if len({shape[:2] for shape in shapes}) > 1 or shapes[0] == shapes[1] or len({*map(len, shapes)}) > 1:
        return None
    return {
        "method": ("linear", "nearest", "cubic"),
        "grid": ("half_pixels", "corners", "left"),
        "rounding": tuple(ROUNDINGS),
        "antialias": (False, True),
        "a": Number((-0.75, -0.5), -1.0, 0.0),
    }


def resize(case: Case, method: str, grid: str, rounding: str, antialias: bool, a: float) -> np.ndarray | None:
    if (method == "nearest" and antialias) or (method != "nearest" and rounding != "floor"):
        return None
    if method != "cubic" and a != -0.75:
        return None
    y = case.inputs[0]
    for axis in range(2, y.ndim):
        size, count = y.shape[axis], case.target.shape[axis]
        if method == "nearest":
            weights = nearest(size, count, grid, rounding)
        elif method == "linear":
            weights = matrix(size, count, grid, linear, 1, antialias)
        else:
            weights = matrix(size, count, grid, lambda distance: cubic(distance, a), 2, antialias)
        y = np.moveaxis(np.moveaxis(y, axis, -1) @ weights.T, -1, axis)
    return y


def sample_options(case: Case) -> Options | None:
    if len(case.inputs) != 2 or [x.ndim for x in case.inputs] != [4, 4] or case.inputs[1].shape[-1] != 2:
        return None
    return {
        "grid": ("half_pixels", "corners"),
        "method": ("linear", "nearest"),
        "border": ("zeros", "edge", "reflection"),
    }


def sample_grid(case: Case, grid: str, method: str, border: str) -> np.ndarray:
    """Return the image at points of -1 to 1, which are the corner pixels' centres or the outer edges of the image."""
    x, points = case.inputs
    sizes = np.array(x.shape[:1:-1])  # width, height
    at = (points + 1) / 2 * (sizes - 1) if grid == "corners" else ((points + 1) * sizes - 1) / 2
    if border == "reflection":
        low, span = (0.0, sizes - 1.0) if grid == "corners" else (-0.5, sizes * 1.0)
        at = np.abs((at - low + span) % (2 * span) - span) + low
    if border != "zeros":
        at = np.clip(at, 0, sizes - 1)
    at = np.round(at) if method == "nearest" else at
    first, y = np.floor(at).astype(int), 0.0
    for dx in (0, 1):
        for dy in (0, 1):
            pixel = first + (dx, dy)
            inside = ((pixel >= 0) & (pixel < sizes)).all(-1)
            weight = linear(at - pixel).prod(-1) * inside
            column, row = (np.clip(pixel[..., i], 0, sizes[i] - 1) for i in (0, 1))
            pixels = x[np.arange(len(x))[:, None, None], :, row, column]
            y = y + pixels * weight[..., None]
    return np.moveaxis(np.asarray(y), -1, 1)


def order_options(case: Case) -> Options | None:
    """Return orders of axes before elements are put into another shape."""
    if len(case.inputs) != 1 or case.params or not 2 <= case.inputs[0].ndim <= 5:
        return None
    if case.inputs[0].size != case.reference.size or case.inputs[0].size != case.suspect.size:
        return None
    return {"axes": list(permutations(range(case.inputs[0].ndim)))}


def order(case: Case, axes: tuple[int, ...]) -> np.ndarray:
    return case.inputs[0].transpose(axes).reshape(case.target.shape)


def shuffle_options(case: Case) -> Options | None:
    """Return orders of channels that become pixels, or change places with their groups."""
    if len(case.inputs) != 1 or case.params or case.inputs[0].ndim != 4 or case.reference.ndim != 4:
        return None
    x, shape = case.inputs[0], case.reference.shape
    if x.size != case.reference.size or len(x) != len(case.reference):
        return None
    if shape == x.shape:
        groups = [n for n in range(2, shape[1]) if not shape[1] % n]
        return {"groups": sorted(groups, key=lambda n: n != 2)} if groups else None
    large, small = (shape, x.shape) if shape[2] > x.shape[2] else (x.shape, shape)
    ratio = large[2] // small[2]
    is_shuffled = large[2:] == (ratio * small[2], ratio * small[3]) and small[1] == large[1] * ratio**2
    return {"pixels": ("channel_first", "pixel_first")} if is_shuffled else None


def shuffle(case: Case, pixels: str = "", groups: int = 0) -> np.ndarray | None:
    x, (count, channels, height, width) = case.inputs[0], case.target.shape
    if groups:
        return x.reshape(count, groups, -1, height, width).swapaxes(1, 2).reshape(x.shape)
    if height > x.shape[2]:
        ratio = height // x.shape[2]
        split = (channels, ratio, ratio) if pixels == "channel_first" else (ratio, ratio, channels)
        parts = x.reshape(count, *split, *x.shape[2:])
        axes = (0, 1, 4, 2, 5, 3) if pixels == "channel_first" else (0, 3, 4, 1, 5, 2)
        return parts.transpose(axes).reshape(case.target.shape)
    ratio = x.shape[2] // height
    parts = x.reshape(count, x.shape[1], height, ratio, width, ratio)
    axes = (0, 1, 3, 5, 2, 4) if pixels == "channel_first" else (0, 3, 5, 1, 2, 4)
    return parts.transpose(axes).reshape(case.target.shape)


FORMULAS = (
    Formula("shuffle", shuffle_options, shuffle, "shuffle|space|depth"),
    Formula("order", order_options, order, "flatten|reshape|view|permute|transpose|rearrange"),
    Formula("resize", resize_options, resize, "up|interp|resize|sample", few_planes),
    Formula("sample_grid", sample_options, sample_grid, "grid|sample"),
)
