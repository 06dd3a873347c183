"""Sampling, preprocessing, smoothing, reports and annotated frames of a stream."""

import io
import json
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers import clips
from zoo.data.datasets import kinetics
from zoo.data.demo import motion
from zoo.data.errors import BadSample, UserError
from zoo.data.formats.lists import LabeledPath
from zoo.predict import overlay, stream_report
from zoo.predict.results import TrainedModel
from zoo.predict.stream import FrameClassifier, annotate, interval, preprocess, state_shapes
from zoo.predict.stream_report import Options, Report, Shown

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


class Sums:
    """A trainer whose state is the sum of all pixels so far, and whose logits are this sum and 0, 0."""

    def to_device(self, batch):
        return batch

    def predict_frame(self, batch, state):
        assert batch["video"].dtype == np.uint8 and batch["video"].shape[:2] == (1, 1)
        total = state[0] + batch["video"].astype(np.float32).sum()
        return np.array([[total[0, 0], 0, 0]], np.float32), (total,)


def classifier(smooth, side=16):
    cfg = SimpleNamespace(data=kinetics.Settings(size=side), seed=1)
    return FrameClassifier(TrainedModel(cfg, Sums(), CLASSES, {}), [(1,)], smooth)


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
    stream = classifier(smooth=2)
    stream.warm_up()  # leaves no trace
    found = [stream(image) for image in (dim, black, dim)]  # sums 3, 3, 6
    for probabilities, mean in zip(found, (3, 3, 4.5)):
        powers = np.exp([mean, 0, 0])
        np.testing.assert_allclose(probabilities, powers / powers.sum(), rtol=1e-12)


def test_logits_that_are_not_finite():
    stream = classifier(smooth=1)
    stream.state = (np.full((1, 1), np.nan, np.float32),)
    with pytest.raises(BadSample, match="not finite"):
        stream(np.zeros((16, 16, 3), np.uint8))


def test_which_models_have_a_stream():
    def cfg(**model):
        return SimpleNamespace(model=SimpleNamespace(**model), data=kinetics.Settings())

    with pytest.raises(UserError, match="--stream: a resnet has no stream; give a checkpoint of tsm"):
        state_shapes("resnet", cfg())
    with pytest.raises(UserError, match=r"--stream: model.shift_direction: .* future; .*tsm_online_k400.yaml"):
        state_shapes("tsm_mobilenet_v2", cfg(shift_direction="future"))


def test_rows_and_summary(capsys):
    rows = io.StringIO()
    empty = Report(CLASSES, 2, rows).summary()
    assert empty["predictions"] == 0 and "latency" not in stream_report.describe(empty)
    progress = Report(CLASSES, 2, rows)
    progress.add(0, 0.0, np.array([0.2, 0.5, 0.3]), progress.start, 0)
    progress.add(4, 0.4, np.array([0.7, 0.1, 0.2]), progress.start, 3)
    first, second = map(json.loads, rows.getvalue().splitlines())
    assert (first["frame"], first["top"], first["probabilities"]) == (0, ["right", "up"], [0.5, 0.3])
    assert (second["frame"], second["time"], second["top"], second["dropped"]) == (4, 0.4, ["left", "up"], 3)
    assert progress.caption == "left 0.70"
    summary = progress.summary()
    assert (summary["predictions"], summary["dropped"]) == (2, 3)
    assert summary["latency_p50_ms"] <= summary["latency_p99_ms"]
    text = stream_report.describe(summary)
    assert text.startswith("2 predictions in ") and "3 frames dropped" in text
    assert "right 0.50  latency " in capsys.readouterr().out  # a line per second where there is no terminal


def shown(*numbers, size=(320, 40)):
    return [Shown(n, np.full((size[1], size[0], 3), n, np.uint8), f"caption {n}", "1 ms") for n in numbers]


def test_an_annotated_file_has_every_frame_with_a_strip():
    frames = list(annotate(shown(0, 1, 2), Fraction(30), 2, live=False))
    assert [rate for _, rate in frames] == [30] * 3
    for number, (pixels, _) in enumerate(frames):
        assert pixels.shape == (40 + 28, 320, 3) and (pixels[:40] == number).all()
        assert (pixels[40:] == overlay.BACKGROUND_COLOR).all(2).any() and (pixels[40:] < 100).any()


def test_an_annotated_live_stream_keeps_the_time():
    frames = list(annotate(shown(4, 6, 12), Fraction(30), 2, live=True))  # 8 and 10 were dropped
    assert [pixels[0, 0, 0] for pixels, _ in frames] == [4, 6, 6, 6, 12]
    assert {rate for _, rate in frames} == {15}


def test_frames_of_another_size_are_scaled_and_small_ones_enlarged():
    frames = list(annotate([*shown(1, size=(100, 50)), *shown(2, size=(60, 80))], Fraction(5), 1, live=False))
    assert {pixels.shape for pixels, _ in frames} == {(4 * 50 + 28, 4 * 100, 3)}


@pytest.mark.parametrize(
    "words, message",
    [
        ({"every": 0}, "--every: must be from 1"),
        ({"smooth": 10**20}, "--smooth: must be from 1 to 1e.06"),
        ({"clip_seconds": 1e308}, "--clip-seconds: must be above 0 and at most 1e.06"),
        ({"timeout": 0.0}, "--timeout: must be above 0"),
        ({"every": 2, "clip_seconds": 3.0}, "give one of them"),
        ({"annotate": "a.avi"}, "a.avi: the name must end in .mp4"),
        ({"annotate": "nowhere/a.mp4"}, "its folder does not exist"),
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
