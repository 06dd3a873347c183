"""Mixup and CutMix: results of torchvision and timm for their draws, distributions, partners in the order of a run."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.data.augment.conftest import load
from tests.data.loaders.sets import image_set, needs_dali
from zoo.data import mixing, order
from zoo.data.batch import DropoutMask, Field
from zoo.data.dataset import LoaderSettings
from zoo.data.datasets import faces, imagenet, segmentation, synthetic
from zoo.data.errors import BadSample
from zoo.data.mixing import Mix
from zoo.data.stream import open_evaluation, open_training

SIZE, CLASSES = 23, 5


def settings(**keys):
    return SimpleNamespace(**{"mixup": 0.0, "cutmix": 0.0, "mix_prob": 1.0, "mix_switch": 0.5, **keys})


class Grays:
    """Sample i is an image of 8 x 6 pixels of the gray level 10 i, in class i mod 5. Some may be unreadable."""

    views, notes, classes = 1, (), tuple("abcde")

    def __init__(self, unreadable=(), **keys):
        self.settings = LoaderSettings(workers=0, threads=2, **keys)
        self.unreadable = unreadable
        self.fields = (Field("image", (6, 8, 3), "uint8"), Field("label", (), "int64"))
        self.fields += mixing.fields(self.settings, CLASSES)

    def __len__(self):
        return SIZE

    def name(self, index):
        return f"gray {index}"

    def sample(self, index, rng):
        if index in self.unreadable:
            raise BadSample("broken")
        return {"image": np.full((6, 8, 3), 10 * index, np.uint8), "label": np.asarray(index % CLASSES)}


def positions_of(dataset, batch_size, world_size=1, last=48, **keys):
    """All arrays by position of the run, over all ranks."""
    rows = {}
    for rank in range(world_size):
        stream = open_training(dataset, 7, batch_size, 0, last // (batch_size * world_size), rank, world_size, **keys)
        for number, (batch, _) in enumerate(stream):
            for row in range(batch_size):
                position = (number * world_size + rank) * batch_size + row
                rows[position] = {name: array[row].copy() for name, array in batch.items()}
    return rows


def test_mixed_pixels_and_labels_are_upstream_s():
    golden = load()
    image = golden["image"]
    other = image[::-1, ::-1]
    for number, weight in enumerate(golden["mixup/weights"]):
        result = mixing.mix(image, other, Mix(weight))
        assert result.dtype == np.uint8
        assert np.abs(result - golden[f"mixup/{number}"]).max() <= 0.5001  # rounded to bytes
        label = mixing.mix_labels(2, 0, weight, 4)
        assert label.dtype == np.float32
        np.testing.assert_allclose(label, golden[f"mixup/{number}/label"], atol=1e-7)
        np.testing.assert_allclose(label, golden["mixup/timm_labels"][number], atol=1e-7)


def test_boxes_pixels_and_labels_of_cutmix_are_upstream_s():
    golden = load()
    image = golden["image"]
    for number, (weight, x, y, *box, adjusted) in enumerate(golden["cutmix/draws"]):
        assert mixing.cut_box(weight, 20, 16, int(x), int(y)) == tuple(box)
        drawn = mixing.draw(settings(cutmix=1.0), 20, 16, Draws([0.0, 0.0], weight, [int(x), int(y)]))
        assert drawn == Mix(pytest.approx(adjusted, abs=1e-12), tuple(box))
        np.testing.assert_allclose(mixing.mix_labels(2, 0, drawn.weight, 4), golden["cutmix/labels"][number], atol=1e-7)
        if number < len(golden["cutmix/results"]):
            result = mixing.mix(image, image[::-1, ::-1], drawn)
            np.testing.assert_array_equal(result, golden["cutmix/results"][number])


class Draws:
    """A generator with given results of random, beta and integers."""

    def __init__(self, randoms, beta, integers):
        self.randoms, self.weight, self.places = randoms, beta, integers

    def random(self):
        return self.randoms.pop(0)

    def beta(self, *_):
        return self.weight

    def integers(self, _):
        return self.places.pop(0)


def test_all_frames_of_clips_get_the_same_box():
    clip, other = np.zeros((3, 6, 8, 3), np.uint8), np.full((3, 6, 8, 3), 9, np.uint8)
    mixed = mixing.mix(clip, other, Mix(0.5, (1, 2, 4, 5)))
    assert (mixed[:, 2:5, 1:4] == 9).all() and mixed.sum() == 3 * 9 * 3 * 9 and not clip.any()


@pytest.mark.parametrize("alpha", [0.2, 4.0])
def test_weights_have_the_beta_distribution(alpha):
    rng = np.random.default_rng(0)
    weights = np.array([mixing.draw(settings(mixup=alpha), 8, 6, rng).weight for _ in range(4000)])
    variance = 1 / (4 * (2 * alpha + 1))
    assert weights.mean() == pytest.approx(0.5, abs=4 * (variance / 4000) ** 0.5)
    assert weights.var() == pytest.approx(variance, rel=0.08)


def test_probabilities_of_mixing_and_of_cutmix():
    rng = np.random.default_rng(0)
    drawn = [
        mixing.draw(settings(mixup=1.0, cutmix=1.0, mix_prob=0.8, mix_switch=0.3), 80, 60, rng) for _ in range(4000)
    ]
    unmixed = sum(mix == Mix(1.0) for mix in drawn) / 4000
    cut = sum(mix.box is not None for mix in drawn) / 4000
    assert unmixed == pytest.approx(0.2, abs=0.026) and cut == pytest.approx(0.24, abs=0.028)
    only = [mixing.draw(settings(cutmix=1.0, mix_switch=0.0), 80, 60, rng) for _ in range(50)]
    assert all(mix.box is not None for mix in only)


def test_a_sample_is_mixed_with_its_neighbor_in_the_order_of_the_run():
    dataset = Grays(mixup=1.0)
    weights = []
    for position, row in positions_of(dataset, 4).items():
        (_, index), (_, partner) = (order.locate(7, SIZE, at) for at in (position, position ^ 1))
        weight = mixing.draw(dataset.settings, 8, 6, order.generator(7, "mix", position)).weight
        expected = round(10 * (index * weight + partner * (1 - weight)))
        assert np.abs(row["image"].astype(int) - expected).max() <= 1
        label = np.zeros(CLASSES)
        label[index % CLASSES] += weight
        label[partner % CLASSES] += 1 - weight
        np.testing.assert_allclose(row["soft_label"], label, atol=1e-6)
        assert row["label"] == index % CLASSES
        weights.append(weight)
    assert len(set(weights)) == 48


@pytest.mark.parametrize("batch_size, world_size", [(3, 1), (3, 2), (1, 4)])
def test_mixed_samples_depend_neither_on_ranks_nor_on_batches(batch_size, world_size):
    keys = {"mixup": 0.4, "cutmix": 1.0, "unreadable": (4, 5)}
    masks = (DropoutMask("mask", (3,), 0.5),)
    expected = positions_of(Grays(**keys, max_bad=1.0), 4, dropout_masks=masks)
    rows = positions_of(Grays(**keys, max_bad=1.0), batch_size, world_size, dropout_masks=masks)
    assert rows.keys() == expected.keys()
    for position, row in rows.items():
        assert row.keys() == expected[position].keys() == {"image", "label", "soft_label", "mask", "valid"}
        for name, array in row.items():
            np.testing.assert_array_equal(array, expected[position][name], err_msg=f"{name} at {position}")


def test_a_run_that_starts_later_and_workers_read_the_same():
    dataset = Grays(cutmix=1.0)
    first = [batch for batch, _ in open_training(dataset, 7, 3, 0, 8)]
    for later in (open_training(dataset, 7, 3, 5, 8), open_training(dataset, 7, 3, 5, 8, num_workers=1)):
        for batch, expected in zip([batch for batch, _ in later], first[5:], strict=True):
            for name in expected:
                np.testing.assert_array_equal(batch[name], expected[name])


def test_an_unreadable_neighbor_is_reported_where_its_position_is_read():
    dataset = Grays(mixup=1.0, unreadable=(4,), max_bad=1.0)
    reports = [
        (number, bad.name) for number, (_, more) in enumerate(open_training(dataset, 7, 1, 0, SIZE)) for bad in more
    ]
    (position,) = [position for position in range(SIZE) if order.locate(7, SIZE, position)[1] == 4]
    assert reports == [(position, "gray 4")]


def test_evaluations_are_not_mixed():
    (batch, _), *_ = open_evaluation(Grays(mixup=1.0), 7, 4)
    assert "soft_label" not in batch and batch["image"][2, 0, 0, 0] == 20


def test_fields_of_data_sets_have_the_soft_label_in_training_alone():
    train, val = synthetic.load(synthetic.Settings(num_classes=7, train_samples=9, mixup=0.2))
    assert [field.name for field in train.fields] == ["image", "label", "soft_label"]
    assert (train.fields[2].shape, train.fields[2].dtype) == ((7,), "float32")
    assert [field.name for field in val.fields] == ["image", "label"]
    plain, _ = synthetic.load(synthetic.Settings(num_classes=7, train_samples=9))
    assert [field.name for field in plain.fields] == ["image", "label"]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: LoaderSettings(mixup=-0.1), "mixup: "),
        (lambda: LoaderSettings(cutmix=float("nan")), "cutmix: "),
        (lambda: LoaderSettings(mix_prob=1.1), "mix_prob: "),
        (lambda: LoaderSettings(mix_switch=-1.0), "mix_switch: "),
        (lambda: imagenet.Settings(mixup=0.2, dali_device="gpu"), "dali_device: mixup and cutmix mix decoded images"),
        (lambda: segmentation.SegmentationSettings(cutmix=1.0), "cutmix: a scene has a label for every pixel"),
        (lambda: faces.Settings(mixup=0.2), "mixup: a face shows one person"),
        (lambda: synthetic.Settings(kind="scene", mixup=0.2), "mixup: data.kind=scene cannot be mixed"),
    ],
)
def test_wrong_settings_are_refused(make, message):
    with pytest.raises(ValueError) as error:
        make()
    assert str(error.value).startswith(message)


@needs_dali
def test_images_that_dali_decodes_are_mixed_alike(tmp_path):
    batches = []
    for loader in ("reference", "dali"):
        train, _ = image_set(tmp_path, loader=loader, mixup=0.5, cutmix=1.0)
        batches.append(next(open_training(train, 3, 5, 1, 2))[0])
    reference, dali = batches
    np.testing.assert_array_equal(dali["soft_label"], reference["soft_label"])
    difference = np.abs(dali["image"].astype(int) - reference["image"])
    assert 0 < difference.mean() < 0.5
