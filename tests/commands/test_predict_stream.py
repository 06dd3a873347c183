"""tools/predict.py --stream: every task, frame by frame."""

import json
import re
import signal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import zoo
from tests.helpers import clips
from tests.helpers.cli import call_zoo
from tests.helpers.predicting import CLASSES, by_name, datasets_allowed, read_results, train
from zoo.data.demo import motion
from zoo.data.errors import UserError
from zoo.data.formats import masks
from zoo.predict import overlay, stream
from zoo.predict.stream import FramePredictor, preprocess
from zoo.predict.stream_sources import Source
from zoo.run import trained

SETTINGS = {
    "model.width": 8,
    "model.shift_direction": "causal",
    "data.size": 16,
    "data.segments": 2,
    "data.train_clips": 16,
    "data.val_clips": 8,
}
FRAMES = 10

pytestmark = pytest.mark.usefixtures("no_datasets")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Checkpoint of a causal TSM."""
    folder = tmp_path_factory.mktemp("model")
    motion.make(str(folder / "set"), 16, 8)
    return train(folder, "tsm_demo.yaml", {**SETTINGS, "data.root": folder / "set"}, 1)


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    return clips.encode(tmp_path_factory.mktemp("videos") / "a.mp4", clips.numbered(FRAMES), rate=Fraction(12))


def run(capsys, out, *words):
    """Return the exit code, the rows, the summary, standard output and the errors."""
    code = call_zoo("predict", *map(str, words), "--out", str(out), "--device", "cpu")
    lines, errors = capsys.readouterr()
    rows, summary = [], None
    if out.exists():
        rows = [json.loads(line) for line in (out / stream.ROWS_FILE).read_text(encoding="utf-8").splitlines()]
        summary = json.loads((out / stream.SUMMARY_FILE).read_text(encoding="utf-8"))
    return code, rows, summary, lines, errors


def clip_probabilities(weights, frames, *changes):
    """Return the probabilities by name that the model gives a clip of these frames."""
    model = trained.read(weights, "torch", "cpu", changes).load()
    pixels = np.stack([preprocess(frame, model.cfg.data) for frame in frames])
    logits = model.trainer.predict(model.trainer.to_device({"video": pixels[None]}))[0].astype(np.float64)
    powers = np.exp(logits - logits.max())
    return dict(zip(model.class_names, powers / powers.sum()))


def test_a_video_frame_by_frame(model, video, tmp_path, capsys):
    """Its last label is that of a clip of all frames that the model has seen."""
    annotated = tmp_path / "annotated.mp4"
    code, rows, summary, lines, errors = run(
        capsys,
        tmp_path / "out",
        "--weights",
        model,
        "--stream",
        video,
        "--every",
        2,
        "--smooth",
        FRAMES,
        "--top",
        8,
        "--annotate",
        annotated,
    )
    assert (code, errors) == (0, "")
    assert [row["frame"] for row in rows] == [0, 2, 4, 6, 8]
    assert [row["time"] for row in rows] == pytest.approx([frame / 24 for frame in range(0, FRAMES, 2)], abs=1e-6)
    frames = [pixels for pixels, _ in overlay.read_video(video)]
    for count, row in enumerate(rows, 1):
        expected = clip_probabilities(model, frames[: 2 * count : 2])
        for name, probability in by_name(row).items():
            np.testing.assert_allclose(probability, expected[name], rtol=1e-5)
    assert {row["dropped"] for row in rows} == {0} and summary["dropped"] == 0 and summary["predictions"] == 5
    assert (summary["every"], summary["source"], summary["live"], summary["step"]) == (2, video, False, 1)
    assert (
        "12 frames per second; the model sees one of 2 frames, 6 per second; 2 of them are a clip of 0.333 s;" in lines
    )
    assert "5 predictions in" in lines and f"results are in {tmp_path / 'out'}" in lines
    written = list(overlay.read_video(str(annotated)))
    assert len(written) == FRAMES and written[0][1] == 12


def test_an_exported_stream(model, video, tmp_path, capsys):
    """ONNX Runtime predicts the same; a graph of clips has no frames, and one of frames no clips."""
    pytest.importorskip("onnxruntime")
    clips_graph, frame_graph = tmp_path / "clip.onnx", tmp_path / "frame.onnx"
    for out, words in ((clips_graph, ()), (frame_graph, ("--stream",))):
        samples = [str(clip) for clip in sorted((Path(model).parents[2] / "set/val").rglob("*.mp4"))]
        assert call_zoo("export", str(model), "--out", str(out), "--samples", *samples, *words) == 0
    words = ("--stream", video, "--every", 1)
    _, expected, _, _, _ = run(capsys, tmp_path / "native", "--weights", model, *words)
    code, rows, summary, _, _ = run(capsys, tmp_path / "exported", "--weights", frame_graph, *words)
    assert code == 0 and summary["framework"] == "onnx" and len(rows) == FRAMES
    for row, native in zip(rows, expected, strict=True):
        assert list(by_name(row)) == list(by_name(native))
        np.testing.assert_allclose(list(by_name(row).values()), list(by_name(native).values()), rtol=1e-5)
    code, _, _, _, errors = run(capsys, tmp_path / "clips", "--weights", clips_graph, *words)
    assert code == 2 and "clip.onnx is no graph of single frames" in errors and not (tmp_path / "clips").exists()
    assert call_zoo("predict", video, "--weights", str(frame_graph), "--out", str(tmp_path / "file")) == 2
    assert "frame.onnx is a streaming graph" in capsys.readouterr().err


def test_every_third_frame_of_the_demo_by_default(model, video, tmp_path, capsys):
    """Clips of 24 frames, in 8 parts, here in 2."""
    code, rows, summary, _, _ = run(capsys, tmp_path / "out", "--weights", model, "--stream", video)
    assert code == 0 and summary["every"] == 12 and [row["frame"] for row in rows] == [0]
    words = ("--weights", model, "--stream", video, "--clip-seconds", 0.5)
    assert run(capsys, tmp_path / "half", *words)[2]["every"] == 3


def test_ctrl_c_ends_a_stream(model, video, tmp_path, capsys, monkeypatch):
    predict, count = FramePredictor.__call__, []

    def interrupted(*words):
        count.append(1)
        if len(count) == 3:
            signal.raise_signal(signal.SIGINT)
        return predict(*words)

    monkeypatch.setattr(FramePredictor, "__call__", interrupted)
    before = signal.getsignal(signal.SIGINT)
    annotated = tmp_path / "annotated.mp4"
    code, rows, summary, lines, errors = run(
        capsys, tmp_path / "out", "--weights", model, "--stream", video, "--every", 1, "--annotate", annotated
    )
    assert (code, errors, len(rows), summary["predictions"]) == (0, "", 3, 3)
    assert signal.getsignal(signal.SIGINT) is before and "3 predictions in" in lines
    assert len(list(overlay.read_video(str(annotated)))) == 3


def test_a_camera_that_is_unplugged(model, video, tmp_path, capsys, monkeypatch):
    """What it gave is kept."""
    file, closed = stream.open_source(video, 1.0), []

    def frames():
        for _ in range(4):
            yield next(file.frames)
        raise UserError("/dev/video0: the camera gives no more frames; is it still connected?")

    opened = Source("/dev/video0", False, None, frames(), lambda: closed.append(1))  # not live, so that no frame drops
    monkeypatch.setattr(stream, "open_source", lambda source, timeout: opened)
    annotated = tmp_path / "annotated.mp4"
    code, rows, summary, lines, errors = run(
        capsys, tmp_path / "out", "--weights", model, "--stream", "0", "--every", 1, "--annotate", annotated
    )
    assert code == 2 and errors.endswith("is it still connected?\n") and closed == [1]
    assert len(rows) == summary["predictions"] == 4 and "(assumed: the source does not tell)" in lines
    assert len(list(overlay.read_video(str(annotated)))) == 4


def test_a_model_of_clips_that_is_not_causal_sees_a_window(model, video, tmp_path, capsys):
    """The last frames as a clip, of which the first one is repeated at the beginning."""
    change = "model.shift_direction=future"
    code, rows, _, _, errors = run(
        capsys,
        tmp_path / "out",
        "--weights",
        model,
        "-o",
        change,
        "--stream",
        video,
        "--every",
        3,
        "--smooth",
        1,
        "--top",
        8,
    )
    assert (code, errors) == (0, "") and [row["frame"] for row in rows] == [0, 3, 6, 9]
    frames = [pixels for pixels, _ in overlay.read_video(video)][::3]
    for row, clip in zip(rows, ([frames[0]] * 2, frames[:2], frames[1:3], frames[2:]), strict=True):
        expected = clip_probabilities(model, clip, change)
        for name, probability in by_name(row).items():
            np.testing.assert_allclose(probability, expected[name], rtol=1e-5)
    assert len({row["predictions"][0]["probability"] for row in rows}) == 4


def test_a_model_of_images_sees_each_frame(image_model, video, tmp_path, capsys):
    weights = image_model[0]
    code, rows, summary, _, errors = run(
        capsys, tmp_path / "out", "--weights", weights, "--stream", video, "--smooth", 1, "--top", 8
    )
    assert (code, errors) == (0, "") and len(rows) == FRAMES and summary["every"] == 1
    frames = [pixels for pixels, _ in overlay.read_video(video)]
    for row, result in zip(rows, zoo.load(weights).predict(frames), strict=True):
        assert list(by_name(row)) == list(result.labels)
        np.testing.assert_allclose(list(by_name(row).values()), result.probabilities, rtol=1e-5)


def write_frames(video, folder):
    """Write the frames of a video as images; return their paths."""
    paths = [str(folder / f"{number}.png") for number in range(FRAMES)]
    for path, (pixels, _) in zip(paths, overlay.read_video(video), strict=True):
        overlay.write_image(path, pixels)
    return paths


def test_scenes_of_a_stream_are_those_of_its_frames(scene_model, video, tmp_path, capsys):
    """Each has its mask; the video shows the last one over the frames that the model does not see."""
    words = ("--weights", scene_model[0])
    paths, annotated = write_frames(video, tmp_path), tmp_path / "annotated.mp4"
    assert call_zoo("predict", *paths, *words, "--batch", "1", "--out", str(tmp_path / "files")) == 0
    code, rows, summary, lines, errors = run(
        capsys, tmp_path / "out", *words, "--stream", video, "--every", 3, "--annotate", annotated
    )
    assert (code, errors, summary["smooth"]) == (0, "", 1) and "a label is" not in lines
    expected = read_results(tmp_path / "files")["files"]
    for row, still in zip(rows, expected[::3], strict=True):
        assert row["shares"] == still["shares"]
        mask, label = (np.asarray(Image.open(each["written"]["labels"])) for each in (row, still))
        assert np.array_equal(mask, label) and row["written"]["labels"].endswith(f"frame_{row['frame']:06d}_labels.png")
    colors, shown = masks.class_colors(CLASSES), [pixels for pixels, _ in overlay.read_video(str(annotated))]
    for number, path in enumerate(paths):
        image = np.asarray(Image.open(path))
        width = image.shape[1]
        labels = np.asarray(Image.open(rows[number // 3]["written"]["labels"]))
        enlarged = overlay.blend(image, labels, colors).repeat(512 // width, 0).repeat(512 // width, 1)
        assert np.abs(enlarged - shown[number][: enlarged.shape[0], : enlarged.shape[1]].astype(float)).mean() < 8
    code, _, _, _, errors = run(capsys, tmp_path / "no", *words, "--stream", video, "--smooth", 3)
    assert code == 2 and "--smooth: is for classes, and the task of this model is segment" in errors


def test_faces_of_a_stream_are_those_of_its_frames(tmp_path, capsys, video):
    """Embeddings, and the most similar images of an album; frames of another size are resized only if asked to."""
    settings = {"model.depth": 18, "model.width": 8, "model.embedding": 8, "data.size": 16, "data.identities": 6}
    with datasets_allowed():
        weights = train(tmp_path, "arcface_demo.yaml", {**settings, "data.root": tmp_path / "set"}, 3)
    (tmp_path / "album").mkdir()
    paths, words = write_frames(video, tmp_path / "album"), ("--weights", weights, "-o", "data.resize=true")
    assert call_zoo("predict", *paths, *words, "--batch", "1", "--out", str(tmp_path / "files")) == 0
    album = ("--search", tmp_path / "album", "--top", 2)
    code, rows, _, lines, errors = run(
        capsys, tmp_path / "out", *words, "--stream", video, *album, "--annotate", tmp_path / "a.mp4"
    )
    assert (code, errors) == (0, "")
    expected = read_results(tmp_path / "files")["files"]
    for row, still in zip(rows, expected, strict=True):
        np.testing.assert_allclose(row["embedding"], still["embedding"], atol=1e-5)
        first, second = row["most_similar"]
        assert first["cosine"] == pytest.approx(1, abs=1e-5) and first["cosine"] >= second["cosine"]
    assert rows[0]["most_similar"][0]["file"] in lines
    code, _, _, _, errors = run(capsys, tmp_path / "no", "--weights", weights, "--stream", video)
    assert code == 2 and "not 16 x 16; faces should be aligned already" in errors and "Traceback" not in errors


@pytest.mark.parametrize(
    "words, message",
    [
        (["--stream", "9"], "there is no camera /dev/video9"),
        (["--stream", "VIDEO", "VIDEO"], "give files or folders to predict, or a stream alone"),
        ([], "give files or folders to predict, or a stream alone"),
        (["--stream", "VIDEO", "--every", "0"], "--every: must be from 1"),
        (["VIDEO", "--realtime"], "--realtime: is for a stream"),
        (["--stream", "VIDEO", "--search", "album"], "--search: is for models of faces"),
        (["--stream", "VIDEO", "--annotate", "VIDEO"], "exists"),
    ],
)
def test_what_cannot_be_streamed(words, message, model, video, tmp_path, capsys):
    words = [video if word == "VIDEO" else word for word in words]
    code, _, _, _, errors = run(capsys, tmp_path / "out", "--weights", model, *words)
    assert code == 2 and not (tmp_path / "out").exists()
    assert re.search(message, errors) and "Traceback" not in errors
