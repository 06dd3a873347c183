"""Class weights of a recipe: there is one for each class, and balanced ones come from the training samples."""

from dataclasses import replace
from typing import Any

import numpy as np

from zoo.data import order
from zoo.data.errors import UserError


def resolve(task: Any, train_set: Any, classes: int) -> tuple[Any, tuple[str, ...]]:
    """Return section `task:` with numbers as class weights, and lines about balanced ones for the user.

    Args:
        task: the section; its loss may have no class weights.
    """
    given = getattr(task, "class_weights", None)
    if given is None:
        return task, ()
    if given != "balanced":
        if len(given) != classes:
            raise UserError(
                f"task.class_weights: {len(given)} weights for {classes} classes; give one for each, in order"
            )
        return task, ()
    inventory = train_set.inventory(False) if hasattr(train_set, "inventory") else None
    counts = inventory.counts() if inventory else None
    if inventory is None or counts is None:
        raise UserError(
            "task.class_weights: balanced weights need the number of samples of each class, which this data set does "
            "not know; give a weight for each class"
        )
    weights = balanced(order.per_epoch(counts, getattr(train_set.settings, "balance", 0.0)), classes)
    present = np.flatnonzero(counts)
    ends = (present[at(weights[present])] for at in (np.argmax, np.argmin))
    extremes = " to ".join(f"{weights[label]:.3g} ({inventory.class_name(label)})" for label in ends)
    return replace(task, class_weights=tuple(weights.tolist())), (f"task.class_weights: balanced: {extremes}",)


def balanced(shown: np.ndarray, classes: int) -> np.ndarray:
    """Return the weights with which all classes count equally, and the mean sample as 1; 1 for a class without samples.

    Args:
        classes: outputs of the model, perhaps more than the data have classes.
    """
    weights = np.ones(classes)
    weights[: len(shown)][shown > 0] = shown.sum() / ((shown > 0).sum() * shown[shown > 0])
    return weights
