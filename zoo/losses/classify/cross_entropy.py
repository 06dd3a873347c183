"""Softmax cross-entropy of a classifier."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    """-sum over classes of q_k log p_k, for the softmax p of logits (N, K) and a target q.

    The target is a label (N,) or a distribution over the classes (N, K), as mixup gives it. With smoothing, the target
    is (1 - label_smoothing) q + label_smoothing / K (arXiv:1512.00567).
    """

    label_smoothing: float = 0.0  # share of the target that is spread evenly over all classes

    def __post_init__(self):
        if not 0 <= self.label_smoothing < 1:
            raise ValueError("label_smoothing: must lie in [0, 1)")
