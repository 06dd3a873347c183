"""The motion set: labels are the true motion, and single frames do not identify the class."""

import os

import av
import cv2
import numpy as np
import pytest

from tests.helpers.clips import video_frames
from zoo.data.demo import motion

MIRRORED = {"left": "right", "right": "left", "clockwise": "counterclockwise", "counterclockwise": "clockwise"}
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


def blobs(points, size=(72, 96)):
    """Draw discs of different radii at (x, y) relative to the center."""
    frame = np.zeros((*size, 3), np.uint8)
    for number, (x, y) in enumerate(points):
        cv2.circle(frame, (round(x + size[1] / 2), round(y + size[0] / 2)), 4 + number, (255, 255, 255), -1)
    return frame


def test_the_motion_estimate_is_correct_for_simple_clips():
    """Otherwise the tests of the labels could be wrong together with the labels."""
    points = [(-20, -12), (14, -6), (2, 14)]

    def clip(move):
        return np.stack([blobs([move(x, y, t) for x, y in points]) for t in range(-6, 7)])

    assert estimate_motion(clip(lambda x, y, t: (x - 3 * t, y))) == "left"
    assert estimate_motion(clip(lambda x, y, t: (x + 3 * t, y))) == "right"
    assert estimate_motion(clip(lambda x, y, t: (x, y - 3 * t))) == "up"
    assert estimate_motion(clip(lambda x, y, t: (x, y + 3 * t))) == "down"
    assert estimate_motion(clip(lambda x, y, t: (x * 1.06**t, y * 1.06**t))) == "grow"
    assert estimate_motion(clip(lambda x, y, t: (x * 1.06**-t, y * 1.06**-t))) == "shrink"
    clock_hand = [(np.sin(np.radians(8) * t), -np.cos(np.radians(8) * t)) for t in range(-6, 7)]
    pointer = np.stack([blobs([(r * x, r * y) for r in (10, 18, 26)]) for x, y in clock_hand])
    assert estimate_motion(pointer) == "clockwise" and estimate_motion(pointer[::-1]) == "counterclockwise"


def test_labels_are_correct(val_clips):
    for path, (label, frames) in val_clips.items():
        assert estimate_motion(frames) == label, path


def test_mirrored_clips_move_as_the_flip_pairs_state(val_clips):
    for path, (label, frames) in val_clips.items():
        assert estimate_motion(frames[:, :, ::-1]) == MIRRORED.get(label, label), path


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


def test_classes_are_balanced(demo_set):
    train, val = demo_set("motion").load()
    assert train.classes == val.classes == motion.CLASSES
    for split in (train, val):
        labels = [clip.label for clip in split.clips]
        assert [labels.count(label) for label in range(8)] == [len(split) // 8] * 8


def test_clips_are_h264_in_mp4(demo_set):
    _, val = demo_set("motion").load()
    for index in range(len(val)):
        with av.open(os.path.join(val.settings.root, val.name(index))) as container:
            stream = container.streams.video[0]
            assert stream.codec.name == "h264" and "mp4" in container.format.name
            assert (stream.width, stream.height, stream.frames, stream.average_rate) == (
                motion.WIDTH,
                motion.HEIGHT,
                motion.FRAMES,
                motion.RATE,
            )
