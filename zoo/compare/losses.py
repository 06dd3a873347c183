"""Cross-entropies of a model's logits in numpy, and guesses at what makes a loss differ that is made of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

IGNORE_INDEX = 255  # of a segmentation's labels
DIGITS = 3  # a setting that someone wrote has no more


def terms(logits: Sequence[np.ndarray], labels: np.ndarray) -> dict[str, Any]:
    """Return sums over a batch.

    Args:
        logits: of each head, (N, K) or (N, K, H, W).
        labels: (N,) or (N, H, W).

    Returns:
        `heads`: of each head the cross-entropy with the labels and with the uniform distribution; `all` and `valid`,
        the number of all labels and of those that are not ignored.
    """
    valid = labels != IGNORE_INDEX if labels.ndim > 1 else np.ones(labels.shape, bool)
    heads = []
    for head in logits:
        shifted = head - head.max(1, keepdims=True)
        negative = np.log(np.exp(shifted).sum(1, keepdims=True)) - shifted
        targets = np.where(valid, labels, 0).astype(np.int64)
        target_losses = np.take_along_axis(negative, np.expand_dims(targets, 1), 1)[:, 0]
        heads.append([float(target_losses[valid].sum()), float(negative.mean(1)[valid].sum())])
    return {"heads": heads, "all": int(labels.size), "valid": int(valid.sum())}


def guess(reference: float, suspect: float, sums: Mapping[str, Any], task: Mapping[str, float]) -> str:
    """Guess which setting of a loss differs.

    Args:
        reference, suspect: the losses.
        sums: of `terms`.
        task: settings of the task.

    Returns:
        A clause, "" if none fits.
    """
    if not sums["valid"]:
        return ""
    share = sums["valid"] / sums["all"]
    for ratio, direction in (
        (share, "all pixels instead of those with a label"),
        (1 / share, "the pixels with a label"),
    ):
        if share < 1 and _equal(suspect, reference * ratio):
            return f"the loss is averaged over {direction}"
    (target, uniform), *auxiliary = sums["heads"]
    for count in {sums["valid"], sums["all"]}:
        if (
            auxiliary
            and "aux_weight" in task
            and _equal(reference, (target + task["aux_weight"] * auxiliary[0][0]) / count)
        ):
            weight = (suspect * count - target) / auxiliary[0][0]
            if _is_another(weight, task["aux_weight"]):
                return f"the auxiliary loss has the weight {_rounded(weight):g} instead of {task['aux_weight']:g}"
        smoothing = task.get("label_smoothing", 0.0)
        if (
            not auxiliary
            and uniform != target
            and _equal(reference, ((1 - smoothing) * target + smoothing * uniform) / count)
        ):
            found = (suspect * count - target) / (uniform - target)
            if _is_another(found, smoothing) and 0 <= _rounded(found) < 1:
                return f"label smoothing is {_rounded(found):g} instead of {smoothing:g}"
    return ""


def _equal(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def _is_another(value: float, setting: float) -> bool:
    """Return whether a value is one that someone writes, and not the setting itself."""
    return abs(value - _rounded(value)) <= 1e-6 and _rounded(value) != setting


def _rounded(value: float) -> float:
    return round(value, DIGITS) + 0.0  # not -0.0
