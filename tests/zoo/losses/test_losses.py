"""Specifications of losses: their keys in a recipe, and what each of them refuses."""

import math
from dataclasses import fields

import pytest

from tests.helpers.paths import ROOT
from zoo.data.errors import UserError
from zoo.frameworks import FRAMEWORKS
from zoo.losses import list_losses, load_implementation, load_loss, with_loss
from zoo.losses.face import combined
from zoo.tasks import face, list_tasks, load_task, segment

LOSSES = [(task, name) for task in list_tasks() for name in list_losses(task)]


def test_the_losses_of_each_task():
    assert {task: list_losses(task) for task in list_tasks()} == {
        "classify": ["binary_cross_entropy", "cross_entropy"],
        "face": ["adaface", "arcface", "combined", "cosface"],
        "segment": ["cross_entropy", "dice", "focal", "lovasz"],
    }


@pytest.mark.parametrize("task, name", LOSSES)
def test_every_loss_is_written_for_every_framework(task, name):
    loss = load_loss(task, name)()
    home = (loss.margin() if task == "face" else loss).__module__.split(".")[-1]
    for framework in FRAMEWORKS:
        assert (ROOT / f"zoo/trainer/{framework}/losses/{task}/{home}.py").exists()


@pytest.mark.parametrize("task, name", LOSSES)
def test_the_settings_have_the_keys_of_task_and_loss(task, name):
    module, loss = load_task(task), load_loss(task, name)
    settings = module.settings_class(name)
    assert {key.name for key in fields(settings)} == {"loss", *(k.name for k in (*fields(module.Keys), *fields(loss)))}
    assert settings().loss == name and not {key.name for key in fields(settings)} & settings.OTHER_KEYS.keys()
    objective = module.objective(settings())
    assert objective.loss == (loss().margin() if task == "face" else loss())
    assert hash(objective) == hash(module.objective(settings()))


def test_keys_of_other_losses_are_known_by_loss():
    others = segment.settings_class("dice").OTHER_KEYS
    assert (others["gamma"], others["classes"], others["ohem_kept"]) == (
        "task.loss=focal",
        "task.loss=lovasz",
        "task.loss=cross_entropy",
    )
    assert others["label_smoothing"] == "task.loss=cross_entropy"
    assert others["sum_classes"] == "losses of the task classify"
    assert "eps" not in others and "window" not in others


def test_hard_pixels_are_mined_for_the_first_logits_alone():
    objective = segment.objective(segment.Settings(ohem_kept=9, ohem_threshold=0.5, average="all", aux_weight=0.3))
    assert (objective.loss.ohem_kept, objective.loss.ohem_threshold, objective.aux_weight) == (9, 0.5, 0.3)
    assert (objective.aux_loss.ohem_kept, objective.aux_loss.ohem_threshold) == (None, None)
    assert objective.aux_loss.average == "all"


def test_margins_by_their_papers_names():
    named = {name: face.objective(face.settings_class(name)()) for name in ("arcface", "cosface", "combined")}
    assert named["arcface"].loss == named["combined"].loss == combined.Loss(1.0, 0.5, 0.0, True)
    assert named["cosface"].loss == combined.Loss(1.0, 0.0, 0.4, False)


@pytest.mark.parametrize(
    "task, name, options, key",
    [
        ("classify", "cross_entropy", {"label_smoothing": 1.0}, "label_smoothing"),
        ("classify", "binary_cross_entropy", {"label_smoothing": -0.1}, "label_smoothing"),
        ("classify", "binary_cross_entropy", {"target_threshold": 1.0}, "target_threshold"),
        ("segment", "cross_entropy", {"class_weights": (1.0, -1.0)}, "class_weights"),
        ("segment", "cross_entropy", {"class_weights": (0.0, 0.0)}, "class_weights"),
        ("segment", "cross_entropy", {"class_weights": (1.0, 2.0), "ohem_kept": 5}, "class_weights"),
        ("segment", "cross_entropy", {"label_smoothing": 1.0}, "label_smoothing"),
        ("segment", "focal", {"gamma": -1.0}, "gamma"),
        ("segment", "focal", {"gamma": math.inf}, "gamma"),
        ("segment", "focal", {"alpha": 1.1}, "alpha"),
        ("segment", "focal", {"class_weights": ()}, "class_weights"),
        ("segment", "dice", {"eps": 0.0}, "eps"),
        ("segment", "lovasz", {"class_weights": (math.nan, 1.0)}, "class_weights"),
        ("segment", "lovasz", {"aux_weight": -1.0}, "aux_weight"),
        ("face", "arcface", {"m2": math.pi}, "m2"),
        ("face", "cosface", {"m3": -0.1}, "m3"),
        ("face", "adaface", {"m": 1.6}, "m"),
        ("face", "adaface", {"h": -0.1}, "h"),
        ("face", "adaface", {"t_alpha": 0.0}, "t_alpha"),
        ("face", "adaface", {"t_alpha": 1.1}, "t_alpha"),
        ("face", "adaface", {"scale": 0.0}, "scale"),
    ],
)
def test_impossible_values(task, name, options, key):
    with pytest.raises(ValueError, match=f"^{key}:"):
        load_task(task).settings_class(name)(**options)


def test_an_unknown_loss_names_the_nearest_one():
    with pytest.raises(UserError, match=r"segment has no loss 'lovas'; there are: .*; did you mean lovasz\?"):
        load_loss("segment", "lovas")
    with pytest.raises(UserError, match="the task face has no loss 'focal'; there are: adaface, arcface, combined"):
        with_loss("face", face.Keys, "focal")


def test_a_framework_that_lacks_a_loss():
    with pytest.raises(UserError, match="task.loss: jax has no focal for the task segment; write zoo/trainer/jax"):
        load_implementation(load_loss("segment", "focal")(), "jax")
