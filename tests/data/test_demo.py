"""Demo sets: complete or absent, recorded pixels and bytes, layouts, and labels that are the true motion."""

import hashlib
import os
from functools import cache
from typing import NamedTuple

import av
import cv2
import numpy as np
import pytest

from tests.helpers.clips import video_frames
from tests.helpers.prepared import contents
from zoo import data
from zoo.data import order
from zoo.data.demo import common, motion, portrait_drawing, shapes, streets
from zoo.data.errors import UserError
from zoo.data.stream import open_evaluation, open_training

SETTINGS = {
    "motion": {"train_clips": 32, "val_clips": 16, "size": 32},
    "shapes": {"train_images": 32, "val_images": 16, "size": 32},
    "streets": {"train_images": 6, "val_images": 3},
    "portraits": {"identities": 3, "shots": 2, "val_identities": 4, "val_shots": 3, "val_pairs": 20, "size": 24},
}


class DemoSet(NamedTuple):
    name: str
    root: str

    def load(self, root=None, **keys):
        return data.find(self.name).load(self.settings(root, **keys))

    def settings(self, root=None, **keys):
        values = {"root": str(root or self.root), "workers": 0, **SETTINGS[self.name], **keys}
        return data.find(self.name).Settings(**values)


@pytest.fixture(scope="session")
def demo_set(tmp_path_factory):
    """name -> DemoSet, generated when it is first used."""

    @cache
    def make(name):
        demo = DemoSet(name, str(tmp_path_factory.mktemp(name) / "set"))
        demo.load()
        return demo

    return make


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


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UserError, match=r"file/set: the demo set cannot be written \(Not a directory\).*data.root=FOLDER"
    ):
        write(tmp_path / "file/set")


@pytest.mark.parametrize(
    "error, raised",
    [
        (OSError("disk full"), UserError),
        (RuntimeError("encoder"), RuntimeError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_failure_leaves_nothing_behind(error, raised, tmp_path):
    def fail(folder):
        fill(folder)
        raise error

    with pytest.raises(raised):
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
    "name, changed, own",
    [
        ("motion", {"train_clips": 8}, "set-1-8-16"),
        ("shapes", {"val_images": 8}, "set-1-32-8"),
        ("streets", {"val_images": 4}, "set-1-6-4"),
        ("portraits", {"shots": 3, "variation": 0.5}, "set-1-24-20-3-3-4-3-0.5"),
    ],
)
def test_a_set_with_other_settings_has_a_folder_of_its_own(name, changed, own, demo_set):
    made = demo_set(name)
    before, root = contents(made.root), os.path.join(os.path.dirname(made.root), own)
    first = list(map(len, made.load(**changed)))
    assert os.path.isdir(root) and contents(made.root) == before
    written = contents(root)
    assert first == list(map(len, made.load(**changed))) == list(map(len, made.load(root, **changed)))
    assert contents(root) == written and first != list(map(len, made.load()))


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


OPPOSITE = {"left": "right", "up": "down", "grow": "shrink", "clockwise": "counterclockwise"}


@pytest.fixture(scope="module")
def val_clips(demo_set):
    """Path -> (class, frames) of the validation split."""
    root = demo_set("motion").root
    with open(os.path.join(root, "val.list"), encoding="utf-8") as file:
        lines = [line.split() for line in file]
    return {
        path: (motion.CLASSES[int(label)], video_frames(os.path.join(root, path), np.arange)) for path, label in lines
    }


def velocity(name, speed, x, y):
    """Return where the point (x, y) relative to the center was one frame earlier. x is right, y is down."""
    turn = np.deg2rad({"clockwise": 8, "counterclockwise": -8}.get(name, 0) * speed)
    scale = 1.06 ** ({"grow": 1, "shrink": -1}.get(name, 0) * speed)
    x = x - {"left": -3, "right": 3}.get(name, 0) * speed
    y = y - {"up": -3, "down": 3}.get(name, 0) * speed
    # On a screen, where y is down, (x, y) -> (x cos - y sin, x sin + y cos) is clockwise. This is its inverse.
    return (np.cos(turn) * x + np.sin(turn) * y) / scale, (np.cos(turn) * y - np.sin(turn) * x) / scale


def estimate_motion(frames, steps=3):
    """Return the class whose motion best predicts each frame from the one `steps` earlier."""
    gray = frames.astype(np.float32).mean(3)
    height, width = gray.shape[1:]
    y, x = np.mgrid[:height, :width].astype(np.float32)
    inner = (slice(12, -12), slice(12, -12))
    errors = {}
    for name in motion.CLASSES:
        for speed in (0.75, 1.0, 1.25):
            from_x, from_y = velocity(name, steps * speed, x - (width - 1) / 2, y - (height - 1) / 2)
            map_x, map_y = (from_x + (width - 1) / 2).astype(np.float32), (from_y + (height - 1) / 2).astype(np.float32)
            error = [
                np.abs(
                    cv2.remap(gray[i], map_x, map_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)[inner]
                    - gray[i + steps][inner]
                ).mean()
                for i in range(0, len(gray) - steps, 4)
            ]
            errors[name] = min(errors.get(name, np.inf), float(np.mean(error)))
    return min(errors, key=errors.get)


def test_labels_are_correct(val_clips):
    for path, (label, frames) in val_clips.items():
        assert estimate_motion(frames) == label, path


def test_training_samples_have_correct_labels_whether_mirrored_or_not(demo_set):
    train, _ = demo_set("motion").load(segments=24, size=72, scales=(1.0,))
    for index in range(len(train)):
        sample = train.sample(index, np.random.default_rng(index))
        assert estimate_motion(sample["video"]) == train.classes[int(sample["label"])], train.name(index)


def test_every_clip_occurs_forwards_and_backwards_under_opposite_labels(val_clips):
    """So single frames, and sets of frames without their order, do not identify the class."""
    by_number = {}
    for path, (label, frames) in val_clips.items():
        assert frames.shape == (motion.FRAMES, motion.HEIGHT, motion.WIDTH, 3)
        by_number.setdefault(os.path.basename(path), {})[label] = frames.astype(np.float32)
    assert len(by_number) == len(val_clips) // 2
    for number, pair in by_number.items():
        label, opposite = sorted(pair, key=lambda name: name not in OPPOSITE)
        assert OPPOSITE[label] == opposite, number
        reversed_difference = np.abs(pair[label] - pair[opposite][::-1]).mean()
        difference = np.abs(pair[label] - pair[opposite]).mean()
        assert reversed_difference < 6 and reversed_difference < difference / 3, number  # of 255, lost by the codec
        levels = [np.sort(frames.mean((1, 2, 3))) for frames in pair.values()]
        assert np.abs(levels[0] - levels[1]).max() < 2


def test_classes_are_balanced_and_clips_are_h264_in_mp4(demo_set):
    splits = demo_set("motion").load()
    for split in splits:
        labels = [clip.label for clip in split.clips]
        assert split.classes == motion.CLASSES and [labels.count(label) for label in range(8)] == [len(split) // 8] * 8
    with av.open(splits[1].path(0)) as container:
        stream = container.streams.video[0]
        assert stream.codec.name == "h264" and "mp4" in container.format.name
        assert (stream.width, stream.height, stream.frames) == (motion.WIDTH, motion.HEIGHT, motion.FRAMES)
        assert stream.average_rate == motion.RATE


def test_equal_settings_give_equal_bytes(demo_set, tmp_path):
    """Of one processor: H.264 encoders differ between processors."""
    first = demo_set("motion")
    first.load(tmp_path / "deep" / "set")
    assert contents(tmp_path / "deep" / "set") == contents(first.root)
