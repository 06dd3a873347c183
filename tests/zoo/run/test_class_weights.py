"""Balanced class weights: their values, what they need, and a run with them and with balanced classes."""

import os
from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers.paths import CONFIGS
from tests.helpers.training import command, events, run_here
from zoo.data.audit import Inventory
from zoo.data.errors import UserError
from zoo.losses import load_loss
from zoo.run.dataset import resolve_class_weights
from zoo.run.job import assemble, join
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options

Loss = load_loss("classify", "cross_entropy")


def split(counts, balance=0.0):
    names, labels = tuple("abcdef"[: len(counts)]), np.repeat(np.arange(len(counts)), counts)
    inventory = Inventory(len(labels), str, names, labels=labels)
    return SimpleNamespace(inventory=lambda deep: inventory, settings=SimpleNamespace(balance=balance))


def balanced(counts, classes, **keys):
    task, lines = resolve_class_weights(Loss(class_weights="balanced"), split(counts, **keys), classes)
    return task.class_weights, lines


def test_values_and_the_line_about_them():
    weights, lines = balanced([6, 3, 1], 3)
    assert weights == pytest.approx((10 / 18, 10 / 9, 10 / 3), rel=1e-15)  # samples / (classes * samples of the class)
    assert np.dot(weights, [6, 3, 1]) == pytest.approx(10)
    assert lines == ("task.class_weights: balanced: 3.33 (c) to 0.556 (a)",)


def test_outputs_without_samples_have_weight_1_and_do_not_count():
    weights, lines = balanced([6, 0, 2], 5)
    assert weights == pytest.approx((8 / 12, 1, 8 / 4, 1, 1)) and lines[0].endswith("2 (c) to 0.667 (a)")


def test_classes_that_are_balanced_are_weighted_by_what_is_left():
    weights, _ = balanced([9, 1], 2, balance=0.5)  # shown 7.5 and 2.5 times
    assert weights == pytest.approx((10 / 15, 10 / 5))
    assert balanced([9, 1], 2, balance=1.0)[0] == pytest.approx((1, 1))


def test_numbers_and_losses_without_weights_stay():
    for task in (Loss(), Loss(class_weights=(1.0, 2.0)), load_loss("classify", "binary_cross_entropy")()):
        assert resolve_class_weights(task, split([1, 1]), 2) == (task, ())


@pytest.mark.parametrize(
    "given, message",
    [
        ("[1, 2]", r"task.class_weights: 2 weights for 8 classes; give one for each, in order"),
        ("balanced", "task.class_weights: balanced weights need .*, which this data set does not know; give a weight"),
        ("even", "task.class_weights: expected a list of numbers, balanced or null, got 'even'"),
        ("[1, -1]", "task.class_weights: must be finite numbers"),
    ],
)
def test_mistakes_are_told_before_training(given, message):
    changes = ["data.name=synthetic", "data.kind=image", "data.size=32", "data.num_classes=8", "data.workers=0"]
    with pytest.raises(UserError, match=message):
        request = resolve_recipe(
            Options(str(CONFIGS / "resnet50_demo.yaml"), [*changes, f"task.class_weights={given}"])
        )
        assemble(request, join(request, {}))


def test_another_loss_names_the_one_that_has_weights():
    changes = ["task.loss=binary_cross_entropy", "task.class_weights=balanced"]
    with pytest.raises(UserError, match=r"task.class_weights.*task.loss=cross_entropy"):
        resolve_recipe(Options(str(CONFIGS / "resnet50_demo.yaml"), changes))


def losses(clips, folder, **changes):
    ran = run_here(
        command(
            clips, out=folder, train__epochs=1, optim__warmup="0 epochs", framework="torch", device="cpu", **changes
        )
    )
    assert ran.returncode == 0, ran.stderr
    return [event["loss"] for event in events(folder) if event["event"] == "train"], ran.stdout + ran.stderr


def test_runs(tmp_path):
    """Of clips with as many of each class: weights of 1 change nothing, others do, and so does another order."""
    pytest.importorskip("torch")
    clips = str(tmp_path / "clips")
    plain, _ = losses(clips, tmp_path / "plain")
    even, printed = losses(clips, tmp_path / "even", task__class_weights="balanced")
    assert len(plain) == 4 and even == pytest.approx(plain, rel=1e-5)
    assert "task.class_weights: balanced: 1 (" in printed
    listed = os.path.join(clips, "train.list")
    with open(listed, encoding="utf-8") as file:
        rows = file.read().splitlines()
    few = [row for row in rows if not row.endswith(" 1")] + [row for row in rows if row.endswith(" 1")][:1]
    (tmp_path / "few.list").write_text("\n".join(few) + "\n")
    uneven, _ = losses(clips, tmp_path / "uneven", data__train_list=tmp_path / "few.list")
    weighted, printed = losses(
        clips, tmp_path / "weighted", data__train_list=tmp_path / "few.list", task__class_weights="balanced"
    )
    assert "task.class_weights: balanced: 1.88 (" in printed and weighted != pytest.approx(uneven, rel=1e-3)
    drawn, printed = losses(clips, tmp_path / "drawn", data__train_list=tmp_path / "few.list", data__balance=1)
    assert "data.balance: by class" in printed and drawn != pytest.approx(uneven, rel=1e-3)
