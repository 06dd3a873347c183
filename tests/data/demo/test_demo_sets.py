"""Demo sets: complete or absent and never mixed up with other data; recorded pixels and bytes; layouts and labels."""

import hashlib
import os
import re

import cv2
import numpy as np
import pytest

from tests.helpers.prepared import contents
from zoo.data import order
from zoo.data.demo import common, portrait_drawing, portraits, shapes, streets
from zoo.data.errors import UserError
from zoo.data.formats import masks
from zoo.data.stream import open_evaluation, open_training

NAMES = ["motion", "shapes", "streets", "portraits"]
# OpenCV, Pillow and their PNG and JPEG libraries are pinned.
FILES = {
    "shapes": "068c64bf92bf984cbd6168764df3e23d",
    "streets": "14fde9faad9bc7a4c8b917e36d7f3bc3",
    "portraits": "60d75f8f8349ace4b3ed6132e9f9be0d",
}
PIXELS = {
    "shapes": "708ac0f29a66080b3b7bb8392d3cd6d4",
    "streets": "bbc178629738aaadd82a7be84ae55d60",
    "portraits": "e42e4ec394cc25cd4767bb06165558b5",
}
RECIPE = {"version": 1, "count": 3}


def fill(folder):
    for number in range(3):
        with open(os.path.join(folder, str(number)), "w") as file:
            file.write("content")


def write(root, recipe=RECIPE, files=fill):
    common.write(str(root), "test", recipe, "3 files", files)


@pytest.mark.parametrize("suffix", ["", "/"])
def test_a_set_is_written_once_with_its_recipe(tmp_path, suffix, capsys):
    root = str(tmp_path / "deep" / "set")
    write(root + suffix)
    assert sorted(os.listdir(root)) == ["0", "1", "2", "test.json"] and os.listdir(tmp_path / "deep") == ["set"]
    assert f"making the demo set in {root}{suffix}: 3 files" in capsys.readouterr().out
    write(root + suffix, files=pytest.fail)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("error", [OSError("disk full"), RuntimeError("encoder"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing_behind(error, tmp_path):
    def fail(folder):
        fill(folder)
        raise error

    with pytest.raises(type(error)):
        write(tmp_path / "set", files=fail)
    assert os.listdir(tmp_path) == []


def test_a_killed_process_does_not_disturb_the_next(tmp_path):
    left = tmp_path / f"set.making-{os.getpid()}"
    left.mkdir()
    (left / "0").write_text("con")
    write(tmp_path / "set")
    assert os.listdir(tmp_path) == ["set"] and (tmp_path / "set/0").read_text() == "content"


def test_another_process_may_be_faster(tmp_path):
    def overtaken(folder):
        fill(folder)
        if "faster" not in os.listdir(tmp_path):
            (tmp_path / "faster").mkdir()
            os.rename(folder, tmp_path / "mine")
            write(tmp_path / "set")
            os.rename(tmp_path / "mine", folder)

    write(tmp_path / "set", files=overtaken)
    assert sorted(os.listdir(tmp_path)) == ["faster", "set"]


@pytest.mark.parametrize("content", [None, "not json"])
def test_a_folder_without_a_readable_recipe_is_refused_and_not_changed(tmp_path, content):
    (tmp_path / "mine").write_text("data")
    if content:
        (tmp_path / "test.json").write_text(content)
    before = contents(tmp_path)
    with pytest.raises(UserError, match="not a demo set.*test.json.*data.root"):
        write(tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "name, key, value",
    [
        ("motion", "train_clips", 8),
        ("shapes", "val_images", 8),
        ("streets", "val_images", 4),
        *(
            ("portraits", key, value)
            for key, value in (("variation", 0.5), ("size", 32), ("val_pairs", 10), ("shots", 3))
        ),
    ],
)
def test_a_set_with_other_settings_is_refused(name, key, value, demo_set):
    with pytest.raises(UserError, match=f"other settings.*{key}.*data.root"):
        demo_set(name).load(**{key: value})


@pytest.mark.parametrize("name", FILES)
def test_recorded_files(name, demo_set):
    files = contents(demo_set(name).root)
    assert hashlib.md5(b"".join(path.encode() + files[path] for path in sorted(files))).hexdigest() == FILES[name]


def generator(number, stream="test"):
    return order.generator(0, stream, number)


def drawn_shapes():
    return [shapes.render(name, generator(number)) for name in shapes.CLASSES for number in range(4)]


def drawn_streets():
    pairs = [streets.render(order.generator(streets.SEED, "train", number)) for number in range(6)]
    return [array for arrays in zip(*pairs) for array in arrays]


def drawn_portraits():
    images = []
    for identity in range(4):
        for shot in range(3):
            rng = generator(shot, f"shot of {identity}")
            person = portrait_drawing.random_person(generator(identity))
            images.append(portrait_drawing.render(person, portrait_drawing.random_view(rng, 1.0), rng, 48))
    return images


@pytest.mark.parametrize("draw", [drawn_shapes, drawn_streets, drawn_portraits])
def test_recorded_pixels(draw):
    pixels = b"".join(image.tobytes() for image in draw())
    assert hashlib.md5(pixels).hexdigest() == PIXELS[draw.__name__.removeprefix("drawn_")]


@pytest.mark.parametrize("name", NAMES)
def test_streams_contain_every_sample(name, demo_set):
    train, val = demo_set(name).load()
    half = len(train) // 2
    batches = [batch for batch, unreadable in open_training(train, 1, half, 0, 2) if not unreadable]
    assert all(set(batch) == {field.name for field in train.fields} | {"valid"} for batch in batches)
    assert sum(len(batch["label"]) for batch in batches) == len(train)
    assert sum(int(batch["valid"].sum()) for batch, _ in open_evaluation(val, 1, 5)) == len(val)


def test_classes_of_shapes_are_balanced_and_in_their_folders(demo_set):
    train, val = demo_set("shapes").load()
    assert train.classes == val.classes == shapes.CLASSES == tuple(sorted(shapes.CLASSES))
    assert np.bincount(train.labels).tolist() == [4] * 8 and np.bincount(val.labels).tolist() == [2] * 8
    assert all(val.name(index).split(os.sep)[1] == val.classes[val.labels[index]] for index in range(len(val)))


def test_streets_have_the_layout_of_cityscapes(demo_set):
    """Image 5 of the training split is the second image of the second city; channels are RGB."""
    root = demo_set("streets").root
    paths = sorted(contents(root))
    images = [path for path in paths if path.startswith("leftImg8bit/")]
    assert len(images) == 9 and len(paths) == 19 and not set(streets.CITIES["train"]) & set(streets.CITIES["val"])
    for path in images:
        match = re.fullmatch(r"leftImg8bit/(train|val)/([a-z]+)/(([a-z]+)_\d{6}_\d{6})_leftImg8bit\.png", path)
        assert match and match[2] == match[4] and match[2] in streets.CITIES[match[1]], path
        assert f"gtFine/{match[1]}/{match[2]}/{match[3]}_gtFine_labelIds.png" in paths
    image, labels = streets.render(order.generator(streets.SEED, "train", 5))
    stem = "train/fernhagen/fernhagen_000001_000019"
    stored = cv2.imread(os.path.join(root, f"leftImg8bit/{stem}_leftImg8bit.png"))
    assert (cv2.cvtColor(stored, cv2.COLOR_BGR2RGB) == image).all()
    assert (cv2.imread(os.path.join(root, f"gtFine/{stem}_gtFine_labelIds.png"), cv2.IMREAD_UNCHANGED) == labels).all()
    train, val = demo_set("streets").load()
    assert (len(train), len(val), train.classes) == (6, 3, masks.TRAIN_CLASSES)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_raises_an_error():
    with pytest.raises(OSError, match="No space left"):
        streets.write_png("/dev/full", np.zeros((8, 8, 3), np.uint8))


def test_pairs_of_portraits_are_balanced_distinct_and_of_unseen_persons(demo_set):
    demo = demo_set("portraits")
    with open(os.path.join(demo.root, "unseen.txt"), encoding="utf-8") as file:
        lines = [line.split() for line in file]
    assert len(lines) == 20 and [line[2] for line in lines] == ["1", "0"] * 10
    assert len({tuple(sorted(line[:2])) for line in lines}) == 20
    for first, second, same in lines:
        assert first != second and (os.path.dirname(first) == os.path.dirname(second)) == (same == "1")
        assert all(
            path.startswith("unseen/") and os.path.isfile(os.path.join(demo.root, path)) for path in (first, second)
        )
    # The largest number of pairs: all 12 pairs of the same person of 4 persons with 3 images, once each.
    every = list(portraits._pairs(demo.settings(val_pairs=24)))
    assert len({line[:2] for line in every if line[2] == "1"}) == 12 == len(set(every)) / 2


def test_portraits_load_as_faces(demo_set):
    train, val = demo_set("portraits").load(flip=False)
    assert (len(train), len(train.classes), len(val)) == (6, 3, 20) and val.sets == (("unseen", 0, 20),)
    assert [int(train.sample(index, generator(0))["label"]) for index in range(6)] == [0, 0, 1, 1, 2, 2]
    rng = order.generator(portraits.SEED, "train 1", 0)
    person = portrait_drawing.random_person(order.generator(portraits.SEED, "train person", 1))
    rendered = portrait_drawing.render(person, portrait_drawing.random_view(rng, 1.0), rng, 24)
    stored = train.sample(2, generator(0))["image"]
    assert np.abs(stored.astype(int) - rendered).mean() < 6  # of 255, lost by JPEG
