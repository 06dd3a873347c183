"""Canonical names of MindSpore parameters."""

from collections.abc import Mapping

import numpy as np
from mindspore import Parameter, Tensor, nn

CANONICAL = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "w": "weight",  # of a PReLU
}


def named_tensors(model: nn.Cell) -> dict[str, Parameter]:
    """Return every parameter, then every running statistic, by canonical name; not copied."""
    tensors = {_canonical_name(name): parameter for name, parameter in model.parameters_and_names()}
    return dict(sorted(tensors.items(), key=lambda item: is_statistic(item[0])))  # stable: keeps the model's order


def is_statistic(name: str) -> bool:
    """Return whether a canonical name is that of a running statistic."""
    return name.endswith((".running_mean", ".running_var"))


def _canonical_name(name: str) -> str:
    *cells, last = [part for part in name.split(".") if part != "bn2d"]  # BatchNorm3d contains a BatchNorm2d
    return ".".join([*cells, CANONICAL.get(last, last)])


def load_arrays(model: nn.Cell, tensors: Mapping[str, np.ndarray]) -> None:
    """Copy arrays into a model's tensors.

    Args:
        model: receives them.
        tensors: every parameter and running statistic by canonical name, in canonical layout.
    """
    for name, parameter in named_tensors(model).items():
        parameter.set_data(Tensor(np.ascontiguousarray(tensors[name], np.float32)))
