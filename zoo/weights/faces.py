"""Names of the tensors of face recognition models in other projects, and the canonical ones.

insightface    recognition/arcface_torch: the canonical names
plsc           PLSC of Paddle 1: variables numbered in the order of creation
plsc2          PLSC of Paddle 2: the canonical names but _mean, _variance and _weight
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from zoo.models.arcface.spec import BLOCKS, Arch

INSIGHTFACE = ((r"^module\.", ""),)
PLSC_VARIABLES = {  # type of layer -> suffix of PLSC's variable -> suffix of the canonical name
    "conv2d": {"w_0": "weight"},
    "prelu": {"w_0": "weight"},
    "fc": {"w_0": "weight", "b_0": "bias"},
    "batch_norm": {"w_0": "weight", "b_0": "bias", "w_1": "running_mean", "w_2": "running_var"},
}
BLOCK = (
    ("batch_norm", "bn1"),
    ("conv2d", "conv1"),
    ("batch_norm", "bn2"),
    ("prelu", "prelu"),
    ("conv2d", "conv2"),
    ("batch_norm", "bn3"),
)
SHORTCUT = (("conv2d", "downsample.0"), ("batch_norm", "downsample.1"))


def detect(names: Iterable[str]) -> str | None:
    """Return the origin of a state dict with these names; None for other models."""
    names = set(names)
    if {"conv2d_0.w_0", "prelu_0.w_0"} <= names:
        return "plsc"
    if "features._mean" in names:
        return "plsc2"
    if names & {"features.running_mean", "module.features.running_mean"}:
        has_counters = any(name.endswith(".num_batches_tracked") for name in names)
        return "insightface" if has_counters or "conv1.weight" not in names else "canonical"
    return None


def plsc_names(blocks: int) -> dict[str, str]:
    """Return PLSC's names and their canonical names for a model of so many blocks; {} if there is none."""
    stages = next((stages for stages in BLOCKS.values() if sum(stages) == blocks), None)
    if stages is None:
        return {}
    layer_counts = dict.fromkeys(PLSC_VARIABLES, 0)
    names: dict[str, str] = {}
    for layer_type, module in _layers_by_creation(stages):
        layer = f"{layer_type}_{layer_counts[layer_type]}"
        names.update((f"{layer}.{old}", f"{module}.{new}") for old, new in PLSC_VARIABLES[layer_type].items())
        layer_counts[layer_type] += 1
    return names


def block_count(names: Iterable[str]) -> int:
    """Return the number of residual blocks from PLSC's names, 0 for others.

    Every block has two convolutions; four shortcuts and the stem have one each.
    """
    return max(0, sum(re.fullmatch(r"conv2d_\d+\.w_0", name) is not None for name in names) - 5) // 2


def to_insightface(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Convert canonical tensors of the variant plsc to insightface: the same embeddings of an image in evaluation.

    PReLU slopes are repeated for every channel, the difference of both epsilons moves into the running variances, and
    that of the pixel scales (x - 127.5) / 128 and (x - 127.5) / 127.5 into the first convolution.
    """
    epsilon_difference = np.float32(Arch(variant="plsc").epsilon - Arch().epsilon)
    result = dict(tensors)
    for name, tensor in tensors.items():
        if name.endswith("prelu.weight"):
            norm = name[: -len("prelu.weight")] + ("bn1.weight" if name == "prelu.weight" else "bn2.weight")
            if norm in tensors:
                result[name] = np.broadcast_to(tensor, tensors[norm].shape)
        elif name.endswith("running_var"):
            result[name] = tensor + epsilon_difference
        elif name == "conv1.weight":
            result[name] = tensor * np.float32(127.5 / 128)
    return result


def _layers_by_creation(stages: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    """Yield type and canonical module of every layer in the order in which PLSC creates them."""
    yield from (("conv2d", "conv1"), ("batch_norm", "bn1"), ("prelu", "prelu"))
    for stage, blocks in enumerate(stages, 1):
        for i in range(blocks):
            for layer_type, module in BLOCK + (SHORTCUT if i == 0 else ()):
                yield layer_type, f"layer{stage}.{i}.{module}"
    yield from (("batch_norm", "bn2"), ("fc", "fc"), ("batch_norm", "features"))
