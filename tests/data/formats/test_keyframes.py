"""Frames decoded from keyframes against a decode of the whole video, bit for bit, and videos that are refused."""

import av
import numpy as np
import pytest

from tests.helpers.clips import encode, has_encoder, with_edit_list
from zoo.data.formats import video as videos

COUNT, WIDTH, HEIGHT = 40, 96, 64
VIDEOS = {  # name: codec, extension, options
    "b_frames": ("libx264", "mp4", {"gop": 12, "bf": "3"}),
    "one_keyframe": ("libx264", "mp4", {"gop": 250}),
    "open_gop": ("libx264", "mp4", {"gop": 10, "x264-params": "open-gop=1:bframes=3:b-pyramid=normal"}),
    "intra_refresh": ("libx264", "mp4", {"gop": 12, "x264-params": "intra-refresh=1"}),
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
        return [np.rot90(frame.to_ndarray(format="rgb24"), frame.rotation // 90) for frame in container.decode(video=0)]


def decode(path, numbers):
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        index = videos.read_index(container, stream)
        return index and videos.decode_numbers(stream, index, numbers)


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
    draws += [rng.integers(0, COUNT, 5).tolist() for _ in range(8)]
    for numbers in draws:
        frames = decode(path, numbers)
        assert all(np.array_equal(frame, whole[number]) for frame, number in zip(frames, numbers)), numbers


def test_packets_that_are_not_needed_are_not_decoded(tmp_path, monkeypatch):
    path = encode(tmp_path / "short.mp4", moving(), gop=5, bf="0")
    given = []
    original = videos._decode_packets

    def counting(stream, packets, wanted):
        before = list(original(stream, packets, wanted))
        given.append(len(before))
        return before

    monkeypatch.setattr(videos, "_decode_packets", counting)
    decode(path, [6, 22])
    assert given == [2, 3]  # frames 5 and 6, frames 20 to 22


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_frames_that_are_not_shown_do_not_count_but_are_referred_to(codec, tmp_path):
    if not has_encoder(codec):
        pytest.skip(f"no encoder {codec}")
    path = encode(tmp_path / "a.mp4", moving(20), codec, gop=10)
    edited = with_edit_list(path, tmp_path / "edited.mp4", 4, 13)
    whole = decode_all(path)[4:17]
    for numbers in ([0], [12], [7, 7, 5], list(range(13))):
        frames = decode(edited, numbers)
        assert all(np.array_equal(frame, whole[number]) for frame, number in zip(frames, numbers)), numbers
    with av.open(edited) as container:
        index = videos.read_index(container, container.streams.video[0])
    assert (len(index.packets), len(index.timestamps)) == (20, 13)


def test_a_video_without_its_first_keyframe_has_no_index(tmp_path):
    path, late = encode(tmp_path / "a.mp4", moving(20), gop=10), str(tmp_path / "late.mp4")
    with av.open(path) as source, av.open(late, "w") as copy:
        stream = copy.add_stream_from_template(source.streams.video[0])
        for packet in list(source.demux(video=0))[3:]:
            if packet.dts is not None:
                packet.stream = stream
                copy.mux(packet)
    assert decode(late, [0]) is None
