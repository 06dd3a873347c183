"""Losses of recipes: their keys, what each of them refuses, and the formulas in numpy against the definitions.

The formulas of every framework are compared in tests/zoo/trainer/loss_cases.py and margin_cases.py.
"""

import math

import numpy as np
import pytest

from zoo import losses
from zoo.data.errors import UserError
from zoo.losses import LOSSES, load_loss
from zoo.tasks import list_tasks, segment
from zoo.trainer import numpy_ops


@pytest.mark.parametrize("task, name", [(task, name) for task in LOSSES for name in LOSSES[task]])
def test_a_loss_has_the_name_of_its_entry(task, name):
    loss = load_loss(task, name)
    assert (loss.task, loss().loss) == (task, name) and hash(loss()) == hash(loss())


def test_every_task_has_losses():
    assert list(LOSSES) == list_tasks()


def test_keys_of_other_losses_are_known_by_loss():
    dice = load_loss("segment", "dice")
    assert losses.owner(dice, "gamma") == "task.loss=focal" and losses.owner(dice, "classes") == "task.loss=lovasz"
    assert losses.owner(dice, "label_smoothing") == losses.owner(dice, "ohem_kept") == "task.loss=cross_entropy"
    assert losses.owner(dice, "sum_classes") == "losses of the task classify" and losses.owner(dice, "x") == ""


def test_hard_pixels_are_mined_for_the_first_logits_alone():
    auxiliary = segment.Settings(ohem_kept=9, ohem_threshold=0.5, average="all", aux_weight=0.3).auxiliary()
    assert (auxiliary.ohem_kept, auxiliary.ohem_threshold, auxiliary.average) == (None, None, "all")


@pytest.mark.parametrize("rounding", [-1e-15, 0, 1e-15])
@pytest.mark.parametrize("threshold", [None, 0.25])
def test_equal_pixels_are_hard_together(rounding, threshold):
    probabilities = np.array([0.1, 0.2, 0.3, 0.3 * (1 + rounding), 0.4]).reshape(1, 1, 5)
    loss, plain = segment.Settings(ohem_kept=3, ohem_threshold=threshold), -np.log(probabilities)
    hard = loss.hard_pixels(numpy_ops, plain, plain, np.full(plain.shape, True))
    assert hard[0, 0].tolist() == [True, True, threshold is None, threshold is None, False]


@pytest.mark.parametrize(
    "task, name, options, key",
    [
        ("classify", "cross_entropy", {"label_smoothing": 1.0}, "label_smoothing"),
        ("classify", "cross_entropy", {"class_weights": (1.0, -1.0)}, "class_weights"),
        ("classify", "binary_cross_entropy", {"target_threshold": 1.0}, "target_threshold"),
        ("segment", "cross_entropy", {"class_weights": (1.0, -1.0)}, "class_weights"),
        ("segment", "cross_entropy", {"class_weights": (0.0, 0.0)}, "class_weights"),
        ("segment", "cross_entropy", {"class_weights": (1.0, 2.0), "ohem_kept": 5}, "class_weights"),
        ("segment", "cross_entropy", {"ohem_threshold": 0.5}, "ohem_threshold"),
        ("segment", "focal", {"gamma": math.inf}, "gamma"),
        ("segment", "focal", {"alpha": 1.1}, "alpha"),
        ("segment", "focal", {"class_weights": ()}, "class_weights"),
        ("segment", "dice", {"eps": 0.0}, "eps"),
        ("segment", "lovasz", {"class_weights": (math.nan, 1.0)}, "class_weights"),
        ("segment", "lovasz", {"aux_weight": -1.0}, "aux_weight"),
        ("face", "arcface", {"m2": math.pi}, "m2"),
        ("face", "cosface", {"m3": -0.1}, "m3"),
        ("face", "adaface", {"m": 1.6}, "m"),
        ("face", "adaface", {"t_alpha": 0.0}, "t_alpha"),
        ("face", "adaface", {"scale": 0.0}, "scale"),
    ],
)
def test_impossible_values(task, name, options, key):
    with pytest.raises(ValueError, match=f"^{key}:"):
        load_loss(task, name)(**options)


def test_an_unknown_loss_names_the_nearest_one():
    with pytest.raises(UserError, match=r"segment has no loss 'lovas'; there are: .*; did you mean lovasz\?"):
        load_loss("segment", "lovas")
