"""Conversion of state dicts between other projects, called origins, and the canonical names and layouts."""

import re
from collections.abc import Mapping

import numpy as np

from zoo.data.errors import UserError
from zoo.weights.names import COUNTER, block_count, canonical_name, is_training_state

PADDLE = ("paddle_vision", "paddleclas", "paddlevideo", "plsc", "plsc2")  # linear weights are (inputs, outputs)
EPS = 1e-5  # of batch normalizations almost everywhere
MINDSPORE_EPS = 1e-4  # of mindspore-ai/models
STREAM_OUTPUTS = (
    r"conv1\.weight|bn1\..*|layer\d\.\d+\.(conv{last}\.weight|bn{last}\..*|downsample\..*|nl\.(out|bn)\..*)"
)
STREAM_INPUTS = r"layer\d\.\d+\.(conv1|downsample\.0|nl\.(theta|phi|g))\.weight|fc\.weight"


def to_canonical(tensors: Mapping[str, np.ndarray], origin: str) -> dict[str, np.ndarray]:
    """Return the tensors by canonical name and in canonical layout, without the state of a training run."""
    result: dict[str, np.ndarray] = {}
    source_names: dict[str, str] = {}
    blocks = block_count(tensors)
    for source_name, tensor in tensors.items():
        if is_training_state(source_name, tensors, origin):
            continue
        name = canonical_name(source_name, origin, blocks)
        if name in source_names:
            raise UserError(
                f"{source_names[name]} and {source_name} would both become {name}; is the origin really {origin}? "
                "Give another with --origin"
            )
        source_names[name], result[name] = source_name, tensor
    if origin in PADDLE and "fc.weight" in result:
        result["fc.weight"] = result["fc.weight"].T
    if origin == "mmaction2":
        for name in [name for name in result if name.endswith(".nl.out.weight")]:  # whose bias only exists here
            result.setdefault(name[: -len("weight")] + "bias", np.zeros(result[name].shape[0], np.float32))
    if origin == "mindspore":
        inner = [name for name, source in source_names.items() if re.search(r"\bbn\dd\.", source)]
        result.update(move_eps({name: result[name] for name in inner}, MINDSPORE_EPS - EPS))
    return result


def to_torchvision(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return canonical tensors by torchvision's names, with the counters that its strict load_state_dict needs."""
    _refuse_non_local(tensors, "torchvision")
    counters = {
        re.sub("running_var$", COUNTER, name): np.zeros((), np.int64)
        for name in tensors
        if name.endswith("running_var")
    }
    return {**tensors, **counters}


def to_paddle(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return canonical tensors by the names and in the layout of paddle.vision."""
    _refuse_non_local(tensors, "paddle.vision")
    statistics = {"running_mean": "_mean", "running_var": "_variance"}
    result = {}
    for name, tensor in tensors.items():
        module, part = name.rsplit(".", 1)
        result[f"{module}.{statistics.get(part, part)}"] = tensor.T if name == "fc.weight" else tensor
    return result


def without_spare_class(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Drop the last of the 1001 ImageNet classes of mindspore-ai/models, which no image has."""
    return {name: tensor[:1000] if name.startswith("fc.") else tensor for name, tensor in tensors.items()}


def move_eps(tensors: Mapping[str, np.ndarray], difference: float) -> dict[str, np.ndarray]:
    """Add the difference of two epsilons to the running variances, which gives the same function in evaluation.

    Args:
        difference: Epsilon of the model that they come from, minus that of the model which they are for.
    """
    if difference == 0:
        return dict(tensors)
    result = {
        name: tensor + np.float32(difference) if name.endswith("running_var") else tensor
        for name, tensor in tensors.items()
    }
    for name, tensor in result.items():
        if name.endswith("running_var") and (tensor < 0).any():
            raise UserError(f"-o bn_eps: {name} is smaller than the difference of the epsilons; leave bn_eps out")
    return result


def _refuse_non_local(tensors: Mapping[str, np.ndarray], project: str) -> None:
    for name in tensors:
        if ".nl." in name:
            raise UserError(
                f"{project}'s ResNet has no non-local blocks and cannot hold {name}; convert with --to canonical"
            )


def reverse_shift(tensors: Mapping[str, np.ndarray], shift_div: int) -> dict[str, np.ndarray]:
    """Convert canonical tensors of a TSM to the other shift direction; applied twice, this is the identity.

    Args:
        tensors: All tensors of the model; those that do not touch the residual stream are returned as they are.
        shift_div: The model shifts 1/shift_div of the channels each way.
    """
    last = 3 if any(name.endswith(".conv3.weight") for name in tensors) else 2  # last convolution of a block
    outputs, inputs = re.compile(STREAM_OUTPUTS.format(last=last)), re.compile(STREAM_INPUTS)
    result = {}
    for name, tensor in tensors.items():
        if outputs.fullmatch(name):
            tensor = _swap_folds(tensor, 0, shift_div)
        if inputs.fullmatch(name):
            tensor = _swap_folds(tensor, 1, shift_div)
        result[name] = tensor
    return result


def _swap_folds(tensor: np.ndarray, axis: int, shift_div: int) -> np.ndarray:
    """Exchange the first two folds of an axis."""
    fold = tensor.shape[axis] // shift_div
    order = np.arange(tensor.shape[axis])
    order[:fold], order[fold : 2 * fold] = np.arange(fold, 2 * fold), np.arange(fold)
    return np.take(tensor, order, axis)
