"""Names of ResNet and TSM tensors in other projects, and the way to the canonical names and to torchvision's.

    torchvision  canonical already, with a counter num_batches_tracked for each batch normalisation
    mit          mit-han-lab/temporal-shift-module: wrappers add module., base_model., .net and .block
    mmaction2    open-mmlab/mmaction2's TSM: convolution and normalisation share a module convN
    canonical    zoo/resnet/spec.py and zoo/tsm/spec.py
"""
import re
from typing import Dict, Iterable, Mapping

import numpy as np

from data.errors import UserError

ORIGINS = ("torchvision", "mit", "mmaction2", "canonical")
COUNTER = "num_batches_tracked"  # torch counts batches; nothing here depends on the count
MIT_RULES = (
    (r"^(module\.)?(base_model\.)?", ""),
    (r"^new_fc\.", "fc."),                          # with a dropout of 0 it is base_model.fc
    (r"\bnl\.(g|phi)\.0\.", r"nl.\1."),
    (r"\bnl\.W\.0\.", "nl.out."),
    (r"\bnl\.W\.1\.", "nl.bn."),
)
MMACTION_RULES = (
    (r"^(module\.)?(backbone\.)?", ""),
    (r"^cls_head\.fc_cls\.", "fc."),
    (r"\bnon_local_block\.(g|theta|phi)\.(0\.)?conv\.", r"nl.\1."),
    (r"\bnon_local_block\.conv_out\.conv\.", "nl.out."),
    (r"\bnon_local_block\.conv_out\.bn\.", "nl.bn."),
    (r"\bdownsample\.conv\.", "downsample.0."),
    (r"\bdownsample\.bn\.", "downsample.1."),
    (r"\bconv(\d)\.conv\.", r"conv\1."),
    (r"\bconv(\d)\.bn\.", r"bn\1."),
)


def detect(names: Iterable[str]) -> str:
    """Which project wrote these names. Raises UserError if none of those known here did."""
    names = list(names)
    if any(name.startswith(("backbone.", "module.backbone.", "cls_head.")) for name in names):
        return "mmaction2"
    if any(name.startswith(("module.", "base_model.", "new_fc.")) for name in names):
        return "mit"
    if "conv1.weight" in names:
        return "torchvision" if any(name.endswith(COUNTER) for name in names) else "canonical"
    shown = ", ".join(sorted(names)[:5])
    raise UserError(f"the names ({shown} ...) are of no known origin; known are: {', '.join(ORIGINS)}")


def canonical_name(name: str, origin: str) -> str:
    """The canonical name of a tensor; a name that no rule knows comes back as it is."""
    if origin in ("torchvision", "canonical"):
        return name
    # the shift, the temporal pool and the non-local block of both projects wrap a module: a step in the path
    name = ".".join(part for part in name.split(".") if part not in ("net", "block"))
    for pattern, replacement in MIT_RULES if origin == "mit" else MMACTION_RULES:
        name = re.sub(pattern, replacement, name)
    return name


def to_canonical(tensors: Mapping[str, np.ndarray], origin: str) -> Dict[str, np.ndarray]:
    """The tensors by canonical name, without torch's counters. Raises UserError if two get the same name."""
    result: Dict[str, np.ndarray] = {}
    source: Dict[str, str] = {}
    for old, tensor in tensors.items():
        if old.rsplit(".", 1)[-1] == COUNTER:
            continue
        name = canonical_name(old, origin)
        if name in source:
            raise UserError(f"{source[name]} and {old} would both become {name}; is the origin really {origin}?")
        source[name], result[name] = old, tensor
    if origin == "mmaction2":
        _add_missing_biases(result)
    return result


def to_torchvision(tensors: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
    """Canonical tensors by torchvision's names, with the counters that its strict load asks for.

    Raises UserError for a net with non-local blocks, which torchvision does not have.
    """
    for name in tensors:
        if ".nl." in name:
            raise UserError(f"torchvision's ResNet has no non-local blocks, so it cannot hold {name}")
    counters = {re.sub("running_var$", COUNTER, name): np.zeros((), np.int64)
                for name in tensors if name.endswith("running_var")}
    return {**tensors, **counters}


def _add_missing_biases(tensors: Dict[str, np.ndarray]) -> None:
    """mmaction2's output convolution of a non-local block has no bias, ours has: 0 is the same function."""
    for name in [name for name in tensors if name.endswith(".nl.out.weight")]:
        tensors.setdefault(name[:-len("weight")] + "bias", np.zeros(tensors[name].shape[0], np.float32))
