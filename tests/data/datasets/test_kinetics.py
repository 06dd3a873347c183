"""Kinetics-400: lists, class folders and class names that it loads, its checksum, and its samples."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.helpers.clips import encode, numbered
from tests.helpers.files import touch, write_list
from zoo.commands import check_data
from zoo.data.datasets import kinetics
from zoo.data.errors import UserError
from zoo.data.formats import video
from zoo.data.formats.lists import LabeledPath, normalize_name

K400 = (
    "scrambling eggs",
    "skateboarding",
    "skiing (not slalom or crosscountry)",
    "skiing crosscountry",
    "tango dancing",
    "tying knot (not on a tie)",
)  # in the official order


def load(root, **keys):
    return kinetics.load(kinetics.Settings(root=str(root), **keys))


def paths_and_labels(split):
    return [(clip.path, clip.label) for clip in split.clips]


def rng(seed=0):
    return np.random.default_rng(seed)


def random_clip(t, height, width):
    return rng().integers(0, 256, (t, height, width, 3), dtype=np.uint8)


def test_a_line_without_its_number_of_frames_is_named(tmp_path):
    """In a list of frame folders; read as videos, all its other lines would be missing files."""
    touch(tmp_path, "a/w/1.jpg", "a/x/1.jpg", "a/y/1.jpg", "classes.txt", content=b"a\nb\n")
    write_list(tmp_path, "a/w 30 0\na/x 0\na/y 30 1\n")
    write_list(tmp_path, "a/y 30 1\n", "val.list")
    with pytest.raises(UserError, match=r"train\.list:2"):
        load(tmp_path)


def test_lists_elsewhere_and_suffix(tmp_path):
    touch(tmp_path / "root", "a/x.mp4")
    path = write_list(tmp_path, "a/x 0\n", "my.txt")
    train, val = load(tmp_path / "root", train_list=path, val_list=path, suffix=".mp4")
    assert paths_and_labels(train) == paths_and_labels(val) == [("a/x.mp4", 0)]


def test_three_columns_whose_paths_are_files_are_videos(tmp_path):
    touch(tmp_path, "a/x.mp4", "a/y.mp4")
    write_list(tmp_path, "a/x.mp4 300 0\na/y.mp4 250 0\n")
    write_list(tmp_path, "a/gone.mp4 250 0\na/y.mp4 250 0\n", "val.list")  # even if the first one is missing
    train, val = load(tmp_path)
    assert train.clips == [LabeledPath("a/x.mp4", 0), LabeledPath("a/y.mp4", 0)]
    assert val.clips == [LabeledPath("a/gone.mp4", 0), LabeledPath("a/y.mp4", 0)]


def test_three_columns_whose_paths_are_folders_are_frame_folders(tmp_path):
    touch(tmp_path, "a/x.mp4/img_00001.jpg")  # PaddleVideo keeps the extension
    write_list(tmp_path, "a/x.mp4 300 0\n")
    write_list(tmp_path, "a/x.mp4 300 0\n", "val.list")
    assert load(tmp_path)[0].clips == [LabeledPath("a/x.mp4", 0, 300)]


def test_classes_of_a_list_without_names(tmp_path):
    touch(tmp_path, "v/1.mp4", "v/2.mp4", "w/3.mp4")
    write_list(tmp_path, "v/1.mp4 0\nv/2.mp4 2\n")
    write_list(tmp_path, "w/3.mp4 1\n", "val.list")
    assert load(tmp_path)[0].classes == ("class 0", "class 1", "class 2")  # v gives no names
    write_list(tmp_path, "v/2.mp4 0\n")
    assert load(tmp_path)[0].classes == ("v", "w")


def test_a_tree_of_folders(tmp_path):
    touch(
        tmp_path,
        "train/b/2.mp4",
        "train/b/1.MP4",
        "train/b/deep/er/3.mkv",
        "train/B/4.webm",
        "train/b/notes.txt",
        "train/.cache/5.mp4",
        "train/a c/6.Mov",
        "val/b/7.avi",
        "val/only here/8.m4v",
        "train/stray.mp4",
    )
    train, val = load(tmp_path)
    assert train.classes == val.classes == ("B", "a c", "b", "only here")  # ASCII order
    assert paths_and_labels(train) == [
        ("train/B/4.webm", 0),
        ("train/a c/6.Mov", 1),
        ("train/b/1.MP4", 2),
        ("train/b/2.mp4", 2),
        ("train/b/deep/er/3.mkv", 2),
    ]
    assert paths_and_labels(val) == [("val/b/7.avi", 2), ("val/only here/8.m4v", 3)]


def test_a_folder_that_is_not_among_the_names(tmp_path):
    touch(tmp_path, "train/a/x.mp4", "train/mystery/y.mp4", "val/a/z.mp4")
    write_list(tmp_path, "a\nb\n", "classes.txt")
    with pytest.raises(UserError, match="mystery.*none of the 2 classes"):
        load(tmp_path)


def test_normalized_folders_keep_the_order_of_the_names(tmp_path):
    """Sorted on their own, the two skiing folders would swap labels."""
    folders = [normalize_name(name) for name in K400]
    assert sorted(folders) != folders
    touch(tmp_path, *[f"{split}/{folder}/x.mp4" for split in ("train", "val") for folder in folders])
    write_list(tmp_path, "\n".join(K400), "classes.txt")
    for split in load(tmp_path):
        assert {path.split("/")[1]: label for path, label in paths_and_labels(split)} == {
            f: i for i, f in enumerate(folders)
        }
        assert split.classes == K400


@pytest.mark.parametrize("file, split", [("notes.txt", "train"), ("x.mp4", "val")])
def test_a_split_without_clips_is_named(tmp_path, file, split):
    touch(tmp_path, f"train/a/{file}")
    with pytest.raises(UserError, match=f"neither {split}.list nor a video in {split}/.*data.{split}_list"):
        load(tmp_path)


def test_flip_pairs_beyond_the_classes(tmp_path):
    touch(tmp_path, "train/a/x.mp4", "train/b/x.mp4", "val/a/x.mp4")
    assert load(tmp_path, flip_pairs=((0, 1),))[0].classes == ("a", "b")
    with pytest.raises(UserError, match="flip_pairs"):
        load(tmp_path, flip_pairs=((0, 2),))


def split_of(frames, training, label=0, **keys):
    """A split with one clip, whose picked frames come out of an array in place of a file."""
    split = kinetics.ClipSplit(
        kinetics.Settings(**{"segments": 4, "size": 28, **keys}),
        [LabeledPath("clip", label)],
        ("left", "right", "up"),
        training,
    )
    split._read = lambda clip, pick: frames[np.asarray(pick(len(frames))).ravel()]
    return split


def test_views_of_a_sample_are_crop_major_then_clip_then_time():
    frames = random_clip(100, 32, 43)
    split = split_of(frames, False, eval_sampling="twice", eval_crops=3, eval_size=32)
    video = split.sample(0, rng())["video"]
    assert video.shape == (6, 4, 32, 32, 3) == split.fields[0].shape and split.views == 6
    for number, (left, picked) in enumerate(
        [(left, picked) for left in (0, 8, 4) for picked in ([12, 37, 62, 87], [0, 25, 50, 75])]
    ):
        assert np.array_equal(video[number], frames[picked][:, :, left : left + 32])


def test_a_training_sample_swaps_the_labels_of_mirrored_clips_only():
    # A size that needs no resize: the sample is a crop of the clip or of its mirror image.
    frames = random_clip(8, 28, 28)
    for label, mirrored in ((0, 1), (1, 0), (2, 2)):
        split = split_of(frames, True, label, scales=(1.0,), segments=8, flip_pairs=((0, 1),))
        seen = set()
        for seed in range(30):
            row = split.sample(0, rng(seed))
            is_mirror = np.array_equal(row["video"], frames[:, :, ::-1])
            assert is_mirror or np.array_equal(row["video"], frames)
            assert row["label"] == (mirrored if is_mirror else label)
            seen.add(is_mirror)
        assert seen == {True, False}


def test_samples_with_antialias_are_cropped_then_resized_by_pillow():
    """One scale and a square clip: the box is the whole frame. An evaluation resizes to 32 pixels and crops 28."""
    frames = random_clip(8, 75, 75)
    keys = {"segments": 8, "scales": (1.0,), "flip": False, "antialias": True}
    train = split_of(frames, True, **keys, resample="exact").sample(0, rng())["video"]
    fast = split_of(frames, True, **keys).sample(0, rng())["video"]
    val = split_of(frames, False, segments=8, antialias=True).sample(0, rng())["video"]
    assert np.abs(fast.astype(int) - train).max() == 1
    images = [Image.fromarray(frame) for frame in frames]
    for image, frame in zip(images, train):
        assert np.array_equal(frame, np.asarray(image.resize((28, 28), Image.Resampling.BILINEAR)))
    resized = np.asarray(images[0].resize((32, 32), Image.Resampling.BILINEAR))
    assert np.array_equal(val[0], resized[2:30, 2:30])
    plain = split_of(frames, True, segments=8, scales=(1.0,), flip=False).sample(0, rng())["video"]
    assert np.abs(plain.astype(int) - train).mean() > 10


@pytest.mark.parametrize("key", [{"sampling": "dense"}, {"eval_sampling": "dense"}, {"eval_sampling": "dense_val"}])
def test_dense_sampling_of_more_frames_than_its_span_is_refused(key):
    kinetics.Settings(segments=64, **key)
    with pytest.raises(ValueError, match="segments"):  # the stride would be 0: 65 times the same frame
        kinetics.Settings(segments=65, **key)


def write_clips(root, write):
    for split in ("train", "val"):
        for name in "ab":
            (root / split / name).mkdir(parents=True)
            write(root / split / name / f"{name}.mp4")


def test_a_deep_check_compares_both_ways_of_decoding(tmp_path, monkeypatch):
    write_clips(tmp_path, lambda path: encode(path, numbered(24)))
    train, _ = load(tmp_path, size=32)
    assert check_data.read_all(train) == ([], [])
    monkeypatch.setattr(video, "decode_numbers", lambda stream, index, numbers: list(numbered(len(numbers))))
    unreadable, _ = check_data.read_all(train)
    assert [name for name, _ in unreadable] == ["train/a/a.mp4", "train/b/b.mp4"] and "other frames" in unreadable[0][1]


def test_a_deep_check_counts_the_frames_of_folders(tmp_path):
    for name in "ab":
        touch(tmp_path, *(f"{name}/img_{number:05d}.jpg" for number in range(1, 7)), content=jpeg())
    write_list(tmp_path, "a 6 0\nb 5 1\n")
    write_list(tmp_path, "a 6 0\nb 5 1\n", "val.list")
    train, _ = load(tmp_path, size=32)
    unreadable, remarks = check_data.read_all(train)
    assert not unreadable and len(remarks) == 1 and remarks[0][0] == "b"
    assert "the list says 5 frames, the folder has 6" in remarks[0][1]


def jpeg():
    file = io.BytesIO()
    Image.new("RGB", (40, 40)).save(file, "JPEG")
    return file.getvalue()
