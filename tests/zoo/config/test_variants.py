"""Sections whose keys depend on one of their own: those of `task:` on `task.loss`, of `optim:` on `optim.schedule`."""

import pytest

from tests.zoo.config.recipe_files import build, message_of, write
from zoo import optim
from zoo.config import loader
from zoo.optim import load_settings
from zoo.run.cli import FIND

SEGMENT = """\
model: {name: deeplabv3plus}
data: {name: streets}
task:
  ohem_kept: 100
  flip: true
train: {epochs: 1}
"""


def test_the_loss_decides_the_keys(tmp_path):
    config, resolved = build(tmp_path, SEGMENT.replace("ohem_kept: 100", "loss: focal\n  gamma: 3"))
    assert (config.task.loss, config.task.gamma, config.task.alpha) == ("focal", 3.0, 0.5)
    assert "task.ohem_kept" not in resolved and resolved["task.alpha"].origin == "default"
    usual, resolved = build(tmp_path, SEGMENT)
    assert (usual.task.loss, usual.task.ohem_kept, resolved["task.loss"].origin) == ("cross_entropy", 100, "default")


def test_a_rendered_recipe_is_read_again(tmp_path):
    config, resolved = build(tmp_path, SEGMENT.replace("ohem_kept: 100", "loss: dice\n  eps: 0.5"))
    again, _ = loader.build(loader.read(write(tmp_path, loader.render(resolved), "again.yaml")), FIND)
    assert again == config and again.task.eps == 0.5


def test_another_loss_leaves_out_the_keys_it_lacks(tmp_path):
    entries = loader.merge(loader.read(write(tmp_path, SEGMENT)), loader.overrides(["task.loss=lovasz"]))
    config, resolved = loader.build(entries, FIND)
    assert config.task.classes == "present" and config.task.flip and "task.ohem_kept" not in resolved
    same = loader.merge(loader.read(write(tmp_path, SEGMENT)), loader.overrides(["task.loss=cross_entropy"]))
    assert loader.build(same, FIND)[0].task.ohem_kept == 100


def test_a_key_of_another_loss_is_refused(tmp_path):
    def message(*changes):
        return message_of(build, tmp_path, SEGMENT, *changes)

    assert message("task.gamma=2") == (
        "-o task.gamma: unknown key for model.name=deeplabv3plus; it belongs to task.loss=focal"
    )
    assert message("task.sum_classes=true") == (
        "-o task.sum_classes: unknown key for model.name=deeplabv3plus; it belongs to losses of the task classify"
    )
    for loss in ("dice", "focal", "lovasz"):  # these have no distribution as their target
        changes = f"task.loss={loss}", "task.label_smoothing=0.1"
        text = message_of(build, tmp_path, SEGMENT.replace("  ohem_kept: 100\n", ""), *changes)
        assert "-o task.label_smoothing: unknown key" in text and "it belongs to task.loss=cross_entropy" in text
    text = message("task.loss=dice")  # in the same recipe as ohem_kept, not instead of another loss
    assert "r.yaml:4: task.ohem_kept: unknown key for model.name=deeplabv3plus, task.loss=dice" in text
    assert "it belongs to task.loss=cross_entropy" in text
    assert "did you mean task.ohem_kept?" in message("task.ohem_kep=3")
    assert message("task.loss=focl").startswith("-o task.loss: the task segment has no loss 'focl'")
    assert "-o task.ohem_kept: must be at least 1" in message("task.ohem_kept=0")


ONE_CYCLE = (
    "model: {name: tsm}\ndata: {name: kinetics}\ntrain: {epochs: 1}\noptim:\n  schedule: one_cycle\n  pct_start: 0.5\n"
)


def test_keys_of_a_schedule_and_of_an_optimizer(tmp_path):
    config, resolved = build(tmp_path, ONE_CYCLE, "optim.name=adamw")
    assert (config.optim.name, config.optim.pct_start, config.optim.div_factor) == ("adamw", 0.5, 25.0)
    again, _ = loader.build(loader.read(write(tmp_path, loader.render(resolved), "again.yaml")), FIND)
    assert again == config


@pytest.mark.parametrize(
    "change, message",
    [
        ("optim.schedule=cosin", "-o optim.schedule: there is no 'cosin'; there are: constant, cosine"),
        ("optim.name=adam", "-o optim.name: there is no optimizer 'adam'; did you mean adamw?"),
        ("optim.pct_start=1", "-o optim.pct_start: must be above 0"),
        ("optim.final_div_factor=0.5", "-o optim.final_div_factor: must be at least 1"),
        ("optim.min_lr=0.01", "-o optim.min_lr: the schedule one_cycle has none; set it to 0"),
    ],
)
def test_what_is_wrong_with_a_schedule(tmp_path, change, message):
    assert message in message_of(build, tmp_path, ONE_CYCLE, change)


@pytest.mark.parametrize(
    "name, key, owner", [("adamw", "momentum", "sgd"), ("sgd", "beta1", "adamw"), ("lamb", "nesterov", None)]
)
def test_keys_of_other_optimizers(name, key, owner):
    assert optim.owner(load_settings(name), key) == (f"optim.name={owner}" if owner else "")
