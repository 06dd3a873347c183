"""Canonical names to MindSpore parameters."""

from mindspore import Parameter, nn

RENAMED = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "w": "weight",
}  # of a PReLU


def named_tensors(model: nn.Cell) -> dict[str, Parameter]:
    """Every parameter, then every running statistic, by canonical name; the tensors themselves, not copies."""
    named = {_canonical(name): parameter for name, parameter in model.parameters_and_names()}
    return dict(sorted(named.items(), key=lambda item: is_statistic(item[0])))  # stable


def is_statistic(name: str) -> bool:
    return name.endswith((".running_mean", ".running_var"))


def _canonical(name: str) -> str:
    path = [part for part in name.split(".") if part != "bn2d"]  # BatchNorm3d wraps one of two dimensions
    return ".".join(path[:-1] + [RENAMED.get(path[-1], path[-1])])
