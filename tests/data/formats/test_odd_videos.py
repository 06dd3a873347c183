"""Videos as cameras, recorders and old programs write them: each frame is that of a decoding of the whole file."""

import io
import itertools
import re
import sys
from fractions import Fraction
from functools import partial

import av
import numpy as np
import pytest
from PIL import Image

from tests.helpers.clips import encode, has_encoder, numbered, read_numbers, textured
from zoo.data.errors import BadSample
from zoo.data.formats import keyframes, video
from zoo.data.formats.lists import VIDEO_EXTENSIONS
from zoo.data.preparing.encoding import upright_frames, video_properties

COUNT = 24
NOT_CODED = b"\0\0\1\xb6\x51\xcf"  # a frame of MPEG-4 that repeats the one before, at 25 frames per second


def in_sequence(path):
    """Decode a whole video by PyAV alone."""
    with av.open(path) as container:
        container.streams.video[0].codec_context.thread_count = 1
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def read(path, numbers=None, lengths=None):
    """Return frames of a video by number, by default all; append the number that there are."""
    counts = []
    frames = video.read_frames(path, lambda n: counts.append(n) or np.arange(n) if numbers is None else numbers)
    if lengths is not None:
        lengths += counts[-1:]
    return frames


def assert_exact(path, is_regular):
    """Compare each frame that is read alone with that of the whole video."""
    whole = in_sequence(path)
    with av.open(path) as container:
        assert (video.read_index(container, container.streams.video[0]) is not None) == is_regular
    lengths = []
    assert len(read(path, lengths=lengths)) == len(whole) == lengths[0] == video_properties(path).frames
    for number, frame in enumerate(whole):
        assert np.array_equal(read(path, np.array([number]))[0], frame), number


def packets(path):
    with av.open(path) as container:
        return [(bytes(packet), packet.is_keyframe) for packet in container.demux(video=0) if packet.size]


def write_packets(source, target, contents):
    """Write packets (content, whether it is a keyframe), or None for a time without one, with the header of a video."""
    with av.open(source) as like, av.open(str(target), "w") as container:
        stream = container.add_stream_from_template(like.streams.video[0])
        for number, content in enumerate(contents):
            if content is not None:
                packet = av.Packet(content[0])
                packet.is_keyframe, packet.stream = content[1], stream
                packet.pts = packet.dts = number
                packet.time_base = Fraction(1, 25)
                container.mux(packet)
    return str(target)


def cut(source, target):
    """Copy a video from its second keyframe on."""
    with av.open(source) as container, av.open(str(target), "w") as copy:
        stream = copy.add_stream_from_template(container.streams.video[0])
        begun = -1
        for packet in container.demux(video=0):
            begun += packet.is_keyframe
            if packet.size and begun > 0:
                packet.stream = stream
                copy.mux(packet)
    return str(target)


def test_an_old_x264_whose_decoding_depends_on_the_first_packet(tmp_path):
    """Of 4:4:4 the decoder learns from the version in packet 0 alone; here it finds damage in frames 0 and 16."""
    path = tmp_path / "a.mp4"
    encode(path, textured(COUNT), pix_fmt="yuv444p", gop=8, crf="18")
    content = bytearray(path.read_bytes())
    at = content.index(keyframes.X264) + len(keyframes.X264)
    content[at : at + 3] = b"142"
    path.write_bytes(content)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        index = video.read_index(container, stream)
        assert video._decode_with_decord(str(path), stream, index, [3]) is None
        assert keyframes.decode_numbers(stream, index, [16]) is None
    for number, frame in enumerate(in_sequence(str(path))):
        assert np.array_equal(read(str(path), np.array([number]))[0], frame), number
    assert video.compare_frames(str(path), lambda n: np.arange(0, n, 5)) == 2


@pytest.mark.parametrize("extension", ["mp4", "mkv"])
def test_time_stamps_of_decoding(extension, tmp_path):
    """Programs that copy a raw stream of H.264 write its frames at the times at which they are decoded."""
    source = encode(tmp_path / "a.mp4", textured(COUNT), gop=8, bf="3")
    assert_exact(write_packets(source, tmp_path / f"b.{extension}", packets(source)), False)


def test_frames_that_refer_to_a_damaged_keyframe(tmp_path):
    """What the decoder fills in for the damage depends on the frames before; it does not call all of them corrupt."""
    path = tmp_path / "a.mp4"
    encode(path, textured(COUNT), bf="3")
    with av.open(str(path)) as container:
        _, second = [packet for packet in container.demux(video=0) if packet.is_keyframe]
    content = bytearray(path.read_bytes())
    content[second.pos + second.size // 3 : second.pos + second.size] = bytes(second.size - second.size // 3)
    path.write_bytes(content)
    for number, frame in enumerate(in_sequence(str(path))):
        assert np.array_equal(read(str(path), np.array([number]))[0], frame), number


def test_frames_are_freed_without_a_garbage_collection(tmp_path):
    with av.open(encode(tmp_path / "a.mp4", numbered(1))) as container:
        (frame,) = container.decode(video=0)
    references = sys.getrefcount(frame)
    assert keyframes.orientation(frame) == keyframes.UPRIGHT and sys.getrefcount(frame) == references


def first_alone(contents):
    """Remove the parameter sets of all keyframes but the first."""
    first, *rest = contents
    yield first
    for content, is_key in rest:
        slices = (start for start, _ in spans(content) if content[start + 4] & 31 in (1, 5))
        yield content[next(slices) :], is_key


def test_parameter_sets_of_the_first_packet_hold_for_all(tmp_path):
    """Those of the header differ; with them, frames are decoded to other colors, and no damage is found."""
    header = encode(tmp_path / "a.mp4", textured(COUNT), bf="0", gop=8)
    options = {"x264-params": "chroma-qp-offset=9:repeat-headers=1:bframes=0"}
    contents = first_alone(packets(encode(tmp_path / "b.mp4", textured(COUNT), gop=8, **options)))
    assert_exact(write_packets(header, tmp_path / "c.mkv", contents), True)


@pytest.mark.parametrize("size", [(64, 96), (128, 160)])
def test_parameter_sets_that_change_within_a_video(size, tmp_path):
    """Two encodings in one file; only the first keyframe of the second has its parameter sets."""
    first = encode(tmp_path / "a.mp4", textured(COUNT), bf="0", gop=8)
    options = {"x264-params": "cabac=0:8x8dct=0:repeat-headers=1:bframes=0"}
    second = first_alone(packets(encode(tmp_path / "b.mp4", textured(COUNT, *size), gop=8, **options)))
    path = write_packets(first, tmp_path / "c.mkv", [*packets(first), *second])
    frames, alone = read(path), [read(path, np.array([number]))[0] for number in range(2 * COUNT)]
    assert np.array_equal(frames, alone) and {frame.shape for frame in frames} == {(64, 96, 3)}
    if size == (64, 96):
        assert_exact(path, False)


def spans(content):
    """Yield begin and end of each NAL unit with its length."""
    end = 0
    while end < len(content):
        start, end = end, end + 4 + int.from_bytes(content[end : end + 4])
        yield start, end


def test_parameter_sets_at_every_keyframe_do_not_slow_the_reading(tmp_path):
    assert_exact(encode(tmp_path / "a.mkv", textured(COUNT), gop=8, **{"x264-params": "repeat-headers=1"}), True)


@pytest.mark.parametrize("extension", ["mp4", "mkv"])
@pytest.mark.parametrize(
    "codec, options",
    [
        ("libx264", {"x264-params": "open-gop=1:bframes=3"}),
        ("libx264", {"x264-params": "intra-refresh=1"}),
        ("libx265", {"x265-params": "open-gop=1:bframes=3:keyint=8:min-keyint=4:log-level=none"}),
    ],
)
def test_frames_before_the_first_complete_one_do_not_count(codec, options, extension, tmp_path):
    """A cut of a recording begins with frames whose references are gone, which no player shows."""
    if not has_encoder(codec):
        pytest.skip(f"no encoder {codec}")
    path = cut(encode(tmp_path / "whole.mkv", textured(40), codec, gop=8, **options), tmp_path / f"cut.{extension}")
    whole, lengths = in_sequence(path), []
    assert np.array_equal(read(path, lengths=lengths), whole) and lengths == [len(whole)]
    assert np.array_equal(read(path, np.array([3]))[0], whole[3])


def test_hidden_frames_of_vp8_do_not_count(tmp_path):
    source = encode(tmp_path / "a.webm", textured(COUNT), "libvpx", gop=8)
    contents = packets(source)
    for number in (5, 11):
        contents[number] = bytes([contents[number][0][0] & ~keyframes.VP8_SHOWN]) + contents[number][0][1:], False
    path = write_packets(source, tmp_path / "b.webm", contents)
    assert len(in_sequence(path)) == COUNT - 2
    assert_exact(path, False)


def dropped(contents):
    """As capture programs write them: a time without a frame after every fourth one."""
    return itertools.chain.from_iterable([c, None] if n % 4 == 3 else [c] for n, c in enumerate(contents))


def not_coded(contents):
    return itertools.chain.from_iterable([c, (NOT_CODED, False)] if n % 5 == 2 else [c] for n, c in enumerate(contents))


def packed(contents):
    """As DivX and XviD write B-frames: with the frame before in one packet, and a placeholder after it."""
    contents = [(re.sub(rb"Lavc[\d.]+", b"DivX503b1393p", content), key) for content, key in contents]
    first, *rest = contents
    pairs = zip(rest[::2], rest[1::2])
    return [first, *itertools.chain.from_iterable([(p[0] + b[0], p[1]), (NOT_CODED, False)] for p, b in pairs)]


@pytest.mark.parametrize("arrange", [dropped, not_coded, packed])
def test_frames_of_an_avi_file_count_that_can_be_decoded(arrange, tmp_path):
    options = {"bf": "1", "b_strategy": "0"} if arrange is packed else {}
    source = encode(tmp_path / "a.avi", numbered(25), "mpeg4", gop=100, **options)
    path = write_packets(source, tmp_path / "b.avi", arrange(packets(source)))
    assert_exact(path, False)
    assert read_numbers(read(path)) == list(range(25))
    for _ in range(2):
        with pytest.raises(BadSample, match="too short: 25 frame"):
            video.read_frames(path, np.arange, 26)


def draw(rng, lengths, count):
    lengths.append(count)
    return rng.integers(0, count, 4)


def test_a_header_that_promises_more_frames_than_there_are(tmp_path, monkeypatch):
    """The frames are counted once per file, and drawn as often whether the count is known or not."""
    monkeypatch.setattr(video, "_parts", {})
    source = encode(tmp_path / "a.avi", numbered(20), "mpeg4")
    path = write_packets(source, tmp_path / "b.avi", not_coded(packets(source)))
    decoded, original = [], video.decode_all
    monkeypatch.setattr(video, "decode_all", lambda path: decoded.append(path) or original(path))
    lengths = []
    for passes in (2, 1, 1):
        drawn = video.read_frames(path, partial(draw, np.random.default_rng(0), lengths))
        assert len(decoded) == passes and lengths == [24, 20]
        expected = np.random.default_rng(0)
        expected.integers(0, 24, 4)  # of the count of packets
        assert read_numbers(drawn) == expected.integers(0, 20, 4).tolist()
        decoded.clear()
        lengths.clear()


CONTAINERS = [
    ("mpeg4", "avi"), ("mpeg4", "m4v"), ("mpeg4", "3gp"), ("wmv2", "wmv"), ("mpeg2video", "mpg"),
    ("mpeg1video", "mpeg"), ("mpeg2video", "ts"), ("libx264", "mts"), ("libx264", "m2ts"), ("flv", "flv"),
    ("libx264", "flv"), ("mjpeg", "mov"), ("libx264", "h264"), ("libx264", "264"), ("libvpx", "ogv"),
]  # fmt: skip


@pytest.mark.parametrize("codec, extension", CONTAINERS)
def test_containers_and_codecs_that_are_read_from_the_first_frame_on(codec, extension, tmp_path):
    if not has_encoder(codec):
        pytest.skip(f"no encoder {codec}")
    assert f".{extension}" in VIDEO_EXTENSIONS
    options = {"pix_fmt": "yuvj420p"} if codec == "mjpeg" else {}
    path = encode(tmp_path / f"a.{extension}", numbered(COUNT), codec, **options)
    assert read_numbers(read(path)) == list(range(COUNT))
    assert_exact(path, False)


def oriented(path, degrees, is_mirrored):
    """Write frames with a display matrix; return what is shown."""
    stored = textured(12)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=12)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        stream.set_display_rotation(degrees, hflip=is_mirrored)
        for frame in stored:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
        container.mux(stream.encode())
    turned = [np.rot90(frame, degrees // 90) for frame in in_sequence(str(path))]
    return [frame[:, ::-1] if is_mirrored else frame for frame in turned]


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
@pytest.mark.parametrize("is_mirrored", [False, True])
@pytest.mark.parametrize("extension", ["mp4", "mkv"])
def test_rotated_and_mirrored_videos(degrees, is_mirrored, extension, tmp_path):
    path = tmp_path / f"a.{extension}"
    shown = oriented(path, degrees, is_mirrored)
    assert np.array_equal(read(str(path)), shown)
    assert np.array_equal(read(str(path), np.array([7]))[0], shown[7])
    upright = [frame.to_ndarray(format="rgb24") for frame in upright_frames(str(path))]
    assert np.array_equal(upright, shown)
    assert video_properties(str(path))[1:3] == video_properties(str(path), full=True)[1:3] == shown[0].shape[1::-1]


@pytest.mark.parametrize("tag, change", [(1, ()), (2, np.fliplr), (4, np.flipud), (6, lambda a: np.rot90(a, -1))])
def test_motion_jpeg_whose_frames_have_an_orientation(tag, change, tmp_path):
    source = encode(tmp_path / "a.avi", textured(3), "mjpeg", pix_fmt="yuvj420p")
    exif, contents = Image.Exif(), []
    exif[0x112] = tag
    for frame in textured(3):
        file = io.BytesIO()
        Image.fromarray(frame).save(file, "JPEG", exif=exif, quality=95)
        contents.append((file.getvalue(), True))
    path = write_packets(source, tmp_path / "b.avi", contents)
    shown = [change(frame) if change else frame for frame in in_sequence(path)]
    assert np.array_equal(read(path), shown)


def test_frames_of_another_size_are_resized_to_the_first(tmp_path):
    """As FFmpeg and decord do; also if the first one is not sampled."""
    sources = [encode(tmp_path / f"{w}.webm", textured(10, h, w), "libvpx") for h, w in ((96, 128), (48, 64))]
    path = write_packets(sources[0], tmp_path / "a.webm", [p for source in sources for p in packets(source)])
    small = in_sequence(sources[1])
    (frame,) = read(path, np.array([15]))
    assert frame.shape == (96, 128, 3)
    assert (
        np.abs(frame[::2, ::2].astype(int) - small[5]).mean()
        < 15
        < np.abs(frame[::2, ::2].astype(int) - small[9]).mean()
    )
    assert {frame.shape for frame in read(path)} == {(96, 128, 3)}


def test_a_comparison_with_the_whole_video(tmp_path, monkeypatch):
    path = encode(tmp_path / "a.mp4", numbered(COUNT))
    assert video.compare_frames(path, lambda n: np.arange(0, n, 7)) == 0
    monkeypatch.setattr(video, "decode_numbers", lambda stream, index, numbers: list(numbered(len(numbers))))
    with pytest.raises(BadSample, match="other frames"):
        video.compare_frames(path, lambda n: np.arange(0, n, 7))
