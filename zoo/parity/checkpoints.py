"""Checkpoints of a side's framework: what of a file is the model's."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from zoo.data.errors import UserError, similar_name

FORMATS = {"torch": (".pth", ".pt"), "paddle": (".pdparams",), "mindspore": (".ckpt",)}  # beside .safetensors


def fit(
    label: str, tensors: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the tensors of a file that a model has, by its names, and the names of the others.

    Wrappers such as DataParallel and Lightning begin all names with one of theirs, which is dropped.

    Args:
        label: of the file, for messages.

    Raises:
        UserError: a tensor has another shape.
    """
    prefix = _prefix(tensors, expected)
    named = {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
    found = {name: array for name, array in named.items() if name in expected}
    for name, array in found.items():
        if array.shape != expected[name].shape:
            raise UserError(
                f"{label}: {prefix}{name} has the shape {list(array.shape)}, but the model's has "
                f"{list(expected[name].shape)}; build the model as it was when this was saved"
            )
    return found, [name for name in tensors if name.removeprefix(prefix) not in found]


def _prefix(names: Collection[str], expected: Collection[str]) -> str:
    """Return what begins the names of a file where most of those that follow are expected."""
    counts = Counter({"": 0})
    for name in names:
        parts = name.split(".")
        ends = (".".join(parts[i:]) for i in range(len(parts)))
        counts.update(name.removesuffix(end) for end in ends if end in expected)
    return max(counts, key=lambda prefix: (counts[prefix], -len(prefix)))


def lacks(label: str, missing: Sequence[str], others: Sequence[str]) -> str:
    """Return the message on tensors of a model that a file does not have."""
    rest = f"; the file's others: {', '.join(others[:3])}" if others else ""
    return (
        f"{label} lacks {len(missing)} tensors of the model, such as {', '.join(missing[:3])}"
        f"{similar_name(missing[0], others)}{rest}; build the model that it was saved of"
    )
