"""The motion set: labels are the true motion, and single frames do not identify the class."""

import os

import av
import cv2
import numpy as np
import pytest

from tests.helpers.clips import video_frames
from tests.helpers.prepared import contents
from zoo.data.demo import motion

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
