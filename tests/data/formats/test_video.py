"""Decoding of intact videos: exact frames, from keyframes and from the start. test_damaged_video.py has the others."""

import subprocess
import sys

import av
import numpy as np
import pytest

from tests.helpers.clips import (
    encode,
    encode_rotated,
    has_encoder,
    numbered,
    read_numbers,
    sampling,
    textured,
    video_frames,
    with_edit_list,
)
from zoo.data.errors import BadSample
from zoo.data.formats import keyframes, video

COUNT = 40
FORMATS = [  # codec, extension, frames per second, width, height, further options
    ("libx264", "mp4", 25, 96, 64, {}),
    ("libx264", "mp4", "30000/1001", 96, 64, {"bf": "0"}),
    ("libx264", "mkv", 30, 64, 96, {}),
    ("libx264", "mp4", 25, 97, 65, {"pix_fmt": "yuv444p"}),
    ("libx264", "mp4", 24, 96, 64, {"pix_fmt": "gray"}),
    ("libx265", "mp4", "30000/1001", 96, 64, {}),
    ("libx264", "mp4", 24, 96, 64, {"pix_fmt": "yuv420p10le"}),
    ("libx264", "mp4", 24, 96, 64, {"x264-params": "interlaced=1"}),
    ("libvpx-vp9", "webm", 30, 97, 65, {}),
    ("mpeg4", "avi", 25, 96, 64, {}),
    ("mpeg4", "mp4", "30000/1001", 65, 97, {"bf": "2"}),
    ("libsvtav1", "mp4", 25, 96, 64, {}),
]
SAMPLES = {
    "all": list(range(COUNT)),
    "spread": [2, 7, 12, 17, 22, 27, 32, 37],
    "last": [COUNT - 1],
    "first": [0],
    "backwards": [39, 30, 11, 10, 0],
    "again": [5, 5, 33, 5, 33],
    "random": [17, 3, 38, 21, 4, 16, 39, 1],
}


def encoder(codec, *values):
    return pytest.param(codec, *values, marks=pytest.mark.skipif(not has_encoder(codec), reason=f"no {codec}"))


@pytest.fixture(scope="session", params=FORMATS, ids=lambda f: "-".join(map(str, f[:5])).replace("/", ":"))
def encoded(request, tmp_path_factory):
    codec, extension, rate, width, height, options = request.param
    if not has_encoder(codec):
        pytest.skip(f"no encoder {codec}")
    path = tmp_path_factory.mktemp("clips") / f"clip.{extension}"
    return encode(path, numbered(COUNT, width, height), codec, rate, **options), (height, width, 3)


def test_decoders_are_not_imported_with_the_module():
    code = "import sys; from zoo.data.formats import video; print({'av'} & set(sys.modules))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "set()"


def test_every_sampled_frame_is_exact(encoded):
    path, shape = encoded
    for name, numbers in SAMPLES.items():
        frames = video_frames(path, sampling(numbers))
        assert frames.shape == (len(numbers), *shape) and frames.dtype == np.uint8, name
        assert read_numbers(frames) == numbers, name


def test_a_variable_frame_rate(tmp_path):
    """Frames count, not seconds."""
    path, times = str(tmp_path / "a.mp4"), np.cumsum(np.random.default_rng(0).integers(1, 9, COUNT))
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt, stream.codec_context.gop_size = 96, 64, "yuv420p", 12
        for number, pixels in enumerate(numbered(COUNT)):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts = int(times[number])
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with av.open(path) as container:
        durations = {packet.duration for packet in container.demux(video=0) if packet.size}
    assert len(durations) > 3
    for numbers in SAMPLES.values():
        assert read_numbers(video_frames(path, sampling(numbers))) == numbers


def test_frames_are_drawn_once_though_two_decoders_try(tmp_path, monkeypatch):
    path, counts = encode(tmp_path / "a.mp4", numbered(9)), []
    monkeypatch.setattr(video, "decode_numbers", lambda *_: None)
    assert read_numbers(video_frames(path, lambda n: counts.append(n) or np.arange(3))) == [0, 1, 2]
    assert counts == [9]


@pytest.mark.parametrize("first, count", [(0, 25), (5, 35), (12, 28), (17, 11)])
@pytest.mark.parametrize(
    "codec, options",
    [
        encoder("libx264", {"bf": "2"}),
        encoder("libx264", {"x264-params": "interlaced=1"}),
        encoder("libx265", {}),
        encoder("mpeg4", {"bf": "2"}),
    ],
)
def test_frames_outside_of_an_edit_list_do_not_count(codec, options, first, count, tmp_path):
    """The frames are those that a player shows; keyframes are 0, 12, 24 and 36."""
    path = with_edit_list(
        encode(tmp_path / "whole.mp4", numbered(COUNT), codec, **options), tmp_path / "a.mp4", first, count
    )
    with av.open(path) as container:
        shown = read_numbers(frame.to_ndarray(format="rgb24") for frame in container.decode(video=0))
    assert shown == list(range(first, first + count))
    lengths = []
    numbers = [count - 1, 0, count // 2]
    frames = video_frames(path, lambda n: lengths.append(n) or np.array(numbers))
    assert read_numbers(frames) == [first + number for number in numbers] and set(lengths) == {count}
    assert np.array_equal(video.read_frames(path, lambda _: np.array(numbers), decoder="decord"), frames)


def test_a_truncated_video_with_an_edit_list_is_no_shorter_one(tmp_path):
    """Packets that an edit list leaves out are there; those that a truncated file lacks are not."""
    fast = {"container_options": {"movflags": "faststart"}}
    whole = encode(tmp_path / "whole.mp4", numbered(COUNT), bf="0", **fast)
    path = with_edit_list(whole, tmp_path / "edited.mp4", 12, 28)
    with av.open(path) as container:
        end = [packet.pos for packet in container.demux(video=0)][20]
    with open(path, "rb") as file:
        (tmp_path / "short.mp4").write_bytes(file.read(end))
    with pytest.raises(BadSample, match="it is truncated"):
        video_frames(str(tmp_path / "short.mp4"), lambda n: np.array([n - 1]))


@pytest.mark.parametrize("codec", [encoder("libx264"), encoder("libsvtav1")])
def test_colors_are_in_rgb_order(codec, tmp_path):
    frames = np.zeros((5, 64, 96, 3), np.uint8)
    frames[..., 0], frames[..., 1], frames[..., 2] = 200, 100, 40
    decoded = video_frames(encode(tmp_path / "red.mp4", frames, codec), sampling([0, 4]))
    assert np.abs(decoded.mean((0, 1, 2)) - (200, 100, 40)).max() < 12


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_rotation_is_applied(tmp_path, degrees):
    path = str(tmp_path / "rotated.mp4")
    frames = encode_rotated(path, 12, degrees)
    with av.open(path) as container:
        rotation = next(container.decode(video=0)).rotation
    assert rotation % 360 == degrees
    decoded = video_frames(path, lambda n: np.array([0, 5, 11]))
    expected = np.rot90(frames[:3], degrees // 90, axes=(1, 2))
    assert decoded.shape == expected.shape and np.abs(decoded.astype(int) - expected).mean() < 8


def spread(count):
    return np.array([20, 7, count - 1, 3])


OPEN = {"x264-params": "open-gop=1:bframes=5:keyint=10:min-keyint=2"}
REFRESHED = {"x264-params": "intra-refresh=1:bframes=0:keyint=15"}


@pytest.mark.parametrize(
    "codec, options, is_decord",
    [
        ("libx264", {}, True),
        ("libx264", OPEN, False),
        ("libx264", REFRESHED, False),
        ("libx264", {"pix_fmt": "yuv422p10le"}, False),
        ("libx265", {}, False),
    ],
)
def test_decord_reads_what_it_reads_rightly(codec, options, is_decord, tmp_path, monkeypatch):
    decord = pytest.importorskip("decord")
    path = encode(tmp_path / "a.mp4", textured(40), codec, **options)
    readers, original = [], decord.VideoReader
    monkeypatch.setattr(decord, "VideoReader", lambda *args, **options: readers.append(1) or original(*args, **options))
    frames = [video.read_frames(path, spread, decoder=decoder) for decoder in ("pyav", "decord")]
    assert len(readers) == is_decord and np.array_equal(*frames)
    monkeypatch.setattr(decord, "VideoReader", lambda *_, **__: original(encode(tmp_path / "b.mp4", numbered(41))))
    assert np.array_equal(video.read_frames(path, spread, decoder="decord"), frames[0])


def test_decord_does_not_read_a_header_without_a_table_of_keyframes(tmp_path):
    pytest.importorskip("decord")
    path = tmp_path / "a.mp4"
    encode(path, textured(40))
    path.write_bytes(path.read_bytes().replace(b"stss", b"free"))
    frames = [video.read_frames(str(path), spread, decoder=decoder) for decoder in ("pyav", "decord")]
    assert np.array_equal(*frames)


VIDEOS = {  # name: codec, extension, options
    "b_frames": ("libx264", "mp4", {"gop": 12, "bf": "3"}),
    "one_keyframe": ("libx264", "mp4", {"gop": 250}),
    "open_gop": ("libx264", "mp4", {"gop": 10, "x264-params": "open-gop=1:bframes=3:b-pyramid=normal"}),
    "intra_refresh": ("libx264", "mp4", {"gop": 12, "x264-params": "intra-refresh=1"}),
    "hevc": ("libx265", "mp4", {"gop": 10}),
    "vp9": ("libvpx-vp9", "webm", {"gop": 10}),
    "av1": ("libsvtav1", "mp4", {"gop": 10}),
}


def decode_all(path):
    with av.open(path) as container:
        container.streams.video[0].codec_context.thread_count = 1
        return [np.rot90(frame.to_ndarray(format="rgb24"), frame.rotation // 90) for frame in container.decode(video=0)]


def decode(path, numbers):
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        index = video.read_index(container, stream)
        return index and video.decode_numbers(stream, index, numbers)


@pytest.fixture(scope="module", params=VIDEOS)
def coded(request, tmp_path_factory):
    codec, extension, options = VIDEOS[request.param]
    if not has_encoder(codec):
        pytest.skip(f"no encoder {codec}")
    path = tmp_path_factory.mktemp("keyframes") / f"{request.param}.{extension}"
    return request.param, encode(path, textured(COUNT), codec, **options)


def test_frames_equal_those_of_the_whole_video(coded):
    _, path = coded
    whole, rng = decode_all(path), np.random.default_rng(1)
    assert len(whole) == COUNT
    draws = [[0], [COUNT - 1], [5, 5, 33, 0], list(range(COUNT))]
    draws += [rng.integers(0, COUNT, 5).tolist() for _ in range(8)]
    for numbers in draws:
        frames = decode(path, numbers)
        assert all(np.array_equal(frame, whole[number]) for frame, number in zip(frames, numbers)), numbers


def test_packets_that_are_not_needed_are_not_decoded(tmp_path, monkeypatch):
    path = encode(tmp_path / "short.mp4", textured(COUNT), gop=5, bf="0")
    given = []
    original = keyframes.decode_packets

    def counting(stream, packets, wanted):
        before = list(original(stream, packets, wanted))
        given.append(len(before))
        return before

    monkeypatch.setattr(keyframes, "decode_packets", counting)
    decode(path, [6, 22])
    assert given == [1, 2, 3]  # frame 0, frames 5 and 6, frames 20 to 22


def test_a_video_without_its_first_keyframe_has_no_index(tmp_path):
    path, late = encode(tmp_path / "a.mp4", textured(20), gop=10), str(tmp_path / "late.mp4")
    with av.open(path) as source, av.open(late, "w") as copy:
        stream = copy.add_stream_from_template(source.streams.video[0])
        for packet in list(source.demux(video=0))[3:]:
            if packet.dts is not None:
                packet.stream = stream
                copy.mux(packet)
    assert decode(late, [0]) is None
