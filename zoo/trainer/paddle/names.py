"""Canonical names and layouts to Paddle's own.

Paddle calls the running statistics _mean and _variance and counts them among the parameters, calls the weight of a
PReLU _weight, and keeps that of a Linear as (features, classes).
"""

import numpy as np
import paddle
from paddle import nn

STATISTICS = {"_mean": "running_mean", "_variance": "running_var"}
RENAMED = {**STATISTICS, "_weight": "weight"}


def canonical_name(native: str) -> str:
    module, _, last = native.rpartition(".")
    return f"{module}.{RENAMED[last]}" if last in RENAMED else native


def named_tensors(model: nn.Layer) -> dict[str, paddle.Tensor]:
    """Every parameter, then every running statistic, by canonical name; the tensors themselves, not copies."""
    named = {canonical_name(native): tensor for native, tensor in model.named_parameters()}
    return dict(sorted(named.items(), key=lambda item: is_statistic(item[0])))  # stable: else the order of the model


def is_statistic(name: str) -> bool:
    return name.endswith(tuple(STATISTICS.values()))


def transposed(model: nn.Layer) -> set[str]:
    """The names of the tensors whose canonical layout is the transpose of Paddle's."""
    return {f"{name}.weight" for name, layer in model.named_sublayers() if isinstance(layer, nn.Linear)}


def to_numpy(tensor: paddle.Tensor, transpose: bool) -> np.ndarray:
    """A copy in canonical layout."""
    array = tensor.numpy()
    return np.array(array.T if transpose else array, order="C")


def copy_into(tensor: paddle.Tensor, values: np.ndarray, transpose: bool) -> None:
    """Copy values of canonical layout into a tensor."""
    tensor.set_value(np.ascontiguousarray(values.T if transpose else values))
