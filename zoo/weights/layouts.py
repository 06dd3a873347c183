"""Conversion of state dicts between other projects, called origins, and the canonical names and layouts."""

import re
from collections.abc import Mapping

import numpy as np

from data.errors import UserError
from zoo.weights.names import COUNTER, block_count, canonical_name, is_training_state

PADDLE = ("paddle_vision", "paddleclas", "paddlevideo", "plsc", "plsc2")  # linear weights are (inputs, outputs)
EPS = 1e-5  # of every batch normalization here
MINDSPORE_EPS = 1e-4  # of mindspore-ai/models
PADDING_EFFECT = "measured on a ResNet-50: logits up to 0.09 apart, at a standard deviation of 0.27"


def to_canonical(tensors: Mapping[str, np.ndarray], origin: str) -> dict[str, np.ndarray]:
    """Return the tensors by canonical name and in canonical layout, without the state of a training run.

    Args:
        tensors: State dict of the origin.
        origin: One of names.ORIGINS.

    Raises:
        UserError: Two keys map to the same name.
    """
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
        _add_zero_biases(result)
    if origin == "mindspore":
        _move_eps(result, source_names)
    return result


def to_torchvision(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return canonical tensors by torchvision's names, with the counters that its strict load_state_dict needs.

    Raises:
        UserError: The model has non-local blocks, which torchvision does not have.
    """
    _refuse_non_local(tensors, "torchvision")
    counters = {
        re.sub("running_var$", COUNTER, name): np.zeros((), np.int64)
        for name in tensors
        if name.endswith("running_var")
    }
    return {**tensors, **counters}


def to_paddle(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return canonical tensors by the names and in the layout of paddle.vision.

    Raises:
        UserError: The model has non-local blocks, which paddle.vision does not have.
    """
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


def conversion_notes(origin: str, is_bottleneck: bool) -> list[str]:
    """Return notes for the user on weights that match the model but do not give the same outputs by themselves.

    Args:
        origin: One of names.ORIGINS.
        is_bottleneck: Whether the residual blocks have three convolutions.
    """
    if origin == "mindcv":
        return [
            "mindcv pads the stem's max pooling at the right and at the bottom only, this zoo on all sides "
            f"({PADDING_EFFECT}): the accuracy will differ slightly"
        ]
    if origin == "mindspore" and is_bottleneck:
        return [
            "this model of mindspore-ai/models pads convolutions and pooling of stride 2 at the right and at the "
            f"bottom first, this zoo on all sides ({PADDING_EFFECT}): the accuracy will differ slightly"
        ]
    if origin == "paddleseg":
        return [
            "PaddleSeg's models expect pixels with another mean and standard deviation than ImageNet's: train and "
            "predict with -o data.mean=[0.5,0.5,0.5] -o data.std=[0.5,0.5,0.5]"
        ]
    if origin == "plsc":
        return [
            "PLSC's models expect pixels as (x - 127.5) / 128: train and predict with -o data.normalisation=plsc, or "
            "convert with -o variant=insightface, which moves the difference into the weights"
        ]
    return []


def _move_eps(tensors: dict[str, np.ndarray], source_names: Mapping[str, str]) -> None:
    """Add the difference of both epsilons to the running variance, which gives the same function in evaluation.

    In models with two convolutions per block only the normalizations inside the blocks (bn1d, bn2d) differ.
    """
    is_basic = any(re.search(r"\bbn\dd\.", name) for name in source_names.values())
    for name in [name for name in tensors if name.endswith("running_var")]:
        if not is_basic or re.search(r"\bbn\dd\.", source_names[name]):
            tensors[name] = tensors[name] + np.float32(MINDSPORE_EPS - EPS)


def _refuse_non_local(tensors: Mapping[str, np.ndarray], project: str) -> None:
    for name in tensors:
        if ".nl." in name:
            raise UserError(
                f"{project}'s ResNet has no non-local blocks and cannot hold {name}; convert with --to canonical"
            )


def _add_zero_biases(tensors: dict[str, np.ndarray]) -> None:
    """Add the bias that the output convolution of a non-local block has here but not in mmaction2."""
    for name in [name for name in tensors if name.endswith(".nl.out.weight")]:
        tensors.setdefault(name[: -len("weight")] + "bias", np.zeros(tensors[name].shape[0], np.float32))
