"""Data sets by name, and their settings: whatever contradicts a limit or another key names its key."""

import dataclasses
import math
from types import ModuleType

import pytest

from zoo import data
from zoo.data import fields
from zoo.data.dataset import LoaderSettings
from zoo.data.datasets import cityscapes, faces, imagenet, kinetics, synthetic
from zoo.data.demo import motion, portraits, shapes, streets
from zoo.data.errors import UserError
from zoo.data.fields import Annotated, Count, Fractions, Range, Sides


@dataclasses.dataclass
class Limited:
    count: Count | None = 1
    kind: Annotated[int, Range(low=0)] | str = 0
    scale: Fractions = (0.1, 1.0)
    sides: Sides = (2, 1)
    decay: Annotated[float, Range(low=0, high=1, open_high=True)] = 0.5


@pytest.mark.parametrize(
    "values, message",
    [
        ({}, ""),
        ({"count": None, "kind": "auto", "decay": 0.0}, ""),
        ({"count": 0}, "count: must be at least 1, got 0"),
        ({"kind": -1}, "kind: must be at least 0, got -1"),
        ({"scale": (0.0, 1.0)}, "scale: must be above 0 and at most 1"),
        ({"scale": (0.5, 0.2)}, "scale: must not decrease"),
        ({"sides": (1, 0)}, "sides: must be at least 1"),
        ({"decay": 1.0}, "decay: must be at least 0 and below 1"),
        ({"decay": math.nan}, "decay: must be"),
        ({"decay": math.inf}, "decay: must be"),
    ],
)
def test_annotations_are_checked(values, message):
    if not message:
        fields.check(Limited(**values))
        return
    with pytest.raises(ValueError) as caught:
        fields.check(Limited(**values))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "module, values, key",
    [
        (imagenet, {"size": 0}, "size"),
        (imagenet, {"eval_resize": 15, "size": 16}, "eval_resize"),
        (imagenet, {"std": (0.2, 0.0, 0.2)}, "std"),
        (imagenet, {"workers": -1}, "workers"),
        (cityscapes, {"num_classes": 256}, "num_classes"),
        (cityscapes, {"val_fraction": 0.6}, "val_fraction"),
        (cityscapes, {"eval_bad": "wrong"}, "eval_bad"),
        (cityscapes, {"scale": (2.0, 0.5)}, "scale"),
        (cityscapes, {"eval_scales": ()}, "eval_scales"),
        (cityscapes, {"eval_scales": (1.0, 0.5, 0.5)}, "eval_scales"),
        (cityscapes, {"checked_masks": 0}, "checked_masks"),
        (faces, {"num_classes": 1}, "num_classes"),
        (faces, {"val_pairs": 8}, "val_pairs"),
        (faces, {"val_pairs": 11}, "val_pairs"),
        (synthetic, {"kind": "scene", "num_classes": 256}, "num_classes"),
        (synthetic, {"kind": "face", "val_samples": 9}, "val_samples"),
        (synthetic, {"kind": "scene", "size": 4}, "size: data.kind=scene has crop and base_size"),
        (synthetic, {"kind": "image", "segments": 8}, "segments: data.kind=image has size"),
        *((synthetic, {key: value}, key) for key, value in (("cache", "/tmp"), ("checksum", "full"))),
        (synthetic, {"allow_missing_classes": True}, "allow_missing_classes"),
        (synthetic, {"loader": "dali"}, "loader"),
        *((motion, {"train_clips": count}, "train_clips") for count in (0, 12, -8)),
        (shapes, {"val_images": 12}, "val_images"),
        (streets, {"train_images": 3}, "train_images"),
        (streets, {"crop": (0, 8)}, "crop"),
        (portraits, {"size": 8}, "size"),
        (portraits, {"variation": 1.5}, "variation"),
        (portraits, {"val_identities": 2, "val_shots": 2, "val_pairs": 26}, "val_pairs"),
    ],
)
def test_impossible_values_name_their_key(module, values, key):
    with pytest.raises(ValueError, match=f"^{key}"):
        module.Settings(**values)


@pytest.mark.parametrize(
    "key, values, divided",
    [
        ("mean", (123.675, 116.28, 103.53), [0.485, 0.456, 0.406]),  # mmsegmentation's, of pixels up to 255
        ("std", (58.395, 57.12, 57.375), [0.229, 0.224, 0.225]),
        ("std", (0.2, 0.0, 0.2), None),
        ("mean", (-0.1, 0.5, 0.5), None),
    ],
)
@pytest.mark.parametrize("module", [imagenet, kinetics, cityscapes])
def test_a_normalization_of_pixels_up_to_255_is_refused(module, key, values, divided):
    with pytest.raises(ValueError) as caught:
        module.Settings(**{key: values})
    assert str(caught.value).startswith(f"{key}: must be ")
    assert str(caught.value).endswith(f"divided by 255, this is {divided}" if divided else f"got {values}")
    module.Settings(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def test_every_data_set_has_settings_and_functions():
    for name in data.names():
        module = data.find(name)
        assert isinstance(module, ModuleType) and issubclass(module.Settings, LoaderSettings)
        assert callable(module.load) and callable(module.describe)


def test_an_unknown_name():
    with pytest.raises(UserError, match="no data set 'imagnet'; there are: cityscapes, .*; did you mean imagenet"):
        data.find("imagnet")
