"""Overlays of class maps: legends that are legible at any size, and videos that are read and written whole."""

from fractions import Fraction

import av
import numpy as np
import pytest

from tests.helpers import clips as encoded
from zoo.data.errors import BadSample
from zoo.data.formats import masks
from zoo.predict import overlay

COLORS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)


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


def test_a_class_keeps_its_place_in_a_video():
    legend = overlay.Legend(64, 64, ["a", "b", "c"], COLORS, range(3))
    places = []
    for shares in ([0.1, 0.2, 0.7], [0, 0.9, 0.1], [0, 0, 1]):
        canvas = legend.attach(np.zeros((64, 64, 3), np.uint8), np.array(shares))
        places.append([tuple(np.argwhere((canvas == color).all(2))[:1].ravel()) for color in COLORS])
    assert all(places[0]) and places[1] == [(), *places[0][1:]] and places[2] == [(), (), places[0][2]]


@pytest.mark.parametrize("degrees", [90, 180])
def test_videos_are_read_upright(degrees, tmp_path):
    """A white top left corner goes where the rotation in the metadata moves it."""
    stored = np.zeros((48, 96, 3), np.uint8)
    stored[:24, :48] = 255
    path = str(tmp_path / "turned.mp4")
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=12)
        stream.width, stream.height, stream.pix_fmt = 96, 48, "yuv420p"
        stream.set_display_rotation(degrees)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(stored, format="rgb24")))
        container.mux(stream.encode())
    ((upright, _),) = overlay.read_video(path)
    expected = np.rot90(stored, degrees // 90)
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
    with pytest.raises(BadSample, match="cannot be decoded as video"):
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


def test_frames_that_the_encoder_refuses(tmp_path):
    with pytest.raises(BadSample, match="cannot be encoded"):
        overlay.write_video(str(tmp_path / "a.mp4"), [(np.zeros((2, 40000, 3), np.uint8), Fraction(25))])
