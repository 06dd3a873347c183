"""Transforms of albumentations: the library's own results for the same seed, and what is refused before training."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.data.loaders.sets import scene_set
from zoo.data import extras
from zoo.data.augment import ALL, Target, albumentations
from zoo.data.augment.albumentations import PREFIX
from zoo.data.augment.steps import Step, Steps, check, on_frames
from zoo.data.batch import IGNORE_INDEX
from zoo.data.datasets import kinetics
from zoo.data.errors import UserError
from zoo.data.fields import SettingError

library = pytest.importorskip("albumentations")
TARGET = Target(40, 32, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
SIZE = (32, 40)
DROPOUT = "CoarseDropout"  # leaves the mask as it is
TRANSFORMS = [
    {"CLAHE": {"p": 1, "clip_limit": [1, 8]}},
    {"RandomBrightnessContrast": {"p": 0.5}},
    {"Affine": {"p": 1, "rotate": [-40, 40]}},
    {"ElasticTransform": {"p": 0.7, "alpha": 50}},
    {"GridDistortion": {"p": 1}},
    {DROPOUT: {"p": 1}},
    {"Perspective": {"p": 1}},
]


def step_of(transform: dict) -> Step:
    ((name, options),) = transform.items()
    (step,) = Steps.parse([{PREFIX + name: options}]).steps
    return step


def images(count: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, (count, 32, 40, 3), np.uint8)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: next(iter(transform)))
def test_an_image_and_its_mask_are_those_of_the_library(transform):
    ((name, options),) = transform.items()
    step, changed = step_of(transform), 0
    for number, image in enumerate(images(6)):
        label = np.ascontiguousarray(image[..., 0] % 19)
        drawn = step.augmentation.function(TARGET, np.random.default_rng(number), **dict(step.options))
        own_fill = {"fill_mask": IGNORE_INDEX} if name not in ("CLAHE", "RandomBrightnessContrast", DROPOUT) else {}
        theirs = getattr(library, name)(**options, **own_fill)
        theirs.set_random_seed(int(np.random.default_rng(number).integers(2**32)))
        expected = theirs(image=image, mask=label)
        mask = drawn.label(label) if drawn.label else label
        assert np.array_equal(drawn.image(image), expected["image"]) and np.array_equal(mask, expected["mask"])
        changed += not np.array_equal(expected["image"], image)
    assert changed


def test_all_frames_move_alike_in_any_thread():
    step = step_of({"Affine": {"p": 1, "rotate": [-40, 40]}})

    def augmented(number: int) -> np.ndarray:
        drawn = step.augmentation.function(TARGET, np.random.default_rng(number), **dict(step.options))
        return on_frames(np.repeat(images(1), 3, 0), [drawn])

    alone = [augmented(number) for number in range(40)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(augmented, range(40)))
    assert all(map(np.array_equal, alone, together))
    assert all(np.array_equal(frames[0], frames[2]) for frames in alone)
    assert len({frames.tobytes() for frames in alone}) == 40


def test_uncovered_pixels_have_no_label():
    step = step_of({"Rotate": {"p": 1, "limit": [45, 45]}})
    drawn = step.augmentation.function(TARGET, np.random.default_rng(0), **dict(step.options))
    assert drawn.label(np.full((32, 40), 3, np.uint8))[0, 0] == IGNORE_INDEX
    given = step_of({"Rotate": {"p": 1, "limit": [45, 45], "fill_mask": 7}})
    drawn = given.augmentation.function(TARGET, np.random.default_rng(0), **dict(given.options))
    assert drawn.label(np.full((32, 40), 3, np.uint8))[0, 0] == 7


def test_a_data_set_is_augmented_by_them(tmp_path):
    plain, _ = scene_set(tmp_path, augment=Steps.parse([]))
    flipped, _ = scene_set(tmp_path, augment=Steps.parse([{"albumentations.VerticalFlip": {"p": 1}}]))
    before, after = (split.sample(0, np.random.default_rng(5)) for split in (plain, flipped))
    assert all(np.array_equal(before[name][::-1], after[name]) for name in ("image", "label"))


@pytest.mark.parametrize(
    "value, message",
    [
        ("albumentations.CLAH", "has no transform 'CLAH'; did you mean CLAHE?"),
        ("albumentations.OneOf", "has no transform 'OneOf'"),
        ("albumentations.MaskDropout", "it needs mask, which a sample has not"),
        ("albumentations.RandomCrop", "height Field required"),
        ({"albumentations.CLAHE": {"clip": 3}}, "CLAHE: clip: unknown option; there are: clip_limit"),
        ({"albumentations.CLAHE": {"p": 7}}, "p Input should be less than or equal to 1"),
        ({"albumentations.Affine": {"scale": {"x": 1}}}, "scale: must be a number, a text or a list"),
        ({"albumentations.CLAHE": 3}, "expected options such as"),
        ({"albumentations.PixelDropout": {"mask_drop_value": 255}}, "drops other pixels of the mask than of the image"),
        ({"albumentations.Rotate": {"mask_interpolation": 1}}, "mixes the numbers of classes"),
    ],
)
def test_what_cannot_be_used_is_refused(value, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        Steps.parse([value])


def test_mirrors_are_refused_where_a_mirror_image_has_another_class():
    check(Steps.parse(["albumentations.HorizontalFlip"]), "clip", flip=True, size=SIZE)
    with pytest.raises(ValueError, match="albumentations.HorizontalFlip mirrors, which data.flip=false rules out"):
        check(Steps.parse(["albumentations.HorizontalFlip"]), "clip", flip=False, size=SIZE)
    with pytest.raises(ValueError, match="data.flip_pairs swaps labels for horizontal_flip"):
        kinetics.Settings(augment=Steps.parse(["albumentations.HorizontalFlip"]), flip_pairs=((0, 1),))


def test_faces_are_not_moved():
    check(Steps.parse(["albumentations.CLAHE"]), "face", flip=True, size=SIZE)
    with pytest.raises(ValueError, match="Affine is not for kind face"):
        check(Steps.parse(["albumentations.Affine"]), "face", flip=True, size=SIZE)


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("Resize", {"height": 8, "width": 8}, "turns uint8 32 x 40 x 3 into uint8 8 x 8 x 3"),
        ("ToFloat", {"p": 1}, "into float32"),
        ("Crop", {"p": 1}, "Crop fails on 32 x 40 x 3: ValueError"),
    ],
)
def test_another_size_or_type_is_an_error(name, options, message):
    step = step_of({name: options})
    drawn = step.augmentation.function(TARGET, np.random.default_rng(0), **dict(step.options))
    with pytest.raises(UserError, match=message):
        drawn.image(images(1)[0])


@pytest.mark.parametrize(
    "step, kind, message",
    [
        ({"Resize": {"height": 8, "width": 8, "p": 0.001}}, "image", "turns uint8 32 x 40 x 3 into uint8 8 x 8 x 3"),
        ({"D4": {"p": 0.001}}, "image", "turns uint8 32 x 40 x 3 into uint8 40 x 32 x 3"),
        ({"ToFloat": {}}, "face", "into float32"),
        ({"ToGray": {"num_output_channels": 1}}, "image", "into uint8 32 x 40"),
        ({"Crop": {}}, "clip", "Crop fails on 32 x 40 x 3: ValueError"),
        ({"BBoxSafeRandomCrop": {}}, "image", "BBoxSafeRandomCrop fails"),
        (
            {"ConstrainedCoarseDropout": {"mask_indices": [1], "fill_mask": 255, "num_holes_range": [2, 4]}},
            "scene",
            "looks at the mask",
        ),
    ],
)
def test_a_transform_is_tried_out_before_a_run(step, kind, message):
    with pytest.raises(SettingError, match=message):
        check(Steps((step_of(step),)), kind, flip=True, size=SIZE)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: next(iter(transform)))
def test_those_that_suit_pass(transform):
    check(Steps((step_of(transform),)), "scene", flip=True, size=SIZE)


def test_only_training_needs_the_library(tmp_path, monkeypatch):
    """What was trained with it predicts without it; a sample that it should change is an error with the command."""
    monkeypatch.setattr(extras, "is_installed", lambda package: package != "albumentations")
    albumentations._library.cache_clear()
    train, val = scene_set(tmp_path, augment=Steps.parse([{"albumentations.CLAHE": {"p": 1}}]))
    assert val.sample(0, np.random.default_rng(0))["image"].any()
    with pytest.raises(extras.NotInstalled, match="albumentations is not installed here: pip install"):
        train.sample(0, np.random.default_rng(0))


def test_the_list_comes_back_as_it_was():
    value = [{"albumentations.CLAHE": {"clip_limit": [1, 8], "p": 0.3}}, "horizontal_flip"]
    steps = Steps.parse(value)
    assert steps.plain() == value and hash(steps)
    assert pickle.loads(pickle.dumps(steps.steps[0].augmentation)).kinds == ALL  # for reading processes
