"""Binary cross-entropy of a classifier: each class is a yes-or-no question of its own."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    """-sum over classes of q_k log p_k + (1 - q_k) log(1 - p_k), for p = sigmoid(logits (N, K)) and a target q.

    The target is a label (N,) or a distribution over the classes (N, K), as mixup gives it; smoothed as that of the
    cross-entropy, then cut at target_threshold. Of ResNet Strikes Back (arXiv:2110.00476), as BinaryCrossEntropy of
    timm 1.0, which smooths labels but not distributions.
    """

    label_smoothing: float = 0.0  # share of the target that is spread evenly over all classes
    target_threshold: float | None = None  # make targets above it 1 and others 0; arXiv:2110.00476 has 0.2
    sum_classes: bool = False  # add the classes up; else their mean is taken

    def __post_init__(self):
        if not 0 <= self.label_smoothing < 1:
            raise ValueError("label_smoothing: must lie in [0, 1)")
        if self.target_threshold is not None and not 0 <= self.target_threshold < 1:
            raise ValueError("target_threshold: must lie in [0, 1), or be null to leave targets as they are")
