"""Impossible values of a recipe, which name their key and origin."""

import dataclasses
import os
import re
import typing
from typing import Literal

import pytest

from tests.zoo.config.recipe_files import SMALL, build, message_of, write
from zoo import data, optim
from zoo.config import loader
from zoo.config.schema import Config, Duration, GroupRule, Optim, Train, Upstream
from zoo.data import fields
from zoo.data.datasets import kinetics, synthetic
from zoo.data.demo import motion
from zoo.data.errors import UserError
from zoo.losses import LOSSES, load_loss
from zoo.models import list_models, load_spec
from zoo.models.resnet import spec as resnet
from zoo.models.tsm import spec as tsm
from zoo.optim import sgd
from zoo.run.request import FIND
from zoo.tasks import classify


@pytest.mark.parametrize(
    "settings_class, values, key",
    [
        (Train, dict(), "epochs"),
        (Train, dict(epochs=1, steps=1), "epochs"),
        (Train, dict(epochs=0), "epochs"),
        (Train, dict(steps=-1), "steps"),
        (Train, dict(epochs=1, batch=0), "batch"),
        (Train, dict(epochs=1, keep_checkpoints=0), "keep_checkpoints"),
        (Train, dict(epochs=1, accumulate=0), "accumulate"),
        (Train, dict(epochs=1, eval_batch=0), "eval_batch"),
        (Train, dict(epochs=1, max_consecutive_skips=0), "max_consecutive_skips"),
        (Train, dict(epochs=1, log_every=Duration(0, "steps")), "log_every"),
        (Train, dict(epochs=1, eval_every=Duration(0, "epochs")), "eval_every"),
        (Train, dict(epochs=1, save_every=Duration(0, "steps")), "save_every"),
        (Train, dict(epochs=1, amp_level="O1"), "amp_level"),
        (Train, dict(epochs=1, fp16_allreduce=True, precision="fp64"), "fp16_allreduce"),
        (Train, dict(epochs=1, eval_precision="amp"), "eval_precision"),
        (Train, dict(epochs=1, tf32=True, precision="exact"), "tf32"),
        (Optim, dict(lr=-0.1), "lr"),
        (Optim, dict(lr=float("nan")), "lr"),
        (Optim, dict(lr=float("inf")), "lr"),
        (Optim, dict(gamma=-1), "gamma"),
        (Optim, dict(power=-1), "power"),
        (Optim, dict(warmup_start=-1), "warmup_start"),
        (sgd.Settings, dict(momentum=1), "momentum"),
        (sgd.Settings, dict(momentum=-0.1), "momentum"),
        (Optim, dict(base_batch=0), "base_batch"),
        (Optim, dict(loss_scale=0.0), "loss_scale"),
        (Optim, dict(loss_scale=float("inf")), "loss_scale"),
        (Optim, dict(initial_loss_scale=-1.0), "initial_loss_scale"),
        (Optim, dict(loss_scale=512.0, initial_loss_scale=512.0), "initial_loss_scale"),
        (Optim, dict(weight_decay=-1e-4), "weight_decay"),
        (Optim, dict(clip_norm=0), "clip_norm"),
        (Optim, dict(clip_norm=-1), "clip_norm"),
        (Optim, dict(clip_norm=float("nan")), "clip_norm"),
        (Optim, dict(milestones=(40, 20)), "milestones"),
        (Optim, dict(weight_decay=float("nan")), "weight_decay"),
        (resnet.Arch, dict(width=0), "width"),
        (resnet.Arch, dict(num_classes=0), "num_classes"),
        (tsm.Arch, dict(width=0), "width"),
        (tsm.Arch, dict(num_classes=-1), "num_classes"),
        (tsm.Arch, dict(shift_div=1), "shift_div"),
        (tsm.Arch, dict(dropout=1.0), "dropout"),
        (tsm.Arch, dict(dropout=-0.1), "dropout"),
        (tsm.Arch, dict(dropout=float("nan")), "dropout"),
        (tsm.Arch, dict(non_local=True, depth=18), "non_local"),
        (tsm.Arch, dict(segments=0), "segments"),
        (tsm.Arch, dict(temporal_pool=True, segments=7), "temporal_pool"),
        (classify.Settings, dict(label_smoothing=1.0), "label_smoothing"),
        (classify.Settings, dict(label_smoothing=-1), "label_smoothing"),
        (kinetics.Settings, dict(workers=-1), "workers"),
        (kinetics.Settings, dict(threads=0), "threads"),
        (kinetics.Settings, dict(max_bad=1.5), "max_bad"),
        (kinetics.Settings, dict(segments=0), "segments"),
        (kinetics.Settings, dict(size=0), "size"),
        (kinetics.Settings, dict(size=13), "size"),
        (kinetics.Settings, dict(min_frames=0), "min_frames"),
        (kinetics.Settings, dict(scales=()), "scales"),
        (kinetics.Settings, dict(scales=(1.5,)), "scales"),
        (kinetics.Settings, dict(scales=(0.0,)), "scales"),
        (kinetics.Settings, dict(sampling="dense", segments=65), "segments"),
        (kinetics.Settings, dict(eval_sampling="dense_val", segments=65), "segments"),
        (kinetics.Settings, dict(eval_size=257), "eval_size"),
        (kinetics.Settings, dict(eval_size=0), "eval_size"),
        (kinetics.Settings, dict(frame_template="{}{}"), "frame_template"),
        (kinetics.Settings, dict(frame_template="{:05d"), "frame_template"),
        (kinetics.Settings, dict(frame_template="{name}"), "frame_template"),
        (kinetics.Settings, dict(frame_template="image.jpg"), "frame_template"),
        (motion.Settings, dict(train_clips=7), "train_clips"),
        (motion.Settings, dict(val_clips=0), "val_clips"),
        (motion.Settings, dict(size=0), "size"),
    ],
)
def test_impossible_values_name_their_key(settings_class, values, key):
    with pytest.raises(ValueError, match=f"^{key}: "):
        settings_class(**values)


@pytest.mark.parametrize(
    "change, expected",
    [
        ("seed=-1", "seed: "),
        ("target=71.1", "target: "),
        ("target=0", "target: "),
        ("warmup_epochs=-1", "warmup_epochs: "),
        ("optim.momentum=1", "optim.momentum: "),
        ("model.dropout=1", "model.dropout: "),
        ("data.size=1", "data.size: "),
        ("task.label_smoothing=1", "task.label_smoothing: "),
        ("train.batch=0", "train.batch: "),
        ("target=.nan", "target: "),
    ],
)
def test_impossible_values_name_their_origin(tmp_path, change, expected):
    message = message_of(build, tmp_path, SMALL, change)
    assert message.startswith(f"-o {change.split('=')[0]}: ") and expected in message


def test_an_impossible_value_of_a_file_names_its_line(tmp_path):
    assert f"{tmp_path / 'r.yaml'}:8: optim.momentum: must be at least 0 and below 1" in message_of(
        build, tmp_path, SMALL + "optim:\n  momentum: 2\n"
    )


def test_nothing_is_written_anywhere(tmp_path):
    build(tmp_path)
    assert os.listdir(tmp_path) == ["r.yaml"]


def texts(hint):
    """Yield for each text in an annotation whether it is marked as a path or a word."""
    marks = [item for item in getattr(hint, "__metadata__", ()) if isinstance(item, fields.Text)]
    if hint is str or marks:
        yield bool(marks)
    for part in () if marks else typing.get_args(hint):
        yield from texts(part)


def settings_classes():
    """Return all classes that a section of a recipe can have."""
    return [
        *(Config, Train, Upstream, GroupRule),
        *(optim.load_settings(name) for name in optim.OPTIMIZERS),
        *(data.find(name).Settings for name in data.names()),
        *(load_spec(name).Arch for name in list_models()),
        *(load_loss(task, name) for task in LOSSES for name in LOSSES[task]),
    ]


@pytest.mark.parametrize("each", settings_classes(), ids=lambda each: f"{each.__module__}.{each.__name__}")
def test_every_key_has_a_meaning(each):
    """A short sentence, which does not repeat what the annotation says."""
    keys, meanings = [field.name for field in dataclasses.fields(each)], fields.meanings(each)
    assert [name for name in keys if name not in meanings] == []
    assert [name for name in keys if not re.fullmatch(r"[A-Z0-9].{6,190}\.", meanings[name])] == []
    assert [name for name in keys if re.search(r"[Dd]efaults? |at least \d|at most \d", meanings[name])] == []


def test_a_meaning_is_inherited_with_another_default():
    assert fields.meanings(motion.Settings)["root"] == fields.meanings(kinetics.Settings)["root"] != ""
    assert fields.meanings(synthetic.Settings)["size"] != fields.meanings(kinetics.Settings)["size"]


def test_texts_are_marked_as_paths_or_words():
    """Those without a mark count as paths, which are lost where checkpoints are pushed and pulled."""
    for each in settings_classes():
        hints = typing.get_type_hints(each, include_extras=True)
        for name in (field.name for field in dataclasses.fields(each)):
            assert all(texts(hints[name])), f"{each}.{name}: mark it as a FilePath or a Word"
    assert fields.is_path(str | None) and fields.is_path(tuple[fields.FilePath, ...])
    assert not fields.is_path(fields.Word | None) and not fields.is_path(Literal["a"] | int)


def test_settings_of_another_package_refuse_in_their_own_words(tmp_path):
    class Odd(sgd.Settings):
        def __post_init__(self):
            raise ValueError("takes odd rates: 0.1, 0.3")

    entries = loader.read(write(tmp_path, SMALL))
    with pytest.raises(UserError, match=r"^optim: takes odd rates: 0\.1, 0\.3$"):
        loader.build(entries, {**FIND, "optim": (("optim.name",), lambda name: Odd)})
