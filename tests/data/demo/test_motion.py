"""The demo set: the same bytes every time, whole or not there, and labels that tell the truth about the motion."""

import os
import signal
import subprocess
import sys
import time

import av
import cv2
import numpy as np
import pytest

from data.demo import motion
from data.errors import UserError
from data.formats import video

CLIPS = 16
MIRRORED = {"left": "right", "right": "left", "clockwise": "counterclockwise", "counterclockwise": "clockwise"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("motion") / "set")
    motion.make(folder, 2 * CLIPS, CLIPS)
    return folder


def settings(root, **keys):
    return motion.Settings(**{"root": str(root), "train_clips": 2 * CLIPS, "val_clips": CLIPS, **keys})


def files(root):
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                found[os.path.relpath(os.path.join(folder, name), root)] = file.read()
    return found


def frames_of(root, path):
    return video.video_frames(os.path.join(root, path), np.arange)


def listed(root, split):
    with open(os.path.join(root, f"{split}.list"), encoding="utf-8") as file:
        return [(path, motion.CLASSES[int(label)]) for path, label in map(str.split, file)]


def velocity(name, speed, x, y):
    """Where the point (x, y) off the centre comes from one frame earlier. x points right, y points down."""
    turn = np.deg2rad({"clockwise": 8, "counterclockwise": -8}.get(name, 0) * speed)
    scale = 1.06 ** ({"grow": 1, "shrink": -1}.get(name, 0) * speed)
    x = x - {"left": -3, "right": 3}.get(name, 0) * speed
    y = y - {"up": -3, "down": 3}.get(name, 0) * speed
    # Seen on a screen, (x, y) -> (x cos - y sin, x sin + y cos) turns clockwise, for y points down. This undoes it.
    return (np.cos(turn) * x + np.sin(turn) * y) / scale, (np.cos(turn) * y - np.sin(turn) * x) / scale


def motion_of(frames, steps=3):
    """The class whose motion best carries each frame into the one `steps` later."""
    grey = frames.astype(np.float32).mean(3)
    height, width = grey.shape[1:]
    y, x = np.mgrid[:height, :width].astype(np.float32)
    inner = (slice(12, -12), slice(12, -12))
    errors = {}
    for name in motion.CLASSES:
        for speed in (0.75, 1.0, 1.25):
            from_x, from_y = velocity(name, steps * speed, x - (width - 1) / 2, y - (height - 1) / 2)
            map_x, map_y = (from_x + (width - 1) / 2).astype(np.float32), (from_y + (height - 1) / 2).astype(np.float32)
            error = [
                np.abs(
                    cv2.remap(grey[i], map_x, map_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)[inner]
                    - grey[i + steps][inner]
                ).mean()
                for i in range(0, len(grey) - steps, 4)
            ]
            errors[name] = min(errors.get(name, np.inf), float(np.mean(error)))
    return min(errors, key=errors.get)


def blobs(points, size=(72, 96)):
    """Discs of different radius at (x, y) off the centre."""
    frame = np.zeros((*size, 3), np.uint8)
    for number, (x, y) in enumerate(points):
        cv2.circle(frame, (int(round(x + size[1] / 2)), int(round(y + size[0] / 2))), 4 + number, (255, 255, 255), -1)
    return frame


def test_the_measure_itself_knows_hand_made_motions():
    """Discs that anyone can follow; else the tests of the labels could be wrong together with the labels."""
    points = [(-20, -12), (14, -6), (2, 14)]

    def clip(move):
        return np.stack([blobs([move(x, y, t) for x, y in points]) for t in range(-6, 7)])

    assert motion_of(clip(lambda x, y, t: (x - 3 * t, y))) == "left"
    assert motion_of(clip(lambda x, y, t: (x + 3 * t, y))) == "right"
    assert motion_of(clip(lambda x, y, t: (x, y - 3 * t))) == "up"
    assert motion_of(clip(lambda x, y, t: (x, y + 3 * t))) == "down"
    assert motion_of(clip(lambda x, y, t: (x * 1.06**t, y * 1.06**t))) == "grow"
    assert motion_of(clip(lambda x, y, t: (x * 1.06**-t, y * 1.06**-t))) == "shrink"
    hand = [(np.sin(np.radians(8) * t), -np.cos(np.radians(8) * t)) for t in range(-6, 7)]  # of a clock
    pointer = np.stack([blobs([(r * x, r * y) for r in (10, 18, 26)]) for x, y in hand])
    assert motion_of(pointer) == "clockwise" and motion_of(pointer[::-1]) == "counterclockwise"


def test_labels_tell_the_truth(root):
    for split in ("train", "val"):
        for path, label in listed(root, split):
            assert motion_of(frames_of(root, path)) == label, path


def test_shifts_by_phase_correlation(root):
    seen = set()
    for path, label in listed(root, "train"):
        if label in ("left", "right", "up", "down"):
            grey = frames_of(root, path).astype(np.float32).mean(3)
            window = cv2.createHanningWindow(grey.shape[:0:-1], cv2.CV_32F)
            moves = [cv2.phaseCorrelate(grey[i], grey[i + 2], window)[0] for i in range(len(grey) - 2)]
            x, y = np.median(moves, axis=0) / 2
            along, across = (x, y) if label in ("left", "right") else (y, x)
            assert (along > 0) == (label in ("right", "down")), path
            assert 2.0 < abs(along) < 4.0 and abs(across) < 0.4, path  # pixels per frame
            seen.add(label)
    assert seen == {"left", "right", "up", "down"}


def test_a_mirrored_clip_moves_as_the_flip_pairs_say(root):
    for path, label in listed(root, "val"):
        assert motion_of(frames_of(root, path)[:, :, ::-1]) == MIRRORED.get(label, label), path


def test_samples_are_labelled_truthfully_whether_mirrored_or_not(root):
    """With the settings as they come: mirroring a clip must not make its label a lie."""
    train, _ = motion.load(settings(root, segments=24, size=72, scales=(1.0,)))
    for index in range(len(train)):
        for seed in range(2):
            row = train.sample(index, np.random.default_rng(seed))
            assert motion_of(row["video"]) == train.classes[int(row["label"])], train.name(index)


def test_the_other_classes_swap_when_time_runs_backwards(root):
    opposite = {"left": "right", "up": "down", "grow": "shrink", "clockwise": "counterclockwise"}
    by_number = {}
    for path, label in listed(root, "train"):
        by_number.setdefault(os.path.basename(path), {})[label] = frames_of(root, path).astype(np.float32)
    assert len(by_number) == CLIPS
    for number, clips in by_number.items():
        first, second = sorted(clips, key=lambda label: label not in opposite)
        assert opposite[first] == second, number
        assert clips[first].shape == (motion.FRAMES, motion.HEIGHT, motion.WIDTH, 3)
        backwards = np.abs(clips[first] - clips[second][::-1]).mean()
        forwards = np.abs(clips[first] - clips[second]).mean()
        assert backwards < 6 and backwards < forwards / 3, number  # of 255; the codec loses a little


def test_one_frame_says_nothing_about_the_class(root):
    """Partners show the same pictures, so that only their order differs."""
    for _, clips in pairs(root):
        one, other = (np.sort(clip.astype(np.float32).mean((1, 2, 3))) for clip in clips)
        assert np.abs(one - other).max() < 2


def pairs(root):
    by_number = {}
    for path, _ in listed(root, "val"):
        by_number.setdefault(os.path.basename(path), []).append(frames_of(root, path))
    return by_number.items()


def test_classes_are_balanced_and_splits_share_no_clip(root):
    for split, count in (("train", 2 * CLIPS), ("val", CLIPS)):
        labels = [label for _, label in listed(root, split)]
        assert [labels.count(name) for name in motion.CLASSES] == [count // 8] * 8
    contents = [content for path, content in files(root).items() if path.endswith(".mp4")]
    assert len(contents) == len(set(contents)) == 3 * CLIPS


def test_clips_are_h264_in_mp4(root):
    for path, _ in listed(root, "val"):
        with av.open(os.path.join(root, path)) as container:
            stream = container.streams.video[0]
            assert stream.codec.name == "h264" and "mp4" in container.format.name
            assert (stream.width, stream.height, stream.frames, stream.average_rate) == (
                motion.WIDTH,
                motion.HEIGHT,
                motion.FRAMES,
                motion.RATE,
            )


def test_made_twice_gives_the_same_bytes(root, tmp_path):
    again = str(tmp_path / "again")
    motion.make(again + "/", 2 * CLIPS, CLIPS)
    assert files(again) == files(root)


def test_load_makes_the_set_once(root, tmp_path, monkeypatch, capsys):
    first = motion.load(settings(tmp_path / "deep" / "set"))
    assert "demo set" in capsys.readouterr().out
    monkeypatch.setattr(motion, "make", lambda *_: pytest.fail("made again"))
    train, val = motion.load(settings(tmp_path / "deep" / "set"))
    assert len(train) == 2 * CLIPS and len(val) == CLIPS and train.classes == val.classes == motion.CLASSES
    assert motion.checksum(*first) == motion.checksum(train, val) == motion.checksum(*motion.load(settings(root)))


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path):
    for content in (None, "not json"):
        folder = tmp_path / f"mine {content}"
        os.makedirs(folder / "train")
        if content:
            (folder / "motion.json").write_text(content)
        before = files(folder)
        with pytest.raises(UserError, match="not a demo set.*data.root"):
            motion.load(settings(folder))
        assert files(folder) == before and os.path.isdir(folder / "train")


@pytest.mark.parametrize("keys", [{"train_clips": 8}, {"val_clips": 8}])
def test_a_set_of_other_settings_is_refused(root, keys):
    with pytest.raises(UserError, match="other settings"):
        motion.load(settings(root, **keys))


@pytest.mark.parametrize("count", [0, 4, 12, -8])
def test_numbers_of_clips_that_cannot_be_balanced(count):
    with pytest.raises(ValueError, match="train_clips"):
        motion.Settings(train_clips=count)


@pytest.mark.parametrize("error", [OSError("disk full"), RuntimeError("encoder"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing_behind(error, tmp_path, monkeypatch):
    written, encode = [], motion.encode

    def fail(path, frames, rate):
        written.append(path)
        if len(written) == 6:
            raise error
        encode(path, frames, rate)

    monkeypatch.setattr(motion, "encode", fail)
    with pytest.raises(type(error)):
        motion.load(settings(tmp_path / "set"))
    assert len(written) >= 6 and os.listdir(tmp_path) == []


def started(root, train_clips):
    script = (
        f"from data.demo import motion; motion.load(motion.Settings(root={str(root)!r}, train_clips={train_clips}))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def test_a_killed_run_leaves_no_set(tmp_path):
    process = started(tmp_path / "set", 8000)
    try:
        end = time.monotonic() + 30
        while time.monotonic() < end and sum(len(names) for _, _, names in os.walk(tmp_path)) < 4:
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stderr.close()
    assert os.listdir(tmp_path) and not os.path.exists(tmp_path / "set")
    train, _ = motion.load(settings(tmp_path / "set"))  # and the next run is not disturbed by what lies there
    assert len(train) == 2 * CLIPS


def test_two_processes_that_make_it_at_once(tmp_path):
    both = [started(tmp_path / "set", 2 * CLIPS) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()[-500:]
    assert os.listdir(tmp_path) == ["set"]
    assert len([path for path in files(tmp_path / "set") if path.startswith("train/")]) == 2 * CLIPS
