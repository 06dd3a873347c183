"""Frames decoded from keyframes against a decode of the whole video, bit for bit, and videos that are refused."""

import av
import numpy as np
import pytest

from data.formats import keyframes
from tests.helpers.clips import encode, has_encoder

COUNT, WIDTH, HEIGHT = 40, 96, 64
VIDEOS = {  # name: codec, extension, options
    "b_frames": ("libx264", "mp4", {"gop": 12, "bf": "3"}),
    "one_keyframe": ("libx264", "mp4", {"gop": 250}),
    "no_b_frames": ("libx264", "mp4", {"gop": 8, "bf": "0"}),
    "open_gop": ("libx264", "mp4", {"gop": 10, "x264-params": "open-gop=1:bframes=3:b-pyramid=normal"}),
    "intra_refresh": ("libx264", "mp4", {"gop": 12, "x264-params": "intra-refresh=1"}),
    "mkv": ("libx264", "mkv", {"gop": 12}),
    "odd_size": ("libx264", "mp4", {"gop": 12, "pix_fmt": "yuv444p"}),
    "hevc": ("libx265", "mp4", {"gop": 10}),
    "vp9": ("libvpx-vp9", "webm", {"gop": 10}),
    "av1": ("libsvtav1", "mp4", {"gop": 10}),
}


def moving(count=COUNT):
    """Frames (count, HEIGHT, WIDTH, 3) of a drifting texture, so that the codec needs motion and residuals."""
    texture = np.random.default_rng(0).integers(0, 256, (HEIGHT // 8 + count, WIDTH // 8 + count, 3), dtype=np.uint8)
    large = np.kron(texture, np.ones((8, 8, 1), np.uint8))
    return np.stack([large[2 * at : 2 * at + HEIGHT, 3 * at : 3 * at + WIDTH] for at in range(count)])


def decode_all(path):
    with av.open(path) as container:
        container.streams.video[0].codec_context.thread_count = 1
        return [keyframes.upright(frame) for frame in container.decode(video=0)]


def decode(path, numbers):
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        index = keyframes.read_index(container, stream)
        return index and keyframes.decode(stream, index, numbers)


@pytest.fixture(scope="module", params=VIDEOS)
def video(request, tmp_path_factory):
    codec, extension, options = VIDEOS[request.param]
    if not has_encoder(codec):
        pytest.skip(f"no encoder {codec}")
    path = tmp_path_factory.mktemp("keyframes") / f"{request.param}.{extension}"
    return request.param, encode(path, moving(), codec, **options)


def test_frames_equal_those_of_the_whole_video(video):
    _, path = video
    whole, rng = decode_all(path), np.random.default_rng(1)
    assert len(whole) == COUNT
    draws = [[0], [COUNT - 1], [5, 5, 33, 0], list(range(COUNT))]
    draws += [rng.integers(0, COUNT, 5).tolist() for _ in range(12)]
    for numbers in draws:
        frames = decode(path, numbers)
        assert all(np.array_equal(frame, whole[number]) for frame, number in zip(frames, numbers)), numbers


def test_packets_that_are_not_needed_are_not_decoded(tmp_path, monkeypatch):
    path = encode(tmp_path / "short.mp4", moving(), gop=5, bf="0")
    given = []
    original = keyframes._decode_from

    def counting(stream, packets, wanted):
        before = list(original(stream, packets, wanted))
        given.append(len(before))
        return before

    monkeypatch.setattr(keyframes, "_decode_from", counting)
    decode(path, [6, 22])
    assert given == [2, 3]  # frames 5 and 6, frames 20 to 22


def test_an_interlaced_video_is_refused(tmp_path):
    path = encode(tmp_path / "interlaced.mp4", moving(6), **{"x264-params": "interlaced=1"})
    assert decode(path, [3]) is None


def test_irregular_videos_have_no_index(tmp_path):
    path = encode(tmp_path / "a.mp4", moving(20), gop=10)
    late, shifted = str(tmp_path / "late.mp4"), str(tmp_path / "shifted.mp4")
    for target, skipped, shift in ((late, 3, 0), (shifted, 0, 4)):
        with av.open(path) as source, av.open(target, "w") as copy:
            stream = copy.add_stream_from_template(source.streams.video[0])
            for number, packet in enumerate(source.demux(video=0)):
                if packet.dts is None or number < skipped:
                    continue
                packet.pts, packet.dts = packet.pts - shift * packet.duration, packet.dts - shift * packet.duration
                packet.stream = stream
                copy.mux(packet)
        assert decode(target, [0]) is None
