"""Lists of augmentations: what is accepted, what messages say, and what holds for every augmentation."""

import pickle
import re

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from zoo.data.augment import ALL, Target, catalog, steps
from zoo.data.augment.steps import Steps
from zoo.data.transforms.geometry import Geometry


def test_a_list_comes_back_as_it_was():
    value = [
        {"random_resized_crop": {"scale": [0.5, 1.0]}},
        "horizontal_flip",
        {"rand_augment": {"n": 2, "interpolation": "bilinear"}},
    ]
    parsed = Steps.parse(value)
    assert parsed.plain() == value and Steps.parse(parsed.plain()) == parsed and hash(parsed)
    assert [str(step) for step in parsed.steps][1:] == ["horizontal_flip", "rand_augment(interpolation=bilinear, n=2)"]
    assert Steps.parse([]) == Steps(()) and Steps.parse([{"grayscale": None}]) == Steps.parse(["grayscale"])


def test_numbers_are_converted():
    assert Steps.parse([{"random_erasing": {"p": 1}}]) == Steps.parse([{"random_erasing": {"p": "1e0"}}])
    (step,) = Steps.parse([{"random_cutout": {"holes": [1, 3.0], "size": [0.5, 0.25]}}]).steps
    assert dict(step.options) == {"holes": (1, 3), "size": (0.5, 0.25)}


@pytest.mark.parametrize(
    "value, message",
    [
        ("grayscale", "expected a list such as"),
        ([3], "expected a name, or a name with its options"),
        ([{"grayscale": {}, "rand_augment": {}}], "expected a name, or a name with its options"),
        (["rand_augmentation"], "there is no augmentation 'rand_augmentation'; there are: color_jitter, "),
        ([{"grayscale": 0.1}], "grayscale: expected options such as"),
        (
            [{"random_erasing": {"scales": [0.1, 0.2]}}],
            "random_erasing: scales: unknown option; there are: p, scale, ratio, value; did you mean scale?",
        ),
        ([{"photometric_distortion": {"p": 1}}], "photometric_distortion: p: unknown option; there are none"),
        ([{"grayscale": {"p": 1.5}}], "grayscale: p: must be a number from 0 to 1, got 1.5"),
        ([{"grayscale": {"p": True}}], "grayscale: p: must be a number from 0 to 1, got True"),
        ([{"grayscale": {"p": ".nan"}}], "grayscale: p: must be a number"),
        ([{"rand_augment": {"m": 31}}], "rand_augment: m: must be a whole number from 0 to 30, got 31"),
        ([{"rand_augment": {"n": 1.5}}], "rand_augment: n: must be a whole number from 1 to 14, got 1.5"),
        ([{"rand_augment": {"fill": "white"}}], "rand_augment: fill: must be black or mean, got 'white'"),
        ([{"gaussian_blur": {"kernel": 4}}], "gaussian_blur: kernel: must be a whole number from 3 to 99, odd, got 4"),
        ([{"random_erasing": {"scale": 0.1}}], "random_erasing: scale: must be a list of numbers, got 0.1"),
        ([{"random_erasing": {"scale": [0.1]}}], "random_erasing: scale: must be 2 numbers, got"),
        ([{"random_erasing": {"scale": [0.0, 1]}}], "random_erasing: scale: must be a number above 0 and at most 1"),
        ([{"random_erasing": {"scale": [0.3, 0.2]}}], "random_erasing: scale: must not decrease"),
        (["grayscale", "random_resized_crop"], "random_resized_crop: a crop comes first, and there is one at most"),
    ],
)
def test_what_is_wrong_is_said_with_the_remedy(value, message):
    with pytest.raises(ValueError) as error:
        Steps.parse(value)
    assert str(error.value).startswith(message)


def test_kinds_and_labels_that_tell_left_from_right_are_checked():
    for kind, name in (("face", "random_rotate"), ("scene", "rand_augment"), ("image", "multi_scale_crop")):
        with pytest.raises(ValueError, match=f"augment: {name} is not for kind {kind}; there are: .*color_jitter, "):
            steps.check(Steps.parse([name]), kind, True)
    with pytest.raises(ValueError, match=r"augment: horizontal_flip mirrors, which data\.flip=false rules out"):
        steps.check(Steps.parse(["horizontal_flip"]), "clip", False)
    steps.check(Steps.parse(["multi_scale_crop", "horizontal_flip"]), "clip", True)
    steps.check(None, "face", False)


def test_faces_get_nothing_that_moves_pixels_but_a_mirror():
    unsuitable = {name for name, known in catalog().items() if "face" not in known.kinds}
    moving = {"random_rotate", "random_resized_crop", "multi_scale_crop", "vertical_flip"}
    assert unsuitable == moving | {"rand_augment", "trivial_augment"}


@pytest.mark.parametrize("name", catalog())
def test_every_augmentation_is_a_pure_function_of_the_generator(name):
    function, kinds = catalog()[name]
    assert kinds and set(kinds) <= set(ALL)
    rng = np.random.default_rng(0)
    image, mask = rng.integers(0, 256, (24, 32, 3), np.uint8), rng.integers(0, 5, (24, 32), np.uint8)
    image_before, mask_before = image.copy(), mask.copy()
    target, changed = Target(32, 24, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2)), 0
    if catalog()[name].is_crop:
        geometries = [function((100, 80), target, np.random.default_rng(seed)) for seed in (1, 1, 2)]
        assert geometries[0] == geometries[1] != geometries[2] and isinstance(geometries[0], Geometry)
        return
    for seed in range(30):
        first, second = (function(target, np.random.default_rng(seed)) for _ in range(2))
        assert (first is None) == (second is None)
        if first is None:
            continue
        result = first.image(image)
        assert result.shape == image.shape and result.dtype == np.uint8
        for _ in range(2):  # a clip's frames, and another worker's draw
            np.testing.assert_array_equal(second.image(image), result)
        assert (first.label is None) == (second.label is None)
        if first.label:
            label = first.label(mask)
            assert label.shape == mask.shape and set(np.unique(label)) <= {*range(5), 255}
        changed += not np.array_equal(result, image)
    assert changed == 0 if name == "color_jitter" else changed > 0  # whose changes are 0 by default
    np.testing.assert_array_equal(image, image_before)
    np.testing.assert_array_equal(mask, mask_before)


def test_a_list_can_be_passed_to_worker_processes():
    parsed = Steps.parse(["random_resized_crop", {"rand_augment": {"n": 3}}])
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_the_example_of_the_documentation_is_a_whole_file():
    text = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(\"\"\"Colors.*?)^```", text, re.M | re.S)
    module = {}
    exec(code, module)
    assert module["KINDS"] == {"channel_shuffle": ALL}
    image = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
    target = Target(5, 4, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    shuffle = module["channel_shuffle"]
    results = {shuffle(target, np.random.default_rng(seed), p=1.0).image(image).tobytes() for seed in range(40)}
    assert len(results) == 6 and shuffle(target, np.random.default_rng(0), p=0.0) is None
