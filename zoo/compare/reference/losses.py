"""The losses of classifiers and segmentation models, with their gradients by the logits.

`loss` is section `task:`; losses are found by its names of task and loss.
"""

from typing import Any

import numpy as np

Array = np.ndarray
IGNORED = 255  # label of a pixel that has no loss
DEFINED = {  # by task; those of faces are in margin.py
    "classify": ("cross_entropy", "binary_cross_entropy"),
    "multilabel": ("binary_cross_entropy",),
    "segment": ("cross_entropy", "focal", "dice", "lovasz"),
    "face": ("arcface", "cosface", "combined", "adaface"),
}


def classify(logits: Array, target: Array, loss: Any) -> tuple[Array, Array]:
    """Return the sum of the losses, and its gradient by logits (N, K); target (N,) of classes or (N, K)."""
    logits, classes = logits.astype(np.float64), logits.shape[1]
    q = np.eye(classes)[target] if target.ndim == 1 else target.astype(np.float64)
    q = (1 - loss.label_smoothing) * q + loss.label_smoothing / classes
    if loss.loss == "cross_entropy":
        q = q * (loss.class_weights or 1.0)
        return -(q * log_softmax(logits)).sum(), softmax(logits) * q.sum(1, keepdims=True) - q
    if loss.target_threshold is not None:
        q = (q > loss.target_threshold).astype(np.float64)
    divisor = 1 if loss.sum_classes else classes
    total = (q * np.logaddexp(0, -logits) + (1 - q) * np.logaddexp(0, logits)).sum()
    return total / divisor, (1 / (1 + np.exp(-logits)) - q) / divisor


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def softmax(logits: Array) -> Array:
    return np.exp(log_softmax(logits))


def segment(logits: Array, labels: Array, loss: Any, is_auxiliary: bool = False) -> tuple[Any, Any, Array]:
    """Return total, count and the gradient of the total by logits (N, K, H, W); labels (N, H, W)."""
    logits, valid = logits.astype(np.float64), labels != IGNORED
    one_hot = np.moveaxis(np.eye(logits.shape[1])[np.where(valid, labels, 0)], -1, 1) * valid[:, None]
    if loss.loss == "cross_entropy":
        return cross_entropy_of_pixels(logits, one_hot, valid, loss, is_auxiliary)
    return {"focal": focal, "dice": dice, "lovasz": lovasz}[loss.loss](logits, one_hot, valid, loss)


def class_weights(loss: Any, classes: int) -> Array:
    return np.array(loss.class_weights or [1.0] * classes).reshape((1, -1, 1, 1))


def cross_entropy_of_pixels(
    logits: Array, y: Array, valid: Array, loss: Any, is_auxiliary: bool
) -> tuple[Any, Any, Array]:
    weights = (y * class_weights(loss, y.shape[1])).sum(1)  # of pixels
    # The cross-entropy with a target that adds up to less or more than 1
    even = valid[:, None] * class_weights(loss, y.shape[1]) / y.shape[1]
    target = (1 - loss.label_smoothing) * weights[:, None] * y + loss.label_smoothing * even
    count = weights.sum() if loss.average == "valid" else valid.size
    losses = -(target * log_softmax(logits)).sum(1)
    if loss.ohem_kept is not None and not is_auxiliary:
        hard = hard_pixels((softmax(logits) * y).sum(1), losses, valid, loss)
        losses, target = losses * hard, target * hard[:, None]
    return losses.sum(), count, softmax(logits) * target.sum(1, keepdims=True) - target


def hard_pixels(probabilities: Array, losses: Array, valid: Array, loss: Any) -> Array:
    """Return the pixels of a batch that count in online hard example mining; probabilities: of their labels."""
    kept = loss.ohem_kept * len(valid)
    if not valid.any():
        return valid
    if loss.ohem_threshold is None:
        hardest = np.sort(losses[valid])[::-1]
        return valid & (losses >= (1 - 1e-12) * hardest[min(kept, len(hardest)) - 1])
    hardest = np.sort(probabilities[valid])
    return valid & (probabilities < (1 - 1e-12) * max(hardest[min(kept, len(hardest) - 1)], loss.ohem_threshold))


def focal(logits: Array, y: Array, valid: Array, loss: Any) -> tuple[Any, Any, Array]:
    sign = np.where(y > 0, 1, -1)  # dt/dlogit is sign * t (1 - t)
    log_t = -np.logaddexp(0, -sign * logits)
    t = np.exp(log_t)
    alpha = 1 if loss.alpha is None else np.where(y > 0, loss.alpha, 1 - loss.alpha)
    factor = alpha * class_weights(loss, y.shape[1]) * valid[:, None] / y.shape[1]
    total = -(factor * (1 - t) ** loss.gamma * log_t).sum()
    slope = loss.gamma * t * (1 - t) ** loss.gamma * log_t - (1 - t) ** (loss.gamma + 1)
    return total, valid.sum() if loss.average == "valid" else valid.size, factor * sign * slope


def through_softmax(p: Array, by_p: Array) -> Array:
    """Return the gradient by logits, given that by their softmax."""
    return p * (by_p - (p * by_p).sum(1, keepdims=True))


def dice(logits: Array, y: Array, valid: Array, loss: Any) -> tuple[Any, Any, Array]:
    total, p, by_p = 0.0, softmax(logits), np.zeros_like(logits)
    for i in range(len(p)):
        if not valid[i].any():
            continue
        q = p[i] * valid[i]
        if loss.squared:
            below = (q * q).sum() + (y[i] * y[i]).sum() + 2 * loss.eps
            above, slope = 2 * (q * y[i]).sum(), 2 * q
        else:
            below = q.sum() + y[i].sum() + loss.eps
            above, slope = 2 * (q * y[i]).sum() + loss.eps, np.ones_like(q)
        total += 1 - above / below
        by_p[i] = -(2 * y[i] / below - above * slope / below**2) * valid[i]
    return total, valid.any((1, 2)).sum(), through_softmax(p, by_p)


def lovasz(logits: Array, y: Array, valid: Array, loss: Any) -> tuple[Any, Any, Array]:
    total, p, by_p = 0.0, softmax(logits), np.zeros_like(logits)
    weights = class_weights(loss, y.shape[1]).ravel()
    for i in range(len(p)):
        terms, slopes = [], np.zeros_like(p[i])
        for k in range(y.shape[1]):
            target, predicted = y[i, k][valid[i]], p[i, k][valid[i]]
            if not valid[i].any() or (loss.classes == "present" and not target.any()):
                continue
            order = np.argsort(-np.abs(target - predicted), kind="stable")
            # 1 - IoU of a prediction that is wrong at the first pixels of the order and nowhere else
            truth, wrong = target[order] > 0, np.arange(1, len(order) + 1)
            hits = np.cumsum(truth)
            iou = (truth.sum() - hits) / (truth.sum() + wrong - hits)
            increase = np.diff(1 - iou, prepend=0.0)
            terms.append(weights[k] * (np.abs(target - predicted)[order] * increase).sum())
            slope = np.empty(len(order))
            slope[order] = weights[k] * increase * np.sign(predicted - target)[order]
            slopes[k][valid[i]] = slope
        if terms:
            total += np.mean(terms)
            by_p[i] = slopes / len(terms)
    return total, valid.any((1, 2)).sum(), through_softmax(p, by_p)
