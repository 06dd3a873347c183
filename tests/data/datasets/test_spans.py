"""Parts of long videos as samples, by a table with start and end."""

import numpy as np
import pytest

from tests.helpers.clips import encode, numbered, read_numbers
from zoo.data.datasets import kinetics
from zoo.data.errors import BadSample, UserError
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
    assert Span(0, 2).frames(200, 25) == (0, 50) and Span(2, 3.2).frames(200, 25) == (50, 80)
    assert Span(1.0, 2.0).frames(100, 30000 / 1001) == (30, 60) and Span(7.5, 20).frames(200, 25) == (188, 200)
    assert Span(3, 9, "frames").frames(5, 0) == (3, 5) and Span(9, 12, "frames").frames(5, 25) == (5, 5)


@pytest.mark.parametrize(
    "text, message",
    [
        ("video,start,end,label\nlong,3,1,a\n", "parts.csv: row 2: 3-1 s is no part of a video"),
        ("video,start,end,label\nlong,x,1,a\n", "parts.csv: row 2: start and end"),
        ("video,start,label\nlong,1,a\n", "parts.csv: has a column start, but not both of start and end"),
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
    with pytest.raises(BadSample, match=r"too short: 0 frame\(s\)"):
        val.sample(1, np.random.default_rng(0))


def test_finetune_finds_the_table(root):
    (root / "parts.csv").write_text(SECONDS)
    found = folder.examine(str(root))
    assert found.task == "clips" and found.settings["train_list"] == str(root / "parts.csv")
