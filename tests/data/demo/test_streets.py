"""The demo set of scenes: recorded bytes in Cityscapes' own layout, true labels, classes that colour cannot tell."""

import hashlib
import os
import re

import cv2
import numpy as np
import pytest

from data import order
from data.demo import streets
from data.demo.common import street_scene as scene
from data.errors import UserError
from data.formats import palette

TRAIN, VAL = 6, 3
PIXELS = "bbc178629738aaadd82a7be84ae55d60"
FILES = "14fde9faad9bc7a4c8b917e36d7f3bc3"
OFFICIAL = {label.name: label.id for label in palette.LABELS}
SEEN = ("road", "sidewalk", "building", "pole", "traffic light", "traffic sign", "vegetation", "sky", "person", "car")
AIR = np.full((3, 1, 1), 200.0)
VIEW = scene.View(150, 2.5, 128, 50, AIR, -4.4, 4.4, 3)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("streets") / "set")
    streets.make(folder, TRAIN, VAL)
    return folder


@pytest.fixture(scope="module")
def drawn():
    """Pictures (N, H, W, 3) and labels (N, H, W) of the first streets of the real training set."""
    pairs = [streets.street(order.generator(streets.SEED, "train", number)) for number in range(40)]
    return tuple(np.stack(arrays) for arrays in zip(*pairs))


def settings(root, **keys):
    return streets.Settings(**{"root": str(root), "train_images": TRAIN, "val_images": VAL, "workers": 0, **keys})


def files(root):
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                found[os.path.relpath(os.path.join(folder, name), root)] = file.read()
    return found


def digest(parts):
    return hashlib.md5(b"".join(parts)).hexdigest()


def rng(number=0):
    return order.generator(0, "test", number)


def fitted_by_colour(pictures, labels, trained):
    """Mean IoU over pixels of the later pictures of a least-squares fit, quadratic in R, G and B, to the first ones."""
    known = np.isin(labels, [OFFICIAL[name] for name in SEEN])
    ids, target = np.unique(labels[known], return_inverse=True)
    share = pictures[known] / 255
    terms = [np.ones(len(share))] + list(share.T) + [share[:, i] * share[:, j] for i in range(3) for j in range(i, 3)]
    features, first = np.stack(terms, 1), known[:trained].sum()
    weights = np.linalg.lstsq(features[:first], np.eye(len(ids))[target[:first]], rcond=None)[0]
    guess, truth = (features[first:] @ weights).argmax(1), target[first:]
    both = [(np.sum((guess == k) & (truth == k)), np.sum((guess == k) | (truth == k))) for k in range(len(ids))]
    return np.mean([inter / union for inter, union in both])


def test_recorded_pixels(drawn):
    assert digest(array[:6].tobytes() for array in drawn) == PIXELS


def test_recorded_files(root):
    """OpenCV and its PNG library are pinned with the rest."""
    found = files(root)
    assert digest(name.encode() + found[name] for name in sorted(found)) == FILES


def test_layout_and_names_are_those_of_cityscapes(root):
    found = sorted(files(root))
    assert [name for name in found if not name.endswith(".png")] == ["streets.json"]
    left = [name for name in found if name.startswith("leftImg8bit/")]
    fine = [name for name in found if name.startswith("gtFine/")]
    assert len(left) == len(fine) == TRAIN + VAL and len(found) == 2 * (TRAIN + VAL) + 1
    for name, mask in zip(left, fine):
        parts = re.fullmatch(r"leftImg8bit/(train|val)/([a-z]+)/(([a-z]+)_\d{6}_\d{6})_leftImg8bit\.png", name)
        assert parts and parts[2] == parts[4] and parts[2] in streets.CITIES[parts[1]], name
        assert mask == f"gtFine/{parts[1]}/{parts[2]}/{parts[3]}_gtFine_labelIds.png"
        picture, ids = (cv2.imread(os.path.join(root, file), cv2.IMREAD_UNCHANGED) for file in (name, mask))
        assert (picture.shape, picture.dtype) == ((128, 256, 3), np.uint8)
        assert (ids.shape, ids.dtype) == ((128, 256), np.uint8)
    assert not set(streets.CITIES["train"]) & set(streets.CITIES["val"])


def test_files_hold_what_was_drawn(root):
    """Number 5 of the training pictures is the second of the second city; colours are not turned around."""
    stem = "train/fernhagen/fernhagen_000001_000019"
    picture, labels = streets.street(order.generator(streets.SEED, "train", 5))
    stored = cv2.imread(os.path.join(root, f"leftImg8bit/{stem}_leftImg8bit.png"))
    assert (cv2.cvtColor(stored, cv2.COLOR_BGR2RGB) == picture).all()
    assert (cv2.imread(os.path.join(root, f"gtFine/{stem}_gtFine_labelIds.png"), cv2.IMREAD_UNCHANGED) == labels).all()


def test_ids_are_official(drawn):
    named = {
        "ROAD": "road",
        "SIDEWALK": "sidewalk",
        "BUILDING": "building",
        "POLE": "pole",
        "LIGHT": "traffic light",
        "SIGN": "traffic sign",
        "VEGETATION": "vegetation",
        "SKY": "sky",
        "PERSON": "person",
        "CAR": "car",
        "EGO": "ego vehicle",
        "BORDER": "rectification border",
        "STATIC": "static",
        "DYNAMIC": "dynamic",
    }
    assert {key: getattr(scene, key) for key in named} == {key: OFFICIAL[name] for key, name in named.items()}
    assert set(np.unique(drawn[1])) == {OFFICIAL[name] for name in named.values()}
    assert set(np.unique(palette.TRAIN_IDS[drawn[1]])) == {palette.TRAIN_CLASSES.index(name) for name in SEEN} | {255}


def test_every_class_has_its_share(drawn):
    for name in SEEN:
        found = drawn[1] == OFFICIAL[name]
        assert found.mean() > 0.005, name
        assert found.any((1, 2)).mean() > 0.9, name
    ignored = palette.TRAIN_IDS[drawn[1]] == palette.IGNORE_INDEX
    assert 0.02 < ignored.mean() < 0.1


def test_colour_alone_does_not_tell_the_class(drawn):
    pictures, labels = drawn[0][:, ::2, ::2], drawn[1][:, ::2, ::2]
    assert fitted_by_colour(pictures, labels, 30) < 0.3
    flags = rng().integers(0, 256, (256, 3), np.uint8)[labels]  # where it does tell, this would find out
    assert fitted_by_colour(flags, labels, 30) > 0.99


def test_light_differs_between_pictures(drawn):
    means = drawn[0].mean((1, 2))
    assert means.mean(1).std() > 10 and (means[:, 0] - means[:, 2]).std() > 5


def test_splits_share_no_picture_and_load_as_cityscapes(root):
    train, val = streets.load(settings(root))
    assert (len(train), len(val), train.classes) == (TRAIN, VAL, palette.TRAIN_CLASSES)
    contents = [content for name, content in files(root).items() if name.endswith("leftImg8bit.png")]
    assert len(set(contents)) == TRAIN + VAL
    for split in (train, val):
        sample = split.sample(1, rng())
        assert sample["image"].shape == (128, 256, 3) and sample["label"].shape == (128, 256)
        assert set(np.unique(sample["label"])) <= {palette.TRAIN_CLASSES.index(name) for name in SEEN} | {255}


def test_load_makes_the_set_once_and_always_the_same(root, tmp_path, monkeypatch, capsys):
    first = streets.load(settings(tmp_path / "deep" / "set"))
    assert "demo set" in capsys.readouterr().out
    monkeypatch.setattr(streets, "make", lambda *_: pytest.fail("made again"))
    again = streets.load(settings(tmp_path / "deep" / "set"))
    assert streets.checksum(*first) == streets.checksum(*again) == streets.checksum(*streets.load(settings(root)))
    assert files(tmp_path / "deep" / "set") == files(root)


def test_foreign_folders_and_other_settings_are_refused(root, tmp_path):
    (tmp_path / "leftImg8bit").mkdir()
    with pytest.raises(UserError, match="not a demo set.*streets.json.*data.root"):
        streets.load(settings(tmp_path))
    with pytest.raises(UserError, match="other settings.*data.root"):
        streets.load(settings(root, val_images=VAL + 1))


@pytest.mark.parametrize(
    "key, value",
    [
        ("train_images", 0),
        ("train_images", 3),
        ("val_images", 1),
        ("val_images", -8),
        ("crop", (0, 8)),
        ("val_fraction", 0.0),
    ],
)
def test_settings_that_cannot_be(key, value):
    with pytest.raises(ValueError, match=f"^{key}:"):
        streets.Settings(**{key: value})


def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    written, write = [], streets.write_png

    def fail(path, pixels):
        written.append(path)
        if len(written) == 5:
            raise OSError("disk full")
        write(path, pixels)

    monkeypatch.setattr(streets, "write_png", fail)
    with pytest.raises(OSError, match="disk full"):
        streets.load(settings(tmp_path / "set"))
    assert len(written) >= 5 and os.listdir(tmp_path) == []


def test_colours_and_labels_are_painted_in_one_order():
    """Wherever a pixel has one thing's pure colour, it has that thing's label, and all of them leave something."""
    colours = {
        label: np.reshape((label * 10.0, 250 - label * 9, label * 57 % 251), (3, 1, 1)) for label in range(1, 25)
    }
    canvas, draw = scene.Canvas(64, 96), rng()
    for label, colour in colours.items():
        place, size = draw.uniform((0, 0), (96, 64)), draw.uniform(6, 20)
        if label % 2:
            canvas.polygon([place + size * np.array(corner) for corner in scene.SIGNS[label % 5]], colour, label)
        else:
            canvas.capsule(place, place + draw.uniform(-10, 10, 2), size / 2, colour, label)
    pure = {label: (canvas.picture == colour).all(0) for label, colour in colours.items()}
    assert all((canvas.labels[where] == label).all() for label, where in pure.items())
    assert sum(where.any() for where in pure.values()) > 15
    assert sum(where.sum() for where in pure.values()) > 0.75 * (canvas.labels > 0).sum()


@pytest.mark.parametrize("turned", [False, True])
def test_near_things_hide_far_ones_whatever_the_order_they_are_named_in(turned):
    def thing(canvas, name, z, number):
        options = (False,) if name == "car" else ()
        return z, lambda: getattr(scene, name)(canvas, VIEW, rng(number), 0.3, z, *options)

    both, car, bright, person = (scene.Canvas() for _ in range(4))
    bright.picture += 255
    streets.paint([thing(both, "car", 7, 1), thing(both, "person", 12, 2)][:: -1 if turned else 1])
    streets.paint([thing(car, "car", 7, 1)])
    streets.paint([thing(bright, "car", 7, 1)])
    streets.paint([thing(person, "person", 12, 2)])
    hidden = (car.labels == scene.CAR) & (person.labels == scene.PERSON)
    assert hidden.sum() > 20 and (both.labels[hidden] == scene.CAR).all()
    solid = (car.picture == bright.picture).all(0)  # nothing shines through there
    assert (car.labels[solid] == scene.CAR).all() and (hidden & solid).sum() > 0.5 * hidden.sum()
    assert (both.picture[:, solid] == car.picture[:, solid]).all()
    over = (person.labels == scene.PERSON) & (car.labels == 0)
    assert over.sum() > 20 and (both.labels[over] == scene.PERSON).all()


def test_light_and_shadow_leave_the_labels():
    canvas = scene.Canvas()
    scene.sky(canvas, VIEW, rng(), AIR)
    scene.ground(canvas, VIEW, rng())
    before, picture = canvas.labels.copy(), canvas.picture.copy()
    scene.shadow(canvas, VIEW, 0, 10, 2, 2)
    assert (canvas.labels == before).all() and (canvas.picture < picture - 10).all(0).sum() > 100


def test_the_road_lies_where_the_camera_sees_it():
    """Edges at x = -4.4 m and 4.4 m on the ground, the horizon at row 50, by the pinhole camera's equations."""
    canvas = scene.Canvas()
    scene.ground(canvas, VIEW, rng())
    assert not canvas.labels[:50].any()
    for row in range(52, 128):
        half = 4.4 * (row + 0.5 - 50) / 2.5  # pixels: x * focal / z with z = focal * height / rows below the horizon
        road = np.abs(np.arange(256) + 0.5 - 128) <= half
        assert (canvas.labels[row] == np.where(road, scene.ROAD, scene.SIDEWALK)).all()


@pytest.mark.parametrize("head", ["", "lamp", "sign", "light"])
@pytest.mark.parametrize("z", [6, 8, 11])
def test_poles_are_thin(head, z):
    for number in range(5):
        canvas = scene.Canvas()
        scene.pole(canvas, VIEW, rng(number), -3, z, head)
        foot = int(VIEW.point(-3, 0, z)[1])
        widths = (canvas.labels[foot - 20 : foot] == scene.POLE).sum(1)
        assert widths.min() >= 3 and widths.max() <= 7
        assert {"sign": scene.SIGN, "light": scene.LIGHT}.get(head, scene.POLE) in canvas.labels


def test_cover_is_the_covered_share():
    """Of a rectangle whose left edge cuts a pixel at 0.3, and whose right edge cuts one at 0.8."""
    canvas = scene.Canvas(5, 10)
    canvas.polygon([(2.3, -9), (6.8, -9), (6.8, 20), (2.3, 20)], 100.0, 7)
    assert np.allclose(canvas.picture[0, 2], [0, 0, 70, 100, 100, 100, 80, 0, 0, 0])
    assert canvas.labels[2].tolist() == [0, 0, 7, 7, 7, 7, 7, 0, 0, 0]
    canvas.polygon([(7.6, 20), (7.6, -9), (9, -9), (9, 20)], 50.0, 8)  # the other way around
    assert np.allclose(canvas.picture[0, 2, 7:], [20, 50, 0]) and canvas.labels[2, 7:].tolist() == [0, 8, 0]


@pytest.mark.parametrize("width", [0.01, 0.4, 1.0, 3.7])
def test_stripes_are_averaged_over_a_pixel(width):
    places = rng().uniform(-5, 5, 50)
    inner = places[:, None] + width * (np.arange(4000) + 0.5 - 2000) / 4000
    assert np.allclose(scene.pulse(places, width, 0.3), (np.mod(inner, 1) < 0.3).mean(1), atol=2e-3)
    assert np.allclose(scene.band(places, 1, 0.5, width), (np.abs(inner - 1) < 0.5).mean(1), atol=2e-3)


def test_noise_is_bilinear_between_its_knots():
    noise = scene.noise(rng(), 40, 60, 8)
    knots = rng().uniform(-1, 1, (7, 9))
    assert np.allclose(noise[::8, ::8], knots[:5, :8]) and noise.shape == (40, 60)
    assert np.allclose(noise[4, 12], knots[0:2, 1:3].mean())
