"""The ResNet in a state dict that holds more than a classifier: self-supervised training, a module around the model.

    MoCo      encoder_q.*, encoder_k.*, queue; MoCo v3 and others: base_encoder.*, momentum_encoder.*, predictor.*
    SimSiam   encoder.*, whose fc has several layers, and predictor.*
    DINO      backbone.*, head.*; SwAV: a ResNet's own names without fc, and projection_head.*, prototypes.*
    others    0.*, 1.*, 4.* to 7.*: torch.nn.Sequential(*resnet.children()); fc.1: Sequential(Dropout, Linear)

Classifiers of several layers are left out: models here have one.
"""

import re
from collections.abc import Mapping

import numpy as np

from zoo.data.errors import UserError
from zoo.weights import faces, names

Tensors = dict[str, np.ndarray]
ORIGINS = ("auto", "torchvision", "paddle_vision")  # whose names are looked for
BLOCK, SEQUENTIAL_BLOCK = "layer1.0.conv1.weight", "4.0.conv1.weight"
CHILDREN = {"0": "conv1", "1": "bn1", **{str(k + 3): f"layer{k}" for k in (1, 2, 3, 4)}}
AVERAGED = re.compile(r"(?:^|[._])(?:k|key|momentum|target|ema)(?:[._]|$)")  # copies that follow the trained network
OWN = re.compile(r"(conv|bn|layer)\d")
CLASSIFIER = re.compile(r"fc\.(?:\d+\.)?(weight|bias)")
MAX_LISTED = 8


def extract(tensors: Mapping[str, np.ndarray], path: str) -> tuple[Tensors, str]:
    """Return the tensors of the only ResNet in a state dict by the names within it, and what is left out.

    State dicts that hold no ResNet by torchvision's or paddle.vision's names are returned as they are.
    """
    is_tsn = any(name.startswith(("base_model.", "new_fc.")) for name in tensors)
    if is_tsn or names.detect_segmenter(tensors) or faces.detect(tensors):
        return dict(tensors), ""
    prefixes = [name.removesuffix(BLOCK) for name in tensors if name.endswith(BLOCK)]
    prefixes += [name.removesuffix(SEQUENTIAL_BLOCK) for name in tensors if name.endswith(SEQUENTIAL_BLOCK)]
    found = {prefix: own for prefix in prefixes if prefix[-1:] in ("", ".") and (own := _within(tensors, prefix))}
    trained = [prefix for prefix in found if not AVERAGED.search(prefix)] or list(found)
    if not trained:
        return dict(tensors), ""
    if len(trained) > 1:
        raise UserError(
            f"{path} holds several ResNets ({', '.join(sorted(trained))}); save the state_dict of one of them"
        )
    own = found[trained[0]]
    classifier = _classifier(own) if len(found) == 1 else {}
    modules = {name.partition(".")[0] for name, tensor in own.items() if classifier or tensor.ndim == 4}
    kept = {
        name: own[name] for name in own if OWN.match(name) or name.partition(".")[0] in modules - {"fc"}
    } | classifier
    taken = {id(tensor) for tensor in kept.values()}
    left_out = [name for name, tensor in tensors.items() if id(tensor) not in taken]
    return kept, ", ".join(_modules(left_out, trained[0]))


def _classifier(own: Tensors) -> Tensors:
    """Return weight and bias of a classifier of one layer, {} if there is none, or one of several layers."""
    found = {name: CLASSIFIER.fullmatch(name) for name in own if name.startswith("fc.")}
    renamed = {f"fc.{match[1]}": own[name] for name, match in found.items() if match}
    return renamed if len(renamed) == len(found) else {}


def _within(tensors: Mapping[str, np.ndarray], prefix: str) -> Tensors:
    """Return the tensors below a prefix by ResNet's names; {} if they are none of PyTorch's or Paddle's."""
    own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    if SEQUENTIAL_BLOCK in own:
        parts = {name: name.partition(".") for name in own}
        own = {f"{CHILDREN.get(part[0], part[0])}.{part[2]}": own[name] for name, part in parts.items()}
    is_resnet = "conv1.weight" in own and {"bn1.running_mean", "bn1._mean"} & own.keys()
    return own if is_resnet else {}


def _modules(left_out: list[str], prefix: str) -> list[str]:
    """Return the names of the modules of some tensors, some of them if they are many."""
    depth = prefix.count(".") + 1
    parts = [name.split(".")[: depth if name.startswith(prefix) else 1] for name in left_out]
    found = list(dict.fromkeys(map(".".join, parts)))
    return found if len(found) <= MAX_LISTED else [*found[:MAX_LISTED], "..."]
