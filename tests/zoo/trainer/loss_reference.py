"""The losses of zoo/losses in numpy and float64, from their definitions, with the gradients by the logits."""

import numpy as np

from zoo.tasks.segment import IGNORE_INDEX


def classify(logits, target, loss):
    """Return the sum of the losses and its gradient by logits (N, K); target (N,) of classes or (N, K)."""
    logits, classes = logits.astype(np.float64), logits.shape[1]
    q = np.eye(classes)[target] if target.ndim == 1 else target.astype(np.float64)
    q = (1 - loss.label_smoothing) * q + loss.label_smoothing / classes
    if not hasattr(loss, "sum_classes"):
        p, q = softmax(logits), q * (loss.class_weights or 1.0)
        return -(q * np.log(p)).sum(), p * q.sum(1, keepdims=True) - q
    if loss.target_threshold is not None:
        q = (q > loss.target_threshold).astype(np.float64)
    p = 1 / (1 + np.exp(-logits))
    divisor = 1 if loss.sum_classes else classes
    return -(q * np.log(p) + (1 - q) * np.log(1 - p)).sum() / divisor, (p - q) / divisor


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def segment(name, logits, labels, loss):
    """Return total, count and the gradient of the total by logits (N, K, H, W); labels (N, H, W)."""
    logits = logits.astype(np.float64)
    valid = labels != IGNORE_INDEX
    one_hot = np.moveaxis(np.eye(logits.shape[1])[np.where(valid, labels, 0)], -1, 1) * valid[:, None]
    return {"cross_entropy": weighted, "focal": focal, "dice": dice, "lovasz": lovasz}[name](
        logits, one_hot, valid, loss
    )


def class_weights(loss, classes):
    return np.array(loss.class_weights or [1.0] * classes).reshape(1, -1, 1, 1)


def weighted(logits, y, valid, loss):
    weights = (y * class_weights(loss, y.shape[1])).sum(1)  # of pixels
    p = softmax(logits)
    # The cross-entropy with a target that adds up to less or more than 1
    even = valid[:, None] * class_weights(loss, y.shape[1]) / y.shape[1]
    target = (1 - loss.label_smoothing) * weights[:, None] * y + loss.label_smoothing * even
    total = -(target * np.log(p)).sum()
    count = weights.sum() if loss.average == "valid" else valid.size
    return total, count, p * target.sum(1, keepdims=True) - target


def focal(logits, y, valid, loss):
    p = 1 / (1 + np.exp(-logits))
    t = np.where(y > 0, p, 1 - p)
    alpha = 1 if loss.alpha is None else np.where(y > 0, loss.alpha, 1 - loss.alpha)
    factor = alpha * class_weights(loss, y.shape[1]) * valid[:, None] / y.shape[1]
    total = -(factor * (1 - t) ** loss.gamma * np.log(t)).sum()
    sign = np.where(y > 0, 1, -1)  # dt/dlogit is sign * t (1 - t)
    slope = loss.gamma * t * (1 - t) ** loss.gamma * np.log(t) - (1 - t) ** (loss.gamma + 1)
    return total, valid.sum() if loss.average == "valid" else valid.size, factor * sign * slope


def through_softmax(p, by_p):
    """Return the gradient by logits, given that by their softmax."""
    return p * (by_p - (p * by_p).sum(1, keepdims=True))


def dice(logits, y, valid, loss):
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
            above, slope = 2 * (q * y[i]).sum() + loss.eps, 1
        total += 1 - above / below
        by_p[i] = -(2 * y[i] / below - above * slope / below**2) * valid[i]
    return total, valid.any((1, 2)).sum(), through_softmax(p, by_p)


def lovasz(logits, y, valid, loss):
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
            wrong = np.tri(len(order) + 1, len(order), -1, dtype=bool)
            truth = target[order] > 0
            iou = [(truth & ~mask).sum() / (truth | mask).sum() for mask in wrong[1:]]
            increase = np.diff(np.concatenate([[0.0], 1 - np.array(iou)]))
            terms.append(weights[k] * (np.abs(target - predicted)[order] * increase).sum())
            slope = np.empty(len(order))
            slope[order] = weights[k] * increase * np.sign(predicted - target)[order]
            slopes[k][valid[i]] = slope
        if terms:
            total += np.mean(terms)
            by_p[i] = slopes / len(terms)
    return total, valid.any((1, 2)).sum(), through_softmax(p, by_p)
