"""Decoding of damaged videos: BadSample or the frames that are left, never a hang, crash or other error."""

import io
import os
import struct

import av
import numpy as np
import pytest

from tests.helpers.clips import encode, encode_audio, has_encoder, numbered, read_numbers, sampling, video_frames
from zoo.data.errors import BadSample
from zoo.data.formats import regular, video
from zoo.data.formats.video import check_frame_counts

COUNT = 40


@pytest.fixture(scope="session")
def intact(tmp_path_factory):
    """Intact files by container or codec, with the index in front where there is one."""
    folder = tmp_path_factory.mktemp("intact")
    fast = {"container_options": {"movflags": "faststart"}}
    paths = {
        "mp4": encode(folder / "a.mp4", numbered(COUNT)),
        "fast": encode(folder / "b.mp4", numbered(COUNT), **fast),
        "mkv": encode(folder / "c.mkv", numbered(COUNT)),
        "avi": encode(folder / "d.avi", numbered(COUNT), "mpeg4"),
        "webm": encode(folder / "e.webm", numbered(COUNT), "libvpx-vp9"),
    }
    if has_encoder("libx265"):
        paths["hevc"] = encode(folder / "f.mp4", numbered(COUNT), "libx265")
    if has_encoder("libsvtav1"):
        paths["av1"] = encode(folder / "g.mp4", numbered(COUNT), "libsvtav1", **fast)
    return paths


def test_too_short_for_min_frames(intact):
    for path in intact.values():
        video_frames(path, sampling([0]), min_frames=COUNT)
        with pytest.raises(BadSample, match="40 frame.*min_frames is 41"):
            video_frames(path, sampling([0]), min_frames=COUNT + 1)


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "empty"),
        (b"not a video\n" * 100, "cannot be decoded"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "names other files"),
        (b"\xef\xbb\xbf\n#EXTM3U\nhttp://127.0.0.1:1/clip.ts\n", "names other files"),
        (b"<?xml version='1.0'?><MPD></MPD>", "names other files"),
        (b"\0" * 5000, "cannot be decoded"),
        (np.random.default_rng(0).bytes(20000), "cannot be decoded"),
    ],
    ids=["empty", "text", "ffconcat", "playlist", "dash", "zeros", "noise"],
)
@pytest.mark.parametrize("extension", ["mp4", "webm"])
def test_files_that_are_not_videos(content, reason, extension, tmp_path):
    path = tmp_path / f"clip.{extension}"
    path.write_bytes(content)
    with pytest.raises(BadSample, match=reason):
        video_frames(str(path), sampling([0]))


def test_sound_without_video(tmp_path):
    with pytest.raises(BadSample, match="there is no video in this file"):
        video_frames(encode_audio(tmp_path / "sound.mp4"), sampling([0]))


def test_missing_and_irregular_files(tmp_path):
    os.symlink(tmp_path / "nowhere", tmp_path / "link.mp4")
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe.mp4")
    for name, reason in (
        ("pipe.mp4", "not a regular file"),
        ("missing.mp4", "no such file"),
        ("link.mp4", "no such file"),
        ("", "not a regular file"),
        ("file/clip.mp4", "cannot be read .Not a directory"),
    ):
        with pytest.raises(BadSample, match=reason):
            video_frames(str(tmp_path / name), sampling([0]))


def test_frames_and_clips_that_are_too_large(intact, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(BadSample, match="its header claims 96 x 64 pixels"):
        patch.setattr(regular, "MAX_FRAME_PIXELS", 96 * 64 - 1)
        video_frames(intact["mp4"], sampling([0]))
    monkeypatch.setattr(regular, "MAX_CLIP_BYTES", 3 * 3 * 96 * 64)
    for name in ("mp4", "avi"):
        assert len(video_frames(intact[name], sampling([0, 1, 2, 2, 0]))) == 5  # three different frames
        with pytest.raises(BadSample, match="4 frames of 96 x 64 pixels have 73728 bytes, the limit is 55296"):
            video_frames(intact[name], sampling([0, 1, 2, 3]))


def first_eight(lengths):
    """Return a sampler of the first eight frames, which appends the number of frames to a list."""
    return lambda n: lengths.append(n) or np.arange(min(n, 8))


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_bad_or_gives_its_first_frames(intact, share, tmp_path):
    for name, path in intact.items():
        short = tmp_path / os.path.basename(path)
        with open(path, "rb") as file:
            content = file.read()
        short.write_bytes(content[: int(len(content) * share)])
        lengths = []
        try:
            frames = video_frames(str(short), first_eight(lengths))
        except BadSample:
            continue
        assert len(frames) == min(lengths[-1], 8) and lengths[-1] <= COUNT
        numbers = read_numbers(frames)
        if lengths[-1] >= 16:  # frames close to the cut may lack their reference frames
            assert numbers == list(range(8)), name


def test_decoders_print_nothing_about_damaged_frames(intact, tmp_path, capfd):
    """What they print does not name the file; the reason of the bad sample goes to the log with its name."""
    with open(intact["mp4"], "rb") as file:
        content = bytearray(file.read())
    with av.open(intact["mp4"]) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    for packet in packets[5:30]:  # the lengths of the parts of a frame
        content[packet.pos : packet.pos + 4] = b"\xff\xff\xff\xff"
    (tmp_path / "damaged.mp4").write_bytes(content)
    with pytest.raises(BadSample):
        eight_frames(str(tmp_path / "damaged.mp4"))
    assert capfd.readouterr().err == ""


def eight_frames(path):
    return video_frames(path, lambda n: np.linspace(0, n - 1, 8).astype(int), 3)


def patched(source, target, box, offset, content):
    """Copy an mp4 file with some bytes after a box's name replaced."""
    with open(source, "rb") as file:
        data = bytearray(file.read())
    at = data.index(box) + len(box) + offset
    data[at : at + len(content)] = content
    target.write_bytes(data)
    return str(target)


def test_tags_that_are_not_utf_8(intact, tmp_path):
    """Old cameras and editors write Latin-1, which must not affect the frames."""
    tagged = patched(intact["mp4"], tmp_path / "intact.mp4", b"VideoHand", 0, b"\xe9")
    assert read_numbers(video_frames(tagged, sampling([3]))) == [3]
    damaged = patched(tagged, tmp_path / "bad.mp4", b"mdat", 0, b"\0" * 2000)
    with pytest.raises(BadSample):
        video_frames(damaged, sampling([3]))
    if "av1" in intact:
        tagged = patched(intact["av1"], tmp_path / "av1.mp4", b"VideoHand", 0, b"\xe9")
        assert read_numbers(video_frames(tagged, sampling([3]))) == [3]


def test_an_unknown_codec(intact, tmp_path):
    unknown = patched(intact["mp4"], tmp_path / "unknown.mp4", b"avc1\0\0\0\0", -8, b"zzzz")
    with pytest.raises(BadSample, match="cannot be decoded"):
        video_frames(unknown, sampling([0]))


def test_a_format_that_is_not_read(tmp_path):
    with pytest.raises(BadSample, match="a format that is not read here"):
        video_frames(encode(tmp_path / "a.nut", numbered(1)), sampling([0]))


def test_frames_that_share_their_times(tmp_path):
    path = tmp_path / "a.webm"
    encode(path, numbered(5, 32, 16), "libvpx-vp9")
    content = path.read_bytes()
    cluster = content[content.index(b"\x1f\x43\xb6\x75") : content.index(b"\x1c\x53\xbb\x6b", 400)]
    path.write_bytes(content.replace(cluster, cluster * 51))
    assert read_numbers(video_frames(str(path), sampling([0, 127, 254]))) == [0, 2, 4]


def box(name, *contents):
    content = b"".join(contents)
    return struct.pack(">I4s", 8 + len(content), name) + content


def long_box(name, content):
    return struct.pack(">I4sQ", 1, name, 16 + len(content)) + content


def track(count, size=1, kind=b"vide", make=box):
    handler = box(b"hdlr", bytes(8), kind, bytes(13))
    table = box(b"stsz", struct.pack(">III", 0, size, count))
    return make(b"trak", box(b"mdia", handler, box(b"minf", box(b"stbl", table))))


def fragment(count):
    return box(b"moof", box(b"traf", box(b"trun", struct.pack(">II", 0, count))))


START = box(b"ftyp", b"isom", bytes(4)) + box(b"mdat", bytes(100))


@pytest.mark.parametrize(
    "content",
    [
        START + box(b"moov", track(60_000_000)),
        START + box(b"moov", track(10), track(60_000_000)),
        START + long_box(b"moov", track(60_000_000, make=long_box)),
        box(b"moov", track(10, kind=b"soun")) + fragment(60_000_000),
        fragment(5) + fragment((1 << 32) - 1),
        box(b"free") * (video.MAX_BOXES + 1),
    ],
    ids=range(6),
)
def test_more_frames_than_the_file_can_have(content, tmp_path):
    """Before anything is decoded: a table of frames of one size is short, and its index in memory is not."""
    with pytest.raises(BadSample, match=r"claims \d+ frames in \d+ bytes|more than \d+ boxes"):
        check_frame_counts(io.BytesIO(content), len(content))
    (tmp_path / "a.mp4").write_bytes(content)
    with pytest.raises(BadSample):
        video_frames(str(tmp_path / "a.mp4"), sampling([0]))


def test_other_counts_pass(intact):
    contents = [b"", b"RIFF", bytes(1000), START, START + box(b"moov", track(1_000_000))]
    contents.append(START + box(b"moov", track(60_000_000, size=0)))  # a size for each, which FFmpeg reads to the end
    contents.append(START + box(b"moov", track(60_000_000, kind=b"soun")))
    contents.append(START + box(b"moov", track(60_000_000))[:-4])
    contents.append(struct.pack(">I4s", 7, b"free") + box(b"moov", track(60_000_000)))
    for content in contents:
        check_frame_counts(io.BytesIO(content), len(content))
    check_frame_counts(io.BytesIO(START + box(b"moov", track(2_000_000))), 8_000_000)
    with open(intact["mp4"], "rb") as file:
        check_frame_counts(file, os.path.getsize(intact["mp4"]))
