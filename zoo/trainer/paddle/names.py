"""Canonical names and layouts of Paddle tensors.

Paddle calls the running statistics _mean and _variance and lists them among the parameters. It calls the weight of a
PReLU _weight, and stores that of a Linear as (in_features, out_features).
"""

from collections.abc import Mapping

import numpy as np
import paddle
from paddle import nn

STATISTICS = {"_mean": "running_mean", "_variance": "running_var"}
CANONICAL = {**STATISTICS, "_weight": "weight"}


def canonical_name(name: str) -> str:
    """Return the canonical name of a tensor that Paddle calls `name`."""
    layer, _, last = name.rpartition(".")
    return f"{layer}.{CANONICAL[last]}" if last in CANONICAL else name


def named_tensors(model: nn.Layer) -> dict[str, paddle.Tensor]:
    """Return every parameter, then every running statistic, by canonical name; not copied."""
    tensors = {canonical_name(name): tensor for name, tensor in model.named_parameters()}
    return dict(sorted(tensors.items(), key=lambda item: is_statistic(item[0])))  # stable: keeps the model's order


def is_statistic(name: str) -> bool:
    """Return whether a canonical name is that of a running statistic."""
    return name.endswith(tuple(STATISTICS.values()))


def transposed(model: nn.Layer) -> set[str]:
    """Return the canonical names of the tensors whose canonical layout is the transpose of Paddle's."""
    return {f"{name}.weight" for name, layer in model.named_sublayers() if isinstance(layer, nn.Linear)}


def to_numpy(tensor: paddle.Tensor, transpose: bool) -> np.ndarray:
    """Return a copy in canonical layout."""
    array = tensor.numpy()
    return np.array(array.T if transpose else array, order="C")


def copy_into(tensor: paddle.Tensor, array: np.ndarray, transpose: bool) -> None:
    """Copy an array of canonical layout into a tensor."""
    tensor.set_value(np.asarray(array.T if transpose else array, order="C"))


@paddle.no_grad()
def load_arrays(model: nn.Layer, tensors: Mapping[str, np.ndarray]) -> None:
    """Copy arrays into a model's tensors.

    Args:
        model: receives them.
        tensors: every parameter and running statistic by canonical name, in canonical layout.
    """
    transposes = transposed(model)
    for name, tensor in named_tensors(model).items():
        copy_into(tensor, np.asarray(tensors[name], np.float32), name in transposes)
