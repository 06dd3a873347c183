"""Class weights of losses."""

import math
from collections.abc import Sequence


def check_class_weights(weights: Sequence[float] | None) -> None:
    """Check the key class_weights, but for its length, which only the data knows.

    Raises:
        ValueError: a weight is negative or infinite, or all are 0.
    """
    if weights is None:
        return
    if not weights or min(weights) < 0 or not math.isfinite(sum(weights)) or not any(weights):
        raise ValueError("class_weights: must be finite numbers, not below 0 and not all 0, one for each class")
