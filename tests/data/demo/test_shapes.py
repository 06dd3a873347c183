"""The demo set of pictures: recorded bytes, whole or not there, and classes that only a shape tells apart."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from data import order
from data.demo import shapes
from data.errors import UserError
from data.formats import images
from data.stream import open_evaluation, open_training

COUNT = 16
PIXELS = "708ac0f29a66080b3b7bb8392d3cd6d4"
FILES = "068c64bf92bf984cbd6168764df3e23d"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("shapes") / "set")
    shapes.make(folder, 2 * COUNT, COUNT)
    return folder


def settings(root, **keys):
    return shapes.Settings(
        **{"root": str(root), "train_images": 2 * COUNT, "val_images": COUNT, "size": 32, "workers": 0, **keys}
    )


def files(root):
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                found[os.path.relpath(os.path.join(folder, name), root)] = file.read()
    return found


def digest(parts):
    return hashlib.md5(b"".join(parts)).hexdigest()


def drawn(name, count, seed=0):
    return [shapes.render(name, order.generator(seed, "test", number)) for number in range(count)]


def inside(name, step=400):
    """Where a shape is, on the square from -1.25 to 1.25."""
    v, u = np.mgrid[-1.25 : 1.25 : step * 1j, -1.25 : 1.25 : step * 1j]
    return shapes.distance(name, u, v) < 0


def parts(mask):
    """Connected areas of a mask, by flooding."""
    import cv2

    return cv2.connectedComponents(mask.astype(np.uint8))[0] - 1


def test_recorded_pixels():
    assert digest(image.tobytes() for name in shapes.CLASSES for image in drawn(name, 4)) == PIXELS


def test_recorded_files(root):
    """Pillow and its JPEG library are pinned with the rest."""
    found = files(root)
    assert digest(name.encode() + found[name] for name in sorted(found)) == FILES


@pytest.mark.parametrize(
    "name, pieces, holes",
    [
        ("cross", 1, 0),
        ("disc", 1, 0),
        ("dots", 9, 0),
        ("ring", 1, 1),
        ("square", 1, 0),
        ("star", 1, 0),
        ("stripes", 3, 0),
        ("triangle", 1, 0),
    ],
)
def test_pieces_and_holes(name, pieces, holes):
    mask = inside(name)
    assert parts(mask) == pieces and parts(~mask) == 1 + holes
    area = mask.mean() * 2.5**2
    assert 1.2 < area < 2.1
    corners = np.hypot(*(axis[mask] for axis in np.mgrid[-1.25:1.25:400j, -1.25:1.25:400j]))
    assert 0.7 < corners.max() < 1.1


@pytest.mark.parametrize(
    "name, fold", [("cross", 4), ("square", 4), ("triangle", 3), ("star", 5), ("stripes", 2), ("dots", 4)]
)
def test_symmetry_under_rotation(name, fold):
    """The smallest turn that maps the shape onto itself."""
    v, u = np.mgrid[-1.25:1.25:300j, -1.25:1.25:300j]
    mask = shapes.distance(name, u, v) < 0
    for parts_of_turn in range(2, 7):
        angle = 2 * np.pi / parts_of_turn
        turned = shapes.distance(name, np.cos(angle) * u + np.sin(angle) * v, np.cos(angle) * v - np.sin(angle) * u) < 0
        assert ((mask ^ turned).sum() < 0.02 * mask.sum()) == (fold % parts_of_turn == 0), parts_of_turn


def test_what_is_drawn_is_the_shape():
    """The pixels unlike the background are as many as the shape covers, in its pieces."""
    for name in shapes.CLASSES:
        for image in drawn(name, 6):
            assert image.dtype == np.uint8 and image.shape[2] == 3 and min(image.shape[:2]) >= 64
            assert max(image.shape[:2]) <= 80
            border = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]]).astype(float)
            assert np.abs(image - border.mean(0)).max() > 30


def test_colours_do_not_tell_the_class():
    """The nearest mean colour, learnt from 40 pictures of every class, guesses."""
    means = {
        name: np.array([image.reshape(-1, 3).mean(0) for image in drawn(name, 60, seed=number)])
        for number, name in enumerate(shapes.CLASSES)
    }
    centres = np.stack([means[name][:40].mean(0) for name in shapes.CLASSES])
    right = [
        np.argmin(np.abs(centres - mean).sum(1)) == label
        for label, name in enumerate(shapes.CLASSES)
        for mean in means[name][40:]
    ]
    assert np.mean(right) < 0.25  # 1 / 8 by chance


def test_the_shape_lies_in_the_central_crop(root):
    """Else an evaluation would show pictures without their class."""
    for name in ("square", "cross"):
        for image in drawn(name, 20):
            height, width = image.shape[:2]
            edges = np.abs(np.diff(image.astype(float).mean(2), axis=1))
            strongest = np.argwhere(edges > 0.6 * edges.max())
            assert (np.abs(strongest - (height / 2, width / 2)) < (0.46 * height, 0.46 * width)).all()


def test_classes_are_balanced_and_splits_share_no_picture(root):
    train, val = shapes.load(settings(root))
    assert train.classes == val.classes == shapes.CLASSES == tuple(sorted(shapes.CLASSES))
    assert np.bincount(train.labels).tolist() == [4] * 8 and np.bincount(val.labels).tolist() == [2] * 8
    contents = [content for name, content in files(root).items() if name.endswith(".JPEG")]
    assert len(contents) == len(set(contents)) == 3 * COUNT
    for index in range(len(val)):
        assert val.name(index).split(os.sep)[1] == val.classes[val.labels[index]]
        assert images.decode_center(os.path.join(root, val.name(index)), 36, 32).shape == (32, 32, 3)


def test_streams(root):
    train, val = shapes.load(settings(root))
    batches = [batch for batch, _ in open_training(train, 1, 8, 0, 4)]
    assert sorted(np.concatenate([batch["label"] for batch in batches])) == sorted(train.labels)
    assert batches[0]["image"].shape == (8, 32, 32, 3)
    assert sum(batch["valid"].sum() for batch, _ in open_evaluation(val, 1, 6)) == COUNT


def test_load_makes_the_set_once(root, tmp_path, monkeypatch, capsys):
    first = shapes.load(settings(tmp_path / "deep" / "set"))
    assert "demo set" in capsys.readouterr().out
    monkeypatch.setattr(shapes, "make", lambda *_: pytest.fail("made again"))
    again = shapes.load(settings(tmp_path / "deep" / "set"))
    assert shapes.checksum(*first) == shapes.checksum(*again) == shapes.checksum(*shapes.load(settings(root)))
    assert files(tmp_path / "deep" / "set") == files(root)


def test_foreign_folders_and_other_settings_are_refused(root, tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(UserError, match="not a demo set.*shapes.json.*data.root"):
        shapes.load(settings(tmp_path))
    (tmp_path / "shapes.json").write_text("not json")
    with pytest.raises(UserError, match="not a demo set"):
        shapes.load(settings(tmp_path))
    with pytest.raises(UserError, match="other settings.*data.root"):
        shapes.load(settings(root, val_images=8))


@pytest.mark.parametrize("count", [0, 4, 12, -8])
def test_numbers_of_pictures_that_cannot_be_balanced(count):
    with pytest.raises(ValueError, match="^val_images:"):
        shapes.Settings(val_images=count)


@pytest.mark.parametrize("error", [OSError("disk full"), RuntimeError("encoder"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing_behind(error, tmp_path, monkeypatch):
    written, write = [], images.write_jpeg

    def fail(path, pixels, quality):
        written.append(path)
        if len(written) == 6:
            raise error
        write(path, pixels, quality)

    monkeypatch.setattr(images, "write_jpeg", fail)
    with pytest.raises(type(error)):
        shapes.load(settings(tmp_path / "set"))
    assert len(written) >= 6 and os.listdir(tmp_path) == []


def test_two_processes_that_make_it_at_once(root, tmp_path):
    script = (
        f"from data.demo import shapes; shapes.load(shapes.Settings(root={str(tmp_path / 'set')!r}, "
        f"train_images={2 * COUNT}, val_images={COUNT}))"
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": os.getcwd()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    for process in both:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()[-500:]
    assert os.listdir(tmp_path) == ["set"] and files(tmp_path / "set") == files(root)
