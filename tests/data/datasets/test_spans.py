"""Parts of long videos as samples, by a table with start and end."""

from fractions import Fraction

import av
import numpy as np
import pytest

from tests.helpers.clips import encode, numbered, read_numbers
from zoo.data.datasets import kinetics
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import video
from zoo.data.formats.lists import Span
from zoo.finetune import folder

SECONDS = "video,start,end,label\nlong,0,2,rest\nlong,2.0,3.2,jump\nlong.mp4,3.2,8,rest\nday/other,1,4,jump\n"
FRAMES = (
    "path,start_frame,stop_frame,action\nlong,0,50,rest\nlong,50,80,jump\nlong,80,200,rest\nday/other,25,100,jump\n"
)


@pytest.fixture(params=["pyav", "damaged"])
def root(request, tmp_path):
    """Two videos of 200 frames, 25 per second, that show their numbers; one is damaged behind its last frame."""
    (tmp_path / "day").mkdir()
    for path in (tmp_path / "long.mp4", tmp_path / "day/other.mp4"):
        encode(path, numbered(200))
    if request.param == "damaged":  # is decoded from its first frame on
        encode(tmp_path / "long.mkv", numbered(200), "mpeg4")
        (tmp_path / "long.mkv").rename(tmp_path / "long.mp4")
    return tmp_path


def load(root, text, **keys):
    (root / "parts.csv").write_text(text)
    options = {"train_list": "parts.csv", "val_list": "parts.csv", "size": 96, "segments": 4, **keys}
    return kinetics.load(kinetics.Settings(root=str(root), cache=None, **options))


@pytest.mark.parametrize("text", [SECONDS, FRAMES], ids=["seconds", "frames"])
def test_samples_are_frames_of_their_part(root, text):
    train, val = load(root, text)
    assert train.classes == ("jump", "rest") and [clip.label for clip in val.clips] == [1, 0, 1, 0]
    spans, rng = [(0, 50), (50, 80), (80, 200), (25, 100)], np.random.default_rng(0)
    for index, (first, end) in enumerate(spans):
        for split in (train, val):
            numbers = read_numbers(split._read(index, split._pick(rng)))
            assert len(numbers) == 4 and all(first <= number < end for number in numbers)
        quarter = (end - first) / 4
        assert all(first + at * quarter <= number < first + (at + 1) * quarter for at, number in enumerate(numbers))
    assert val.name(1) == ("long.mp4 2-3.2 s" if text == SECONDS else "long.mp4 50-80")
    assert val.sample(1, rng)["video"].shape == (4, 96, 96, 3) and not val.remark(1, rng)


@pytest.mark.parametrize(
    "start, end",
    [
        *(("start_sec", "end_sec"), ("Start (s)", "End (s)"), ("start_seconds", "end_seconds"), ("begin", "end")),
        *(("from", "to"), ("onset", "offset"), ("startTime", "stopTime"), ("t_start", "t_end")),
        *(("time_start", "time_end"), ("segment_start", "segment_end")),
        *(("frame_start", "frame_end"), ("first frame", "last frame"), ("StartFrame", "EndFrame")),
    ],
)
def test_names_of_columns(tmp_path, start, end):
    encode(tmp_path / "long.mp4", numbered(200))
    rows = "long,5,a,2,x,2,x,25,train\nlong,3,a,1,x,2,x,25,val\n"
    _, val = load(tmp_path, f"video,{end},label,{start},tomato,duration,notes,fps,split\n{rows}")
    assert val.clips[0].span == Span(1, 3, "frames" if "frame" in start.lower() else "s")


def test_parts_of_one_video_cannot_be_divided(tmp_path):
    encode(tmp_path / "long.mp4", numbered(50))
    (tmp_path / "train.csv").write_text("video,start,end,label\nlong,0,1,a\nlong,1,2,a\n")
    settings = kinetics.Settings(root=str(tmp_path), train_list="train.csv", val_fraction=0.5, cache=None)
    with pytest.raises(UserError, match="none of the 2 samples can be .*, as all are parts or copies of one file; add"):
        kinetics.load(settings)


def test_parts_of_a_video_are_on_one_side(tmp_path):
    for number in range(8):
        encode(tmp_path / f"{number}.mp4", numbered(30 + number))
    rows = "".join(f"{n},{part / 2},{part / 2 + 0.5},{'ab'[part]}\n" for n in range(8) for part in (0, 1))
    (tmp_path / "train.csv").write_text("video,start,end,label\n" + rows)
    keys = {"train_list": "train.csv", "val_fraction": 0.25, "cache": None}
    train, val = kinetics.load(kinetics.Settings(root=str(tmp_path), **keys))
    assert len(val) == 4 and not {clip.path for clip in train.clips} & {clip.path for clip in val.clips}
    assert len({item.name for item in (*train.items(), *val.items())}) == 16


def test_frames_of_a_span():
    def bounds(span, count, rate, times=None):
        return video.bounds(span, rate, np.arange(count) / rate + 3 if times is None else np.array(times, float))

    for times in (None, np.full(200, np.nan)):  # raw H.264 has none
        assert bounds(Span(0, 2), 200, 25, times) == (0, 50) and bounds(Span(2, 3.2), 200, 25, times) == (50, 80)
        assert bounds(Span(7.5, 20), 200, 25, times) == (188, 200)
    assert bounds(Span(1.0, 2.0), 100, 30000 / 1001) == (30, 60)
    assert bounds(Span(3, 9, "frames"), 5, 25) == (3, 5) and bounds(None, 5, 25) == (0, 5)
    reordered = np.arange(200).reshape(-1, 2)[:, ::-1].ravel() / 25  # times of decoding, as AVI has them
    assert bounds(Span(2, 3.2), 200, 25, reordered) == (50, 80)
    assert bounds(Span(0.1, 3.0), 5, 0, [7.0, 7.1, 8.5, 9.9996, 30.0]) == (1, 3)
    for times in ([0, 5, 1, 2], [0, np.nan, 5, 6]):
        with pytest.raises(BadSample, match="no times to find 1-2 s by; give start_frame and end_frame"):
            bounds(Span(1, 2), 4, 25, times)
        assert bounds(Span(1, 2, "frames"), 4, 25, times) == (1, 2)


@pytest.mark.parametrize("codec", ["libx264", "mpeg4"])  # from keyframes, and from the first frame on
@pytest.mark.parametrize("container", ["mp4", "mkv"])
def test_seconds_of_a_variable_frame_rate(tmp_path, codec, container):
    """30 frames per second until 2 s, then 5, as phones and recorders of screens write."""
    times = [*np.arange(60) / 30, *(2 + np.arange(20) / 5)]
    with av.open(str(tmp_path / f"long.{container}"), "w") as file:
        stream = file.add_stream(codec, rate=30, width=96, height=64, pix_fmt="yuv420p")
        stream.codec_context.time_base = Fraction(1, 1000)
        for seconds, pixels in zip(times, numbered(80), strict=True):
            frame = av.VideoFrame.from_ndarray(pixels, "rgb24")
            frame.pts, frame.time_base = round(1000 * seconds), Fraction(1, 1000)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    _, val = load(tmp_path, "video,start,end,label\nlong,0,2,a\nlong,2,4,b\nlong,4,99,c\nlong,6,7,c\n", segments=2)
    for index, expected in enumerate(([15, 45], [62, 67], [72, 77])):
        assert read_numbers(val._read(index, lambda n: np.array([n // 4, n * 3 // 4]))) == expected
        assert not val.remark(index, np.random.default_rng(0))
    with pytest.raises(BadSample, match="the part 6-7 s lies behind the end of the video: its last frame is at 5.8 s"):
        val.sample(3, np.random.default_rng(0))


@pytest.mark.parametrize(
    "text, message",
    [
        ("video,start,end,label\nlong,3,1,a\n", "parts.csv: row 2: 3-1 s is no part of a video"),
        ("video,start,end,label\nlong,x,1,a\n", "parts.csv: row 2: start and end"),
        ("video,start,label\nlong,1,a\n", "parts.csv: its columns start should be one start and one end"),
        ("video,from,stop_frame,label\nlong,1,2,a\n", "its columns from, stop_frame should be one start and one end"),
        (
            "video,start_ms,end_ms,label\nlong,1,2,a\n",
            "start_ms, end_ms should be .* both in seconds or both in frames",
        ),
        (
            "video,start,end,first_frame,last_frame,label\nlong,0,1,1,25,a\n",
            "end, first_frame, last_frame should be one",
        ),
        ("video,labels,start,end\nlong,a,0,1\nlong,a|b,1,2\n", "row 3: long has the label a.b; a video has one class"),
        ("video,start,end,label\nlong,0,1,a\nlong,0,1,b\n", "long.mp4 0-1 s has label b here and a in line 2"),
        ("video,start,end,label\nshort,0,1,a\n", "none of its files, such as short, is below"),
        ("clips,start,end,label\nlong,0,1,a\n", "which of its columns .* names the files. rename it to video"),
    ],
)
def test_what_is_refused(root, text, message):
    with pytest.raises(UserError, match=message):
        load(root, text)


def test_a_part_behind_the_end_is_unreadable(root):
    _, val = load(root, "video,start,end,label\nlong,7.9,30,a\nlong,40,41,b\n", min_frames=3)
    with pytest.raises(BadSample, match=r"too short: 2 frame\(s\)"):
        val.sample(0, np.random.default_rng(0))
    with pytest.raises(BadSample, match="part 40-41 s lies behind the end of the video: its last frame is at 7.96 s"):
        val.sample(1, np.random.default_rng(0))


def test_finetune_finds_the_table(root):
    (root / "parts.csv").write_text(SECONDS)
    found = folder.examine(str(root))
    assert found.task == "clips" and found.settings["train_list"] == str(root / "parts.csv")
