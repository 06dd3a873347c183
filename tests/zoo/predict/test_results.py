"""Inputs and results of predictions, a predictor for every data set, overlays and videos."""

from fractions import Fraction

import av
import numpy as np
import pytest

from tests.helpers import clips as encoded
from zoo import data
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import masks
from zoo.predict import overlay
from zoo.predict.classify import softmax
from zoo.predict.predictors import PREDICTORS, find_predictor
from zoo.predict.results import count_frames, find_inputs, output_stems


def test_outputs_of_files_of_the_same_name_are_kept_apart():
    assert output_stems(["a/x.png", "b/x.png", "x-2.png", "c/x.jpg", "y", "http://h/a.b.mp4?c=d.e"]) == [
        "x",
        "x-2",
        "x-2-2",
        "x-3",
        "y",
        "a.b",
    ]
    long = "\u732b" * 80  # 240 bytes, to which endings of outputs are added
    assert output_stems([f"a/{long}.png", f"b/{long}.png"]) == ["\u732b" * 66, "\u732b" * 66 + "-2"]


@pytest.fixture
def folder(tmp_path):
    for name in ("b.PNG", "a/z.jpg", "a/c/d.txt", "a/.hidden.jpg", ".git/e.jpg", "x/img_00001.jpg", "x/img_2.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def test_folders_are_searched_and_files_are_taken_as_they_are(folder):
    empty = str(folder / "a/c")
    url = "https://host/a.jpg?size=3"
    found = find_inputs([empty, str(folder), "lost", url, str(folder / "a/c/d.txt")], (".png", ".jpg"), None)
    names = ("b.PNG", "a/z.jpg", "x/img_00001.jpg", "x/img_2.jpg")
    assert found == [
        (empty, "nothing in this folder ends in .png, .jpg"),
        *((str(folder / name), "") for name in names),
        ("lost", "no such file"),
        (url, ""),
        (str(folder / "a/c/d.txt"), ""),
    ]


def test_folders_of_frames_are_inputs(folder):
    ((path, _),) = find_inputs([str(folder)], (".mp4",), "img_{:05d}.jpg")
    assert path == str(folder / "x") and count_frames(path, "img_{:05d}.jpg") == 2
    assert count_frames(path, None) == count_frames("lost", "img_{:05d}.jpg") == 0


def test_every_data_set_has_a_predictor_that_describes_its_model_input():
    assert sorted(name for datasets in PREDICTORS.values() for name in datasets) == data.names()
    for datasets in PREDICTORS.values():
        for name, predictor in datasets.items():
            field = predictor.fields(data.find(name).Settings())[0]
            assert field.mean and field.shape[-1] == 3 and predictor.extensions
    with pytest.raises(UserError, match="task classify and the data set cityscapes: add one to PREDICTORS"):
        find_predictor("classify", "cityscapes")


def test_logits_that_are_large_or_not_finite():
    np.testing.assert_allclose(softmax(np.array([1e4, 1e4, -1e4])), [0.5, 0.5, 0])
    with pytest.raises(BadSample, match="logits are not finite"):
        softmax(np.array([0.0, np.inf]))


@pytest.mark.parametrize("height, width, count", [(7, 9, 3), (1024, 2048, 19), (1500, 60, 12), (300, 300, 1)])
def test_a_legend_is_below_the_image_and_legible(height, width, count):
    names = [f"class number {label}" for label in range(count)]
    legend = overlay.Legend(height, width, names, masks.class_colors(names), range(count))
    canvas = legend.attach(np.full((height, width, 3), 77, np.uint8), np.full(count, 1 / count))
    image_height, image_width = legend.factor * height, legend.factor * width
    assert (canvas[:image_height, :image_width] == 77).all()
    assert max(image_height, image_width) > overlay.ENLARGED_SIZE // 2
    assert legend.font.size >= max(overlay.MIN_FONT_SIZE, min(image_height, image_width) // 33)
    assert (canvas[-1] == 255).all() and (canvas[image_height:, -1] == 255).all()  # the text ends before the edge
    assert len(set(legend.places)) == count
    for x, y in legend.places:
        right, bottom = x + 3 * legend.line_height, y + legend.line_height
        assert y >= image_height and right <= canvas.shape[1] and bottom <= canvas.shape[0]
        assert (canvas[y:bottom, x:right] != 255).any()


@pytest.mark.parametrize("is_mirrored", [False, True])
@pytest.mark.parametrize("degrees", [90, 180])
def test_videos_are_read_upright(degrees, is_mirrored, tmp_path):
    """A white top left corner goes where the rotation in the metadata moves it."""
    stored = np.zeros((48, 96, 3), np.uint8)
    stored[:24, :48] = 255
    path = str(tmp_path / "turned.mp4")
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=12)
        stream.width, stream.height, stream.pix_fmt = 96, 48, "yuv420p"
        stream.set_display_rotation(degrees, hflip=is_mirrored)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(stored, format="rgb24")))
        container.mux(stream.encode())
    ((upright, _),) = overlay.read_video(path)
    expected = np.rot90(stored, degrees // 90)
    expected = expected[:, ::-1] if is_mirrored else expected
    assert upright.shape == expected.shape and np.abs(upright.astype(int) - expected).mean() < 8


@pytest.mark.parametrize("content", [b"no video" * 100, None])
def test_other_files_are_bad_samples(content, tmp_path):
    if content is not None:
        (tmp_path / "a.mp4").write_bytes(content)
    with pytest.raises(BadSample, match="cannot be decoded as video"):
        list(overlay.read_video(str(tmp_path / "a.mp4")))


def test_a_truncated_video_is_a_bad_sample(tmp_path):
    """Truncated in its middle, where the frames are read one by one."""
    rng = np.random.default_rng(0)
    path = tmp_path / "a.mp4"
    encoded.encode(path, rng.integers(0, 256, (20, 64, 64, 3), np.uint8), container_options={"movflags": "faststart"})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(BadSample, match="it is truncated"):
        list(overlay.read_video(str(path)))


@pytest.mark.parametrize("height, width", [(48, 64), (49, 63)])
def test_videos_are_written_at_their_frame_rate_and_padded_to_even_sides(height, width, tmp_path):
    rate = Fraction(30000, 1001)
    frames = [np.full((height, width, 3), 10 * number, np.uint8) for number in range(12)]
    overlay.write_video(str(tmp_path / "a.mp4"), ((pixels, rate) for pixels in frames))
    read = list(overlay.read_video(str(tmp_path / "a.mp4")))
    assert [round(pixels.mean() / 10) for pixels, _ in read] == list(range(12)) and {
        frame_rate for _, frame_rate in read
    } == {rate}
    assert read[0][0].shape == (height + height % 2, width + width % 2, 3)
