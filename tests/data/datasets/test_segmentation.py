"""Samples of images with masks: upstream's recorded results for upstream's random numbers, and all file formats."""

import math

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.helpers.draws import GivenDraws
from tests.helpers.paths import GOLDEN
from zoo.data.augment.steps import Pipeline
from zoo.data.batch import IMAGENET_MEAN, IMAGENET_STD
from zoo.data.datasets import segmentation
from zoo.data.datasets.segmentation import SegmentationSettings, SegmentationSplit
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import masks
from zoo.data.stream import open_evaluation

CLASSES = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "mmseg_transforms.npz") as file:
        return {name: file[name] for name in file.files}


def settings(**keys):
    return SegmentationSettings(**{"workers": 0, "crop": (12, 18), **keys})


def write_pair(root, size=(20, 30), number=0, name=None, image=None, **keys):
    """Write an image whose red is 60 times the class, and its mask, and return their paths."""
    label = np.random.default_rng(number).integers(0, 4, (size[0] // 5, size[1] // 5), dtype=np.uint8)
    label = cv2.resize(label, size[::-1], interpolation=cv2.INTER_NEAREST)
    pixels = np.stack([60 * label, label * 0 + number, label * 0], -1)
    pair = f"images/{name or f'{number:03d}.png'}", f"masks/{number:03d}.png"
    for path, array, options in zip(pair, (pixels if image is None else image, label), (keys, {})):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (array if isinstance(array, Image.Image) else Image.fromarray(array)).save(root / path, **options)
    return pair


def split(root, pairs, training=True, **keys):
    return SegmentationSplit(settings(root=str(root), **keys), pairs, CLASSES, masks.class_indices(4), training)


def read(root, pair):
    return np.asarray(Image.open(root / pair[0])), np.asarray(Image.open(root / pair[1]))


def augment(image, label, s, rng):
    return segmentation.augment(image, label, s, rng, Pipeline(s, segmentation.standard_steps(s)))


def test_sizes_of_scaled_images_equal_upstream(golden):
    for height, width, base_height, base_width, ratio, *expected in golden["sizes"]:
        size = segmentation.fit_size((int(height), int(width)), (int(base_height), int(base_width)), ratio)
        assert size == tuple(expected), (height, width, base_height, base_width, ratio)
    assert len(golden["sizes"]) == 40


def test_crops_and_redraws_equal_upstream(golden):
    used_draws, kept = [], []
    for number, (draws, expected) in enumerate(zip(golden["crop/draws"], golden["crop/corners"])):
        rng = GivenDraws(*draws)
        label = golden["crop/labels"][number // 2]
        assert segmentation.random_corner(label, (6, 8), 0.75, rng) == tuple(expected)
        used = 11 - len(rng.draws)
        assert np.all(draws[:used] >= 0) and np.all(draws[used:] == -1)  # as many draws as upstream made
        used_draws.append(used)
        kept.append(segmentation.random_corner(label, (6, 8), 1.0, GivenDraws(*draws)) == tuple(draws[0]))
    assert {1, 2, 11} <= set(used_draws) and all(kept)  # max_share 1: the first draw is kept


def test_training_samples_equal_upstream(golden):
    padded = 0
    for number in range(4):
        ratio, flip, brightness, contrast, first, saturation, hue = golden[f"sample/{number}/draws"]
        corners = [corner for corner in golden[f"sample/{number}/corners"] if corner[0] >= 0]
        steps = []
        for value in (brightness, contrast, saturation, hue):
            steps += [0.9] if math.isnan(value) else [0.1, value]
        rng = GivenDraws(ratio, *corners, 0.1 if flip else 0.9, *steps, 0.1 if first else 0.9)
        image, label = augment(golden["sample/image"], golden["sample/label"], settings(base_size=(16, 24)), rng)
        expected = golden[f"sample/{number}/image"]
        height, width = expected.shape[:2]
        assert rng.draws == [] and np.array_equal(image[:height, :width], expected)
        assert np.array_equal(label, golden[f"sample/{number}/label"])
        assert image.shape == (12, 18, 3) and label.shape == (12, 18) and image.dtype == label.dtype == np.uint8
        if (height, width) != (12, 18):
            padded += 1
            assert (image[height:] == [124, 116, 104]).all() and (image[:, width:] == [124, 116, 104]).all()
        if number == golden["sample/normalised_of"]:
            normalized = (image / 255 - IMAGENET_MEAN) / IMAGENET_STD
            # Upstream pads with 0 after the normalization; our padding byte can be half a step away from that.
            assert np.abs(normalized[:height, :width] - golden["sample/normalised"][:height, :width]).max() < 1e-5
            assert np.abs(normalized - golden["sample/normalised"]).max() <= 0.5 / 255 / min(IMAGENET_STD)
    assert padded == 2


def test_images_of_an_evaluation_equal_upstream(golden):
    for number in range(2):
        base = tuple(int(side) for side in golden[f"eval/{number}/base"])
        resized = segmentation.resize_to_fit(golden["sample/image"][:13, :21], base, 1.0)
        assert np.array_equal(resized, golden[f"eval/{number}"]) and resized.shape[:2] not in (base, (13, 21))


def test_image_and_label_get_the_same_geometry(tmp_path):
    pairs = [write_pair(tmp_path, number=number) for number in range(3)]
    data, mirrored = split(tmp_path, pairs, scale=(1.0, 1.0), photometric=False), 0
    for seed in range(30):
        sample = data.sample(seed % 3, np.random.default_rng(seed))
        assert np.array_equal(sample["image"][..., 0], 60 * sample["label"])
        image, _ = read(tmp_path, pairs[seed % 3])
        windows = np.lib.stride_tricks.sliding_window_view(image[..., 0], (12, 18)).reshape(-1, 12, 18)
        unflipped, flipped = (
            (windows == view).all((1, 2)).any() for view in (sample["image"][..., 0], sample["image"][:, ::-1, 0])
        )
        assert unflipped or flipped
        mirrored += flipped and not unflipped
    assert 8 <= mirrored <= 22


def test_labels_are_never_interpolated(tmp_path):
    pair, seen = write_pair(tmp_path), set()
    label = masks.read_labels(str(tmp_path / pair[1]), masks.class_indices(4))
    label[label == 1], label[label == 2] = 3, 255
    for seed in range(20):
        _, label_crop = augment(np.zeros((20, 30, 3), np.uint8), label, settings(), np.random.default_rng(seed))
        seen |= set(np.unique(label_crop))
    assert seen == {0, 3, 255}


def test_every_corner_is_drawn_and_equally_often():
    rng = np.random.default_rng(0)
    corners = [segmentation.random_corner(np.zeros((8, 9), np.uint8), (6, 6), 1.0, rng) for _ in range(2400)]
    counts = np.zeros((3, 4))
    for corner in corners:
        counts[corner] += 1
    assert counts.min() > 150
    assert segmentation.random_corner(np.zeros((3, 9), np.uint8), (6, 9), 0.75, rng) == (0, 0)


def test_ignored_pixels_do_not_count_for_the_share_of_a_class():
    label = np.full((8, 16), 255, np.uint8)
    label[0, 0], label[0, 1] = 1, 2  # two classes, half each, among ignored pixels
    rng = GivenDraws((0, 0))
    assert segmentation.random_corner(label, (8, 8), 0.75, rng) == (0, 0) and rng.draws == []
    label[0, 1] = 1
    rng = GivenDraws((0, 0), *[(0, 8)] * 9, (0, 3))
    assert segmentation.random_corner(label, (8, 8), 0.75, rng) == (0, 3) and rng.draws == []


def test_an_evaluation_split_has_whole_images_at_all_scales(tmp_path):
    pairs = [write_pair(tmp_path), write_pair(tmp_path, size=(40, 25), number=1)]
    data = split(tmp_path, pairs, False, base_size=(30, 60), eval_scales=(1.0, 0.5, 1.75))
    assert [(field.name, field.shape, field.missing) for field in data.fields] == [
        ("image", (30, 45, 3), 0),
        ("image_0.5", (15, 23, 3), 0),
        ("image_1.75", (52, 78, 3), 0),
        ("label", (20, 30), 255),
    ]
    assert all(field.mean and field.std for field in data.fields[:-1])
    sample = data.sample(0, None)
    assert list(sample) == ["image", "image_0.5", "image_1.75", "label"]
    assert [array.shape for array in sample.values()] == [field.shape for field in data.fields]
    assert np.array_equal(sample["label"], read(tmp_path, pairs[0])[1])
    assert np.array_equal(sample["image"], cv2.resize(read(tmp_path, pairs[0])[0], (45, 30)))
    portrait = data.sample(1, None)  # the long side of the base size is fitted to the height
    assert portrait["image"].shape == (48, 30, 3) and portrait["label"].shape == (40, 25)


def test_without_a_base_size_images_keep_their_size(tmp_path):
    pairs = [write_pair(tmp_path), write_pair(tmp_path, size=(40, 25), number=1)]
    data = split(tmp_path, pairs, False, eval_scales=(1.0, 0.5))
    for index in range(2):
        sample, (image, label) = data.sample(index, None), read(tmp_path, pairs[index])
        assert np.array_equal(sample["image"], image) and np.array_equal(sample["label"], label)
        assert sample["image_0.5"].shape == ((10, 15, 3), (20, 13, 3))[index]  # times the scale, half a pixel rounds up
    batches = [batch for batch, _ in open_evaluation(data, 1, 1)]
    assert [batch["label"].shape for batch in batches] == [(1, 20, 30), (1, 40, 25)]


def test_an_unreadable_first_image_is_named(tmp_path):
    pair = write_pair(tmp_path)
    (tmp_path / pair[0]).write_bytes(b"nothing")
    with pytest.raises(UserError, match="images/000.png: not an image.*every image"):
        split(tmp_path, [pair], False)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_exif_orientation_does_not_rotate_the_image_against_its_mask(orientation, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = np.zeros((20, 30, 3), np.uint8)
    pixels[:10, :15] = 255
    pair = write_pair(tmp_path, name="x.jpg", image=pixels, exif=exif, quality=98)
    data = split(tmp_path, [pair], False)
    assert data.fields[0].shape == (20, 30, 3)
    assert np.abs(data.sample(0, None)["image"].astype(int) - pixels).max() < 40


def test_different_sizes_and_illegal_labels_are_bad_samples(tmp_path):
    pairs = [write_pair(tmp_path), write_pair(tmp_path, number=1), write_pair(tmp_path, number=2)]
    write_pair(tmp_path / "other", size=(10, 30))
    (tmp_path / "other" / pairs[0][1]).replace(tmp_path / pairs[0][1])
    Image.fromarray(np.full((20, 30), 4, np.uint8)).save(tmp_path / pairs[1][1])
    for training in (True, False):
        data = split(tmp_path, pairs, training)
        with pytest.raises(BadSample, match="image has 30 x 20 pixels, its mask 30 x 10"):
            data.sample(0, np.random.default_rng(0))
        with pytest.raises(BadSample, match=f"^{pairs[1][1]}: holds the value 4; legal values are 0 to 3"):
            data.sample(1, np.random.default_rng(0))
        assert data.sample(2, np.random.default_rng(0))
