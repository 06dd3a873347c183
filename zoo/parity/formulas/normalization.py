"""Normalizations: of layers, root mean squares, groups and batches, and by the norm of vectors."""

import numpy as np

from zoo.parity.formulas.formula import SAMPLE, Case, Formula, Number, Options, is_float, rows

EPSILON = Number((1e-5, 1e-3, 1e-6, 1e-12), 0.0, 1.0)
ROOTS = ("inside", "outside")  # sqrt(v + eps), sqrt(v) + eps


def divided(x: np.ndarray, variance: np.ndarray, eps: float, root: str) -> np.ndarray:
    """Return x by a standard deviation, which epsilon keeps from 0."""
    return x / (np.sqrt(variance + eps) if root == "inside" else np.sqrt(variance) + eps)


def normalized(x: np.ndarray, axes: tuple[int, ...], eps: float, root: str, ddof: int, center: bool) -> np.ndarray:
    """Return x with mean 0 and variance 1 over some axes; without center, with a mean square of 1."""
    centered = x - x.mean(axes, keepdims=True) if center else x
    count = np.prod([x.shape[axis] for axis in axes])
    return divided(centered, np.square(centered).sum(axes, keepdims=True) / max(count - ddof, 1), eps, root)


def affine(y: np.ndarray, case: Case, axis: int, scale: str = "weight", shift: bool = True) -> np.ndarray | None:
    """Return y with weight and bias, which have the shape of the axes from `axis` on or of that axis alone."""
    for role, add in (("weight", False), ("bias", True)):
        values = case.params.get(role)
        if values is None or (add and not shift) or (not add and scale == "none"):
            continue
        tail = y.shape[axis:] if values.ndim > 1 or axis < 0 else y.shape[axis : axis + 1]
        if values.shape != tail:
            return None
        values = values.reshape(values.shape + (1,) * (y.ndim - axis - values.ndim if axis >= 0 else 0))
        y = y + values if add else y * (values + (scale == "one_plus"))
    return y


def layer_axes(case: Case) -> list[tuple[int, ...]]:
    """Return the axes that a normalization of a sample may have: those of its weight, the last, the channels."""
    x, weight = case.inputs[0], case.params.get("weight")
    last = [tuple(range(-count, 0)) for count in range(1, x.ndim)]
    if weight is not None:
        last = [axes for axes in last if x.shape[axes[0] :] == weight.shape]
    channels = [(1,)] if x.ndim > 2 and (weight is None or weight.shape == x.shape[1:2]) else []
    return last + channels


def is_normalization(case: Case) -> bool:
    return len(case.inputs) == 1 and is_float(case.inputs[0]) and case.inputs[0].shape == case.reference.shape


def layer_options(case: Case) -> Options | None:
    if not is_normalization(case) or not (axes := layer_axes(case)):
        return None
    extra = {"scale": ("weight", "one_plus", "none")} if "weight" in case.params else {}
    shift = {"shift": (True, False)} if "bias" in case.params else {}
    root, ddof = {"root": ROOTS}, {"ddof": (0, 1)}
    return {"eps": EPSILON, **root, "center": (True, False), **ddof, **extra, **shift, "axes": axes}


def layer_norm(
    case: Case,
    eps: float,
    axes: tuple[int, ...],
    root: str = "inside",
    center: bool = True,
    ddof: int = 0,
    scale: str = "weight",
    shift: bool = True,
) -> np.ndarray | None:
    x = case.inputs[0]
    return affine(normalized(x, axes, eps, root, ddof, center), case, axes[0], scale, shift)


def rms_options(case: Case) -> Options | None:
    options = layer_options(case)
    if options is None or "bias" in case.params:
        return None
    return {name: values for name, values in options.items() if name not in ("center", "ddof")}


def rms_norm(case: Case, **options) -> np.ndarray | None:
    return layer_norm(case, center=False, **options)


def group_options(case: Case) -> Options | None:
    if not is_normalization(case) or case.inputs[0].ndim < 3 or not _per_channel(case):
        return None
    channels = case.inputs[0].shape[1]
    groups = sorted((n for n in range(1, channels + 1) if not channels % n), key=lambda n: (n != 32, n != channels, n))
    return {"eps": EPSILON, "root": ROOTS, "ddof": (0, 1), "groups": groups, "members": ("neighbours", "strided")}


def group_norm(case: Case, eps: float, root: str, ddof: int, groups: int, members: str) -> np.ndarray | None:
    x = case.inputs[0]
    count, channels = x.shape[:2]
    sizes = (groups, channels // groups) if members == "neighbours" else (channels // groups, groups)
    axes = (2 if members == "neighbours" else 1, *range(3, x.ndim + 1))
    y = normalized(x.reshape(count, *sizes, *x.shape[2:]), axes, eps, root, ddof, True)
    return affine(y.reshape(x.shape), case, 1)


def batch_options(case: Case) -> Options | None:
    if not is_normalization(case) or case.inputs[0].ndim < 2 or not _per_channel(case):
        return None
    if not case.training and "running_var" not in case.params:
        return None
    statistics = ("batch", "running") if case.training else ("running", "batch")
    known = statistics if "running_var" in case.params else statistics[:1]
    return {
        "eps": EPSILON,
        "statistics": known,
        "root": ROOTS,
        "ddof": (0, 1),
        "scale": ("weight", "one_plus", "none"),
        "shift": (True, False),
    }


def batch_norm(
    case: Case, eps: float, statistics: str, root: str, ddof: int, scale: str = "weight", shift: bool = True
) -> np.ndarray | None:
    x = case.inputs[0]
    if statistics == "batch":
        y = normalized(x, (0, *range(2, x.ndim)), eps, root, ddof, True)
    else:
        mean, variance = (case.params[f"running_{name}"].reshape(-1, *(1,) * (x.ndim - 2)) for name in ("mean", "var"))
        y = divided(x - mean, variance, eps, root)
    return affine(y, case, 1, scale, shift)


def some_channels(case: Case) -> Case:
    """Return the first channels of a case whose channels are computed apart from each other."""
    channels = case.inputs[0].shape[1]
    count = max(1, min(channels, SAMPLE * channels // max(case.inputs[0].size, 1)))
    return case._replace(
        inputs=[case.inputs[0][:, :count]],
        params={role: values[:count] if values.ndim else values for role, values in case.params.items()},
        reference=case.reference[:, :count],
        suspect=case.suspect[:, :count],
    )


def _per_channel(case: Case) -> bool:
    channels = case.inputs[0].shape[1]
    return all(values.shape == (channels,) for values in case.params.values() if values.ndim)


def vector_options(case: Case) -> Options | None:
    if not is_normalization(case) or case.params or case.inputs[0].ndim < 2:
        return None
    axes = [-1] if case.inputs[0].ndim == 2 else [1, -1]
    roots = ("maximum", "inside", "outside", "maximum_of_square", "none")
    return {"root": roots, "eps": Number((1e-12, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)), "axis": axes, "p": (2, 1)}


def vector_norm(case: Case, eps: float, root: str, axis: int, p: int) -> np.ndarray | None:
    """Return vectors of norm 1; epsilon is a floor of the norm, added to it, or within the root of the squares."""
    x = case.inputs[0]
    power = (np.abs(x) ** p).sum(axis, keepdims=True)
    norm = power ** (1 / p)
    sizes = {
        "maximum": lambda: np.maximum(norm, eps),
        "inside": lambda: (power + eps) ** (1 / p),
        "outside": lambda: norm + eps,
        "maximum_of_square": lambda: np.maximum(power, eps) ** (1 / p),
        "none": lambda: norm,
    }
    return x / sizes[root]()


def response_options(case: Case) -> Options | None:
    if not is_normalization(case) or case.params or case.inputs[0].ndim != 4:
        return None
    sizes = [size for size in (5, 3, 7, 9, 11) if size <= 2 * case.inputs[0].shape[1] - 1]
    return {
        "mean": (True, False),
        "alpha": Number((1e-4, 1e-2, 1.0)),
        "beta": Number((0.75,), 0.0, 4.0),
        "k": Number((1.0, 2.0)),
        "size": sizes,
    }


def response_norm(case: Case, alpha: float, beta: float, k: float, size: int, mean: bool) -> np.ndarray | None:
    """Normalize by the squares of neighbouring channels, their mean or their sum."""
    x = case.inputs[0]
    padded = np.pad(np.square(x), ((0, 0), (size // 2, (size - 1) // 2), (0, 0), (0, 0)))
    sums = sum(padded[:, at : at + x.shape[1]] for at in range(size))
    return x / (k + alpha * sums / (size if mean else 1)) ** beta


def corner(case: Case) -> Case:
    """Return the first pixels of a case whose pixels are computed apart from each other."""
    first = (slice(0, 2), ..., slice(0, 8), slice(0, 8))
    return case._replace(inputs=[case.inputs[0][first]], reference=case.reference[first], suspect=case.suspect[first])


FORMULAS = (
    Formula("batch_norm", batch_options, batch_norm, "norm|bn", some_channels),
    Formula("rms_norm", rms_options, rms_norm, "norm", rows),
    Formula("layer_norm", layer_options, layer_norm, "norm|ln", rows),
    Formula("group_norm", group_options, group_norm, "norm|gn", rows),
    Formula("vector_norm", vector_options, vector_norm, "norm", rows),
    Formula("response_norm", response_options, response_norm, "norm|lrn", corner),
)
