"""Sampling, state, smoothing and annotated frames of a stream; of live sources the newest frame alone."""

import csv
import json
import threading
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers import clips
from zoo.data.datasets import kinetics
from zoo.data.demo import motion
from zoo.data.errors import UserError
from zoo.data.formats.lists import LabeledPath
from zoo.predict import overlay, stream, stream_report, stream_sources
from zoo.predict.results import Request, TrainedModel
from zoo.predict.stream import begin, interval, preprocess, state_shapes
from zoo.predict.stream_report import Options, Shown, annotate
from zoo.predict.stream_sources import Frame, LatestFrame, Source, in_real_time

CLASSES = ("left", "right", "up")


@pytest.mark.parametrize(
    "dataset, settings, rate, words, expected",
    [
        ("kinetics", kinetics.Settings(), 30, {}, 38),  # 10 s in 8 parts
        ("kinetics", kinetics.Settings(), 25, {"clip_seconds": 3.0}, 9),
        ("kinetics", kinetics.Settings(sampling="dense"), 30, {}, 8),  # 64 frames in 8 parts
        ("kinetics", kinetics.Settings(sampling="dense", segments=16), 60, {}, 4),
        ("kinetics", kinetics.Settings(sampling="dense"), 24, {"clip_seconds": 4.0}, 12),
        ("kinetics", kinetics.Settings(), 30, {"every": 2}, 2),
        ("motion", motion.Settings(), 12, {}, 3),  # 24 frames in 8 parts
        ("motion", motion.Settings(segments=64), 12, {}, 1),
    ],
)
def test_frames_are_as_far_apart_as_in_training(dataset, settings, rate, words, expected):
    assert interval(settings, dataset, Fraction(rate), **words) == expected


def test_the_duration_of_other_clips_must_be_given():
    settings = kinetics.Settings()
    with pytest.raises(UserError, match="clips of mine are is not known; give --clip-seconds S or --every N"):
        interval(settings, "mine", Fraction(30))
    assert interval(settings, "mine", Fraction(30), clip_seconds=8.0) == 30


class Sums:
    """A trainer whose state is the sum of all pixels so far, and whose logits are this sum and 0, 0."""

    def to_device(self, batch):
        return batch

    def predict_frame(self, batch, state):
        assert batch["video"].dtype == np.uint8 and batch["video"].shape[:2] == (1, 1)
        total = state[0] + batch["video"].astype(np.float32).sum()
        return np.array([[total[0, 0], 0, 0]], np.float32), (total,)


def test_a_frame_is_prepared_as_in_an_evaluation(tmp_path):
    """Also where the recipe evaluates several crops: a stream sees the central one."""
    path = clips.encode(tmp_path / "a.mp4", clips.numbered(4, 50, 36), qp="0", pix_fmt="yuv444p")
    for changes in ({}, {"antialias": True}, {"eval_size": 18}):
        settings = kinetics.Settings(size=16, segments=4, min_frames=1, eval_sampling="test", **changes)
        split = kinetics.ClipSplit(settings, [LabeledPath(path, 0)], CLASSES, False)
        expected = split.sample(0, np.random.default_rng(0))["video"]
        several = kinetics.Settings(size=16, eval_crops=10, **changes)
        found = [preprocess(pixels, several) for pixels, _ in overlay.read_video(path)]
        assert np.array_equal(found, expected)


def test_the_state_is_passed_on_and_logits_are_averaged():
    black, dim = np.zeros((18, 18, 3), np.uint8), np.zeros((18, 18, 3), np.uint8)  # of the size before the crop
    dim[9, 9, 0] = 3
    cfg = SimpleNamespace(data=kinetics.Settings(size=16), seed=1)
    stream = begin(TrainedModel(cfg, Sums(), CLASSES, {"task": "classify"}), [(1,)], "kinetics", smooth=2)
    found = [stream(image, Request(), "")[1]["predictions"] for image in (dim, black, dim)]  # sums 3, 3, 6
    for predictions, mean in zip(found, (3, 3, 4.5)):
        powers = np.exp([mean, 0, 0])
        np.testing.assert_allclose([each["probability"] for each in predictions], powers / powers.sum(), rtol=1e-12)


class Colors:
    """A trainer of clips whose logits are a hundred times the shares of red, green and blue."""

    def to_device(self, batch):
        return batch

    def predict(self, batch, size):
        means = batch["video"].mean((1, 2, 3), dtype=np.float64)
        return 100 * means / np.maximum(means.sum(1, keepdims=True), 1)


@pytest.fixture(scope="module")
def colors(tmp_path_factory):
    """30 s, red until 10 s, green until 20 s, then blue."""
    frames = np.zeros((300, 32, 32, 3), np.uint8)
    for number in range(300):
        frames[number, ..., number // 100] = 220
    return clips.encode(tmp_path_factory.mktemp("colors") / "a.mp4", frames, rate=10)


def run_colors(path, out, **options):
    cfg = SimpleNamespace(data=kinetics.Settings(size=16, segments=4), seed=1)
    model = TrainedModel(cfg, Colors(), ("red", "green", "blue"), {"task": "classify"})
    stream.run(model, None, "kinetics", Options(path, **options), Request(), str(out), never)
    with open(out / "timeline.csv", newline="") as file:
        stretches = [(float(row["start"]), float(row["end"]), row["label"]) for row in csv.DictReader(file)]
    with open(out / stream.ROWS_FILE) as file:
        return stretches, [json.loads(line)["time"] for line in file]


@pytest.mark.parametrize(
    "options, error",  # of twice the distance of the frames that the model sees, in seconds, at most
    [
        *(({"clip_seconds": 2.0, "smooth": 1}, 0.5), ({"clip_seconds": 2.0}, 0.5)),
        *(({"every": 1}, 0.1), ({"every": 1, "smooth": 81}, 0.1)),
    ],
)
def test_labels_of_a_file_are_in_the_middle_of_their_frames(colors, tmp_path, options, error):
    stretches, times = run_colors(colors, tmp_path, **options)
    assert [label for *_, label in stretches] == ["red", "green", "blue"] and times == sorted(times)
    (start, first, _), (_, second, _), (_, end, _) = stretches
    assert (start, end) == (0, 30) and abs(first - 10) <= error and abs(second - 20) <= error


def test_smoothing_ends_with_a_file(colors, tmp_path):
    """What shows in the last seconds is not outvoted by what was before them."""
    frames = [pixels for pixels, _ in overlay.read_video(colors)][:212]
    path = clips.encode(tmp_path / "b.mp4", np.stack(frames), rate=10)
    (*_, (_, second, _), last), _ = run_colors(path, tmp_path / "out", every=1, smooth=20)
    assert abs(second - 20) <= 0.2 and last[1:] == (21.2, "blue")


def test_labels_of_a_live_source_look_backwards(colors, tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "in_real_time", lambda frames: frames)
    monkeypatch.setattr(stream, "LatestFrame", InOrder)
    stretches, times = run_colors(colors, tmp_path, every=1, smooth=11, realtime=True)
    assert times == pytest.approx(np.arange(300) / 10) and stretches[0][1] == pytest.approx(10.7, abs=0.15)


def test_one_frame_lasts_as_long_as_it_is_shown(tmp_path):
    frame = np.full((1, 32, 32, 3), (0, 0, 220), np.uint8)
    path = clips.encode(tmp_path / "b.mp4", frame, rate=10)
    assert run_colors(path, tmp_path / "out") == ([(0, 0.1, "blue")], [0])


def test_the_length_of_a_clip_is_told(colors, tmp_path, capsys):
    for number, (options, expected) in enumerate(
        [
            ({}, "4 of them are a clip of 10 s; if clips lasted otherwise in training, give --clip-seconds; a label"),
            ({"clip_seconds": 2.0, "smooth": 1}, "4 of them are a clip of 2 s\n"),
        ]
    ):
        run_colors(colors, tmp_path / str(number), **options)
        assert expected in capsys.readouterr().out


def test_which_models_have_a_stream():
    def cfg(**model):
        return SimpleNamespace(model=SimpleNamespace(**model), data=kinetics.Settings())

    with pytest.raises(UserError, match="--stream: a resnet has no stream; give a checkpoint of tsm"):
        state_shapes("resnet", cfg())
    with pytest.raises(UserError, match=r"--stream: model.shift_direction: .* future; .*tsm_online_k400.yaml"):
        state_shapes("tsm_mobilenet_v2", cfg(shift_direction="future"))


def shown(*numbers, size=(320, 40)):
    return [Shown(n, np.full((size[1], size[0], 3), n, np.uint8), f"caption {n}", "1 ms") for n in numbers]


def test_an_annotated_live_stream_keeps_the_time():
    frames = list(annotate(shown(4, 6, 12), Fraction(30), 2, live=True))  # 8 and 10 were dropped
    assert [pixels[0, 0, 0] for pixels, _ in frames] == [4, 6, 6, 6, 12]
    assert {rate for _, rate in frames} == {15}


@pytest.mark.parametrize(
    "words, message",
    [
        ({"every": 0}, "--every: must be from 1"),
        ({"smooth": 10**20}, "--smooth: must be from 1 to 1e.06"),
        ({"clip_seconds": 1e308}, "--clip-seconds: must be above 0 and at most 1e.06"),
        ({"timeout": 0.0}, "--timeout: must be above 0"),
        ({"every": 2, "clip_seconds": 3.0}, "give one of them"),
    ],
)
def test_impossible_options(words, message):
    with pytest.raises(UserError, match=message):
        Options("0", **words).check()


def test_options_of_a_stream_without_one():
    defaults = dict(stream=None, realtime=False, every=None, clip_seconds=None, annotate=None)
    defaults |= dict(smooth=Options.smooth, timeout=Options.timeout)
    assert stream_report.read_options(SimpleNamespace(**defaults)) is None
    for key, value in (("realtime", True), ("every", 1), ("annotate", "a.mp4"), ("timeout", 1.0)):
        with pytest.raises(UserError, match=f"--{key}: is for a stream; give one with --stream SOURCE"):
            stream_report.read_options(SimpleNamespace(**{**defaults, key: value}))


WAIT = 20  # seconds at most; no test takes as long


def frame(number):
    return Frame(number, number / 10, lambda: np.full((1, 1, 3), number, np.uint8))


def source(frames):
    closed = []
    return Source("camera", True, None, iter(frames), lambda: closed.append(1)), closed


def never():
    return False


class InOrder:
    """A source whose every frame is taken."""

    dropped = 0

    def __init__(self, source, every, timeout, stopped):
        self.source, self.close = source, source.close

    def __iter__(self):
        return stream_sources.one_by_one(self.source.frames, never)


class Controlled:
    """Frames that come when the test says so: `give(n)` returns when the n-th has been put into the slot."""

    def __init__(self):
        self.allowed, self.asked = threading.Semaphore(0), threading.Semaphore(0)

    def __iter__(self):
        number = 0
        while True:
            self.asked.release()
            assert self.allowed.acquire(timeout=WAIT)
            yield frame(number)
            number += 1

    def give(self, count):
        for _ in range(count):
            assert self.asked.acquire(timeout=WAIT)
            self.allowed.release()
        assert self.asked.acquire(timeout=WAIT)  # the last one has been put, and the next one is asked for
        self.asked.release()


def test_the_newest_frame_is_taken_and_others_are_counted():
    controlled = Controlled()
    latest = LatestFrame(source(controlled)[0], 1, WAIT, never)
    frames = iter(latest)
    numbers = []
    for count in (1, 1, 4, 2, 1):
        controlled.give(count)
        numbers.append(next(frames).frame.number)
    assert numbers == [0, 1, 5, 7, 8] and latest.dropped == 4
    controlled.allowed.release()
    latest.close()


def test_the_end_of_a_source():
    opened, closed = source([frame(0)])
    latest = LatestFrame(opened, 1, WAIT, never)
    assert [captured.frame.number for captured in latest] == [0]
    latest.close()
    assert closed == [1]


def test_the_error_of_a_source_is_raised_after_its_last_frame():
    def failing():
        yield frame(0)
        raise UserError("unplugged")

    latest = LatestFrame(source(failing())[0], 1, WAIT, never)
    frames = iter(latest)
    assert next(frames).frame.number == 0
    with pytest.raises(UserError, match="unplugged"):
        next(frames)
    latest.close()


def test_a_source_that_stalls():
    controlled = Controlled()
    opened, closed = source(controlled)
    latest = LatestFrame(opened, 1, 0.05, never)
    with pytest.raises(UserError, match=r"camera: no frame for 0.05 s; .*--timeout"):
        next(iter(latest))
    latest._thread.join = lambda timeout: None  # it never answers: it is left alone, and so is the source
    latest.close()
    assert closed == []
    controlled.allowed.release()


def test_a_file_at_its_own_pace(monkeypatch):
    clock, slept = [100.0], []

    def sleep(seconds):
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(stream_sources.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(stream_sources.time, "sleep", sleep)
    for paced in in_real_time(map(frame, range(4))):
        assert clock[0] == pytest.approx(100 + max(0.0, [0, 0.1, 0.5, 0.5][paced.number]))
        if paced.number == 1:
            clock[0] += 0.4  # the consumer is late; frame 2 was due at 0.2
    assert slept == pytest.approx([0, 0.1, 0, 0])
