"""Tensors of other projects to the zoo's and back: names by names.py, and all that is more than a name."""

import re
from collections.abc import Mapping

import numpy as np

from data.errors import UserError
from zoo.weights.names import COUNTER, block_count, canonical_name, is_state

PADDLE = ("paddle_vision", "paddleclas", "paddlevideo", "plsc", "plsc2")  # their linear layers are (inputs, outputs)
EPSILON = 1e-5  # of every batch normalisation here
MINDSPORE_EPSILON = 1e-4  # of mindspore-ai/models'
DISTANCE = "measured on a ResNet-50: logits up to 0.09 apart, at a standard deviation of 0.27"


def to_canonical(tensors: Mapping[str, np.ndarray], origin: str) -> dict[str, np.ndarray]:
    """The tensors by canonical name and in canonical layout, without what only training needs.

    Raises UserError if two get the same name.
    """
    result: dict[str, np.ndarray] = {}
    source: dict[str, str] = {}
    blocks = block_count(tensors)
    for old, tensor in tensors.items():
        if is_state(old, tensors, origin):
            continue
        name = canonical_name(old, origin, blocks)
        if name in source:
            raise UserError(f"{source[name]} and {old} would both become {name}; is the origin really {origin}?")
        source[name], result[name] = old, tensor
    if origin in PADDLE and "fc.weight" in result:
        result["fc.weight"] = result["fc.weight"].T
    if origin == "mmaction2":
        _add_missing_biases(result)
    if origin == "mindspore":
        _move_epsilon(result, source)
    return result


def to_torchvision(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Canonical tensors by torchvision's names, with the counters that its strict load asks for.

    Raises UserError for a net with non-local blocks, which torchvision does not have.
    """
    _refuse_non_local(tensors, "torchvision")
    counters = {
        re.sub("running_var$", COUNTER, name): np.zeros((), np.int64)
        for name in tensors
        if name.endswith("running_var")
    }
    return {**tensors, **counters}


def to_paddle(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Canonical tensors by the names and in the layout of paddle.vision. Raises UserError for non-local blocks."""
    _refuse_non_local(tensors, "paddle.vision")
    ending = {"running_mean": "_mean", "running_var": "_variance"}
    result = {}
    for name, tensor in tensors.items():
        module, part = name.rsplit(".", 1)
        result[f"{module}.{ending.get(part, part)}"] = tensor.T if name == "fc.weight" else tensor
    return result


def without_spare_class(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A classifier of 1001 ImageNet classes without the last: mindspore-ai/models trains one that no image has."""
    return {name: tensor[:1000] if name.startswith("fc.") else tensor for name, tensor in tensors.items()}


def notes(origin: str, bottleneck: bool) -> list[str]:
    """What a user should know about weights of this origin that fit and still do not compute the same."""
    if origin == "mindcv":
        return [
            "mindcv pads the stem's pool at the right and at the bottom alone, the zoo's net on all sides "
            f"({DISTANCE}): the accuracy will differ slightly"
        ]
    if origin == "mindspore" and bottleneck:
        return [
            "this net of mindspore-ai/models pads convolutions and pool of stride 2 at the right and at the bottom "
            f"first, the zoo's on all sides ({DISTANCE}): the accuracy will differ slightly"
        ]
    if origin == "paddleseg":
        return [
            "PaddleSeg's nets want pixels with another mean and deviation than ImageNet's: give the run "
            "-o data.mean=[0.5,0.5,0.5] -o data.std=[0.5,0.5,0.5]"
        ]
    if origin == "plsc":
        return [
            "PLSC's nets want pixels as (x - 127.5) / 128: give the run -o data.normalisation=plsc, or convert "
            "with -o variant=insightface, which moves this into the weights"
        ]
    return []


def _move_epsilon(tensors: dict[str, np.ndarray], source: Mapping[str, str]) -> None:
    """Move the difference of both epsilons into the running variance: the same function in evaluation.

    In its nets of two convolutions per block those inside the blocks alone (bn1d, bn2d) have the larger one.
    """
    basic = any(re.search(r"\bbn\dd\.", old) for old in source.values())
    for name in [name for name in tensors if name.endswith("running_var")]:
        if not basic or re.search(r"\bbn\dd\.", source[name]):
            tensors[name] = tensors[name] + np.float32(MINDSPORE_EPSILON - EPSILON)


def _refuse_non_local(tensors: Mapping[str, np.ndarray], project: str) -> None:
    for name in tensors:
        if ".nl." in name:
            raise UserError(f"{project}'s ResNet has no non-local blocks, so it cannot hold {name}")


def _add_missing_biases(tensors: dict[str, np.ndarray]) -> None:
    """mmaction2's output convolution of a non-local block has no bias, ours has: 0 is the same function."""
    for name in [name for name in tensors if name.endswith(".nl.out.weight")]:
        tensors.setdefault(name[: -len("weight")] + "bias", np.zeros(tensors[name].shape[0], np.float32))
