"""Lists of augmentations: what is accepted, what holds for every augmentation, and data.augment in the data sets."""

import pickle
import re

import numpy as np
import pytest

from tests.data.loaders.sets import face_set, frame_set, image_set, scene_set
from tests.helpers.paths import ROOT
from zoo.data.augment import ALL, Augmentation, Target, catalog, steps
from zoo.data.augment.steps import Pipeline, Steps
from zoo.data.dataset import Pending
from zoo.data.datasets import kinetics, segmentation
from zoo.data.formats.lists import LabeledPath
from zoo.data.stream import open_training
from zoo.data.transforms.geometry import Geometry

SIZE = (32, 40)


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
    (step,) = Steps.parse([{"random_cutout": {"holes": [1, 3], "size": [0.5, 0.25]}}]).steps
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
        ([{"grayscale": {"p": 1.5}}], "grayscale: p: must be from 0 to 1, got 1.5"),
        ([{"grayscale": {"p": True}}], "grayscale: p: expected a number, got True"),
        ([{"grayscale": {"p": "nan"}}], "grayscale: p: must be finite and from 0 to 1, got nan"),
        ([{"rand_augment": {"m": 31}}], "rand_augment: m: must be from 0 to 30, got 31"),
        ([{"rand_augment": {"n": 1.5}}], "rand_augment: n: expected a whole number, got 1.5"),
        ([{"rand_augment": {"fill": "white"}}], "rand_augment: fill: expected one of black, mean; got 'white'"),
        ([{"gaussian_blur": {"kernel": 4}}], "gaussian_blur: kernel: must be from 3 to 99, odd, got 4"),
        ([{"random_erasing": {"scale": 0.1}}], "random_erasing: scale: expected a list, got 0.1"),
        ([{"random_erasing": {"scale": [0.1]}}], "random_erasing: scale: expected 2 values, got 1"),
        ([{"random_erasing": {"scale": [0.0, 1]}}], "random_erasing: scale: must be above 0 and at most 1"),
        ([{"random_erasing": {"scale": [0.3, 0.2]}}], "random_erasing: scale: must not decrease"),
        ([{"multi_scale_crop": {"scales": []}}], "multi_scale_crop: scales: expected a list of one value or more"),
        (["grayscale", "random_resized_crop"], "random_resized_crop: a crop comes first, and there is one at most"),
    ],
)
def test_what_is_wrong_is_said_with_the_remedy(value, message):
    with pytest.raises(ValueError) as error:
        Steps.parse(value)
    assert str(error.value).startswith(message)


def test_options_of_a_package_need_no_range(monkeypatch):
    def fog(target, rng, *, density: float = 0.5, name: str = "", soft: bool = False):
        """Draw nothing."""

    monkeypatch.setattr(steps, "names", lambda: ["fog"])
    monkeypatch.setattr(steps, "find", lambda name: Augmentation(fog, ALL))
    (step,) = Steps.parse([{"fog": {"density": -1, "name": "sea", "soft": True}}]).steps
    assert dict(step.options) == {"density": -1.0, "name": "sea", "soft": True}
    with pytest.raises(ValueError, match="^fog: density: expected a number, got 'much'$"):
        Steps.parse([{"fog": {"density": "much"}}])


def test_kinds_and_labels_that_tell_left_from_right_are_checked():
    for kind, name in (("face", "random_rotate"), ("scene", "rand_augment"), ("image", "multi_scale_crop")):
        with pytest.raises(ValueError, match=f"augment: {name} is not for kind {kind}; there are: .*color_jitter, "):
            steps.check(Steps.parse([name]), kind, True, SIZE)
    with pytest.raises(ValueError, match=r"augment: horizontal_flip mirrors, which data\.flip=false rules out"):
        steps.check(Steps.parse(["horizontal_flip"]), "clip", False, SIZE)
    steps.check(Steps.parse(["multi_scale_crop", "horizontal_flip"]), "clip", True, SIZE)
    steps.check(None, "face", False, SIZE)


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
    (code,) = re.findall(r"^```python\n# channels.py\n(\"\"\"Colors.*?)^```", text, re.M | re.S)
    module = {}
    exec(code, module)
    assert module["KINDS"] == {"channel_shuffle": ALL}
    image = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
    target = Target(5, 4, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    shuffle = module["channel_shuffle"]
    results = {shuffle(target, np.random.default_rng(seed), p=1.0).image(image).tobytes() for seed in range(40)}
    assert len(results) == 6 and shuffle(target, np.random.default_rng(0), p=0.0) is None


PIXELS = np.random.default_rng(0).integers(0, 256, (24, 24, 3), np.uint8)
STANDARD = {  # the standard set of each kind, written out
    "image": (image_set, {}, ["random_resized_crop", "horizontal_flip"]),
    "clip": (frame_set, {}, ["multi_scale_crop", "horizontal_flip"]),
    "scene": (scene_set, {"photometric": True}, ["horizontal_flip", "photometric_distortion"]),
    "face": (face_set, {}, ["horizontal_flip"]),
}


def augmented(*steps):
    return {"augment": Steps.parse(list(steps))}


def training_arrays(make, root, **keys):
    (batch, _), *_ = list(open_training(make(root, **keys)[0], 3, 12, 0, 1))
    return batch


@pytest.mark.parametrize("kind", STANDARD)
def test_the_standard_set_written_out_gives_the_same_pixels(kind, tmp_path):
    make, keys, steps = STANDARD[kind]
    standard = training_arrays(make, tmp_path, **keys)
    written_out = training_arrays(make, tmp_path, **keys, **augmented(*steps))
    plain = training_arrays(make, tmp_path, **keys, **augmented())
    name = "video" if kind == "clip" else "image"
    for key in standard:
        np.testing.assert_array_equal(written_out[key], standard[key])
    assert not np.array_equal(plain[name], standard[name])


def test_a_list_without_a_crop_keeps_that_of_the_data_set(tmp_path):
    keys = {"scale": (0.9, 1.0), "flip": False}
    standard = training_arrays(image_set, tmp_path, **keys)
    np.testing.assert_array_equal(
        training_arrays(image_set, tmp_path, **keys, **augmented())["image"], standard["image"]
    )


def test_steps_follow_the_crop_in_their_order(tmp_path):
    steps = [{"random_erasing": {"p": 1, "scale": [0.3, 0.3]}}, {"color_jitter": {"brightness": 0.9}}]
    mean = (124, 116, 104)
    erased_last = training_arrays(image_set, tmp_path, **augmented(*reversed(steps)))["image"]
    erased_first = training_arrays(image_set, tmp_path, **augmented(*steps))["image"]
    share = (erased_last == mean).all(-1).mean((1, 2))
    assert (share > 0.25).all() and (erased_first == mean).all(-1).mean() < 0.01


def test_validation_samples_are_left_alone(tmp_path):
    _, plain = image_set(tmp_path)
    _, val = image_set(tmp_path, **augmented({"grayscale": {"p": 1}}))
    rng = np.random.default_rng
    np.testing.assert_array_equal(val.sample(0, rng(0))["image"], plain.sample(0, rng(0))["image"])
    assert val.notes == ()


def clips(frames, label=0, **keys):
    split = kinetics.ClipSplit(
        kinetics.Settings(segments=2, size=16, **keys), [LabeledPath("x", label)], ("left", "right"), True
    )
    split._read = lambda clip, pick: np.stack(frames)
    return split


@pytest.mark.parametrize(
    "steps",
    [
        ["rand_augment"],
        ["trivial_augment"],
        [{"color_jitter": {"brightness": 0.5, "hue": 0.5}}],
        [{"random_erasing": {"p": 1, "value": "noise"}}],
        [{"random_rotate": {"p": 1}}, "vertical_flip"],
        ["random_resized_crop", {"random_cutout": {"p": 1}}],
    ],
)
def test_all_frames_of_a_clip_get_the_same(steps):
    split = clips([PIXELS, PIXELS], **augmented(*steps))
    samples = [split.sample(0, np.random.default_rng(seed))["video"] for seed in range(6)]
    assert len({video.tobytes() for video in samples}) > 3
    for video in samples:
        np.testing.assert_array_equal(video[0], video[1])


def test_a_mirrored_clip_swaps_its_label_wherever_the_mirror_is_in_the_list():
    for names in (["horizontal_flip"], ["grayscale", "horizontal_flip"], ["horizontal_flip", "horizontal_flip"]):
        split = clips([PIXELS, PIXELS], flip_pairs=((0, 1),), **augmented("multi_scale_crop", *names))
        unchanged = clips([PIXELS, PIXELS], **augmented("multi_scale_crop", *[s for s in names if s == "grayscale"]))
        labels = []
        for seed in range(12):
            sample, other = (one.sample(0, np.random.default_rng(seed)) for one in (split, unchanged))
            mirrored = not np.array_equal(sample["video"], other["video"])
            assert sample["label"] == mirrored
            labels.append(int(sample["label"]))
        assert set(labels) == {0, 1}


@pytest.mark.parametrize(
    "steps, outcomes",
    [(["vertical_flip", "horizontal_flip"], 4), ([{"random_rotate": {"p": 1, "degrees": [90, 90]}}], 1)],
)
def test_images_and_masks_of_scenes_move_together(steps, outcomes):
    """An image whose gray value is its label's stays one."""
    label = np.random.default_rng(1).integers(0, 3, (6, 6)).astype(np.uint8).repeat(4, 0).repeat(4, 1)
    image = np.repeat(label[..., None] * 50, 3, -1)
    settings = segmentation.SegmentationSettings(crop=(24, 24), scale=(1.0, 1.0), max_share=1.0, **augmented(*steps))
    results = set()
    for seed in range(12):
        pipeline = Pipeline(settings, Steps(()))
        moved, mask = segmentation.augment(image, label, settings, np.random.default_rng(seed), pipeline)
        labelled = mask != 255
        np.testing.assert_array_equal(moved[labelled][:, 0], mask[labelled] * 50)
        assert labelled.mean() > 0.9
        results.add(mask.tobytes())
    assert len(results) == outcomes and results != {label.tobytes()}


def test_augmented_scenes_are_padded_last(tmp_path):
    steps = augmented({"random_cutout": {"p": 1, "size": [1, 1], "label": "ignore"}}, "photometric_distortion")
    batch = training_arrays(scene_set, tmp_path, crop=(200, 220), scale=(1.0, 1.0), **steps)
    assert (batch["image"][:, 64:] == (124, 116, 104)).all() and (batch["label"][:, 64:] == 255).all()


def test_dali_decodes_where_a_geometry_is_all(tmp_path):
    rng = lambda: np.random.default_rng(1)  # noqa: E731
    for make, name in ((image_set, "image"), (frame_set, "video"), (scene_set, "image"), (face_set, "image")):
        flips, _ = make(tmp_path / name / make.__name__, **augmented("horizontal_flip"))
        others, _ = make(tmp_path / name / make.__name__, **augmented("horizontal_flip", "grayscale"))
        assert isinstance(flips.plan(0, rng())[name], Pending)
        np.testing.assert_array_equal(others.plan(0, rng())[name], others.sample(0, rng())[name])


def test_the_start_of_a_run_says_what_replaces_the_standard_set(tmp_path):
    train, _ = image_set(tmp_path, **augmented("horizontal_flip", {"rand_augment": {"m": 5}}))
    note = "data.augment: in place of the standard augmentations: horizontal_flip, rand_augment(m=5)"
    assert train.notes == (note,)
    train, _ = image_set(tmp_path, loader="dali", **augmented("horizontal_flip", {"rand_augment": {"m": 5}}))
    assert train.notes == (f"{note}; the reference loader reads the training samples, since DALI does not augment",)
    train, _ = image_set(tmp_path, loader="dali", **augmented("horizontal_flip"))
    assert "loader" not in train.notes[0]
