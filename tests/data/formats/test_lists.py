"""Lists, class folders and names as people have them, and what load() makes of them."""

import os

import pytest

from data.datasets import kinetics
from data.errors import UserError
from data.formats.lists import LabeledPath, normalize_name, read_folders, read_list, read_names

K400 = (
    "scrambling eggs",
    "skateboarding",
    "skiing (not slalom or crosscountry)",
    "skiing crosscountry",
    "tango dancing",
    "tying knot (not on a tie)",
)  # in the official order


def listed(folder, content, name="train.list"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def touch(root, *paths, content=b"x"):
    for path in paths:
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), "wb") as file:
            file.write(content)


def loaded(root, **keys):
    return kinetics.load(kinetics.Settings(root=str(root), **keys))


def pairs(split):
    return [(clip.path, clip.label) for clip in split.clips]


def test_two_columns_are_videos_and_three_are_frame_folders(tmp_path):
    assert read_list(listed(tmp_path, "a/x.mp4 0\nb/y.mp4 12\n")) == [LabeledPath("a/x.mp4", 0), LabeledPath("b/y.mp4", 12)]
    assert read_list(listed(tmp_path, "a/x 300 0\nb/y.mp4 7 12\n")) == [LabeledPath("a/x", 0, 300), LabeledPath("b/y.mp4", 12, 7)]


@pytest.mark.parametrize(
    "content",
    [
        b"a/x.mp4 0\r\nb/y.mp4 1\r\n",
        b"\xef\xbb\xbfa/x.mp4 0\nb/y.mp4 1",
        b"a/x.mp4\t0\nb/y.mp4\t\t1\n",
        b"\n\na/x.mp4 0\n   \n\t\nb/y.mp4 1\n\n",
        b"  a/x.mp4   0  \n b/y.mp4 1 ",
        b"\xef\xbb\xbf\r\na/x.mp4 0\r\n\r\nb/y.mp4 1",
    ],
    ids=["CRLF", "BOM", "tabs", "blank lines", "blanks around", "all"],
)
def test_ways_to_write_a_list(content, tmp_path):
    assert read_list(listed(tmp_path, content)) == [LabeledPath("a/x.mp4", 0), LabeledPath("b/y.mp4", 1)]


@pytest.mark.parametrize("gap", [" ", "\t", "  "])
def test_blanks_in_folder_names(gap, tmp_path):
    videos = listed(tmp_path, f"tango dancing/x y.mp4{gap}3\nair  drumming/z.mp4{gap}4\n")
    assert read_list(videos) == [LabeledPath("tango dancing/x y.mp4", 3), LabeledPath("air  drumming/z.mp4", 4)]
    folders = listed(tmp_path, f"tango dancing/x y{gap}300{gap}3\nplaying 7 drums/clip 2{gap}12{gap}4\n")
    assert read_list(folders) == [LabeledPath("tango dancing/x y", 3, 300), LabeledPath("playing 7 drums/clip 2", 4, 12)]


def test_letters_beyond_ascii(tmp_path):
    assert read_list(listed(tmp_path, "köln/ü 2.mp4 0\n")) == [LabeledPath("köln/ü 2.mp4", 0)]


def test_suffix_goes_behind_every_path(tmp_path):
    assert read_list(listed(tmp_path, "a/x 0\nb/y z 1\n"), ".mp4") == [LabeledPath("a/x.mp4", 0), LabeledPath("b/y z.mp4", 1)]


@pytest.mark.parametrize(
    "line",
    ["b/y.mp4", "b/y.mp4 one", "b/y.mp4 -1", "b/y.mp4 1.0", "b/y.mp4 1,", "7", "b/y.mp4 \u00b2", "b/y.mp4 1 # note"],
)
def test_a_malformed_line_is_named_with_its_file(line, tmp_path):
    path = listed(tmp_path, f"a/x.mp4 0\n\n{line}\nc/z.mp4 1\n")
    with pytest.raises(UserError) as caught:
        read_list(path)
    assert f"{path}:3:" in str(caught.value) and line in str(caught.value)


def test_a_line_without_its_number_of_frames_is_named(tmp_path):
    """In a list of frame folders: read as videos, all its other lines would be called missing."""
    touch(tmp_path, "a/w/1.jpg", "a/x/1.jpg", "a/y/1.jpg", "classes.txt", content=b"a\nb\n")
    listed(tmp_path, "a/w 30 0\na/x 0\na/y 30 1\n")
    listed(tmp_path, "a/y 30 1\n", "val.list")
    with pytest.raises(UserError, match=r"train\.list:2"):
        loaded(tmp_path)


@pytest.mark.parametrize("content", ["", "\n\n  \n", b"\xef\xbb\xbf"])
def test_an_empty_list(content, tmp_path):
    with pytest.raises(UserError, match="empty"):
        read_list(listed(tmp_path, content))


def test_a_list_that_cannot_be_read(tmp_path):
    for path in (str(tmp_path / "missing.list"), str(tmp_path), listed(tmp_path, b"\xff\xfe\x00a\x00 \x000")):
        with pytest.raises(UserError) as caught:
            read_list(path)
        assert path in str(caught.value)


def test_lists_next_to_the_data_are_found(tmp_path):
    touch(tmp_path, "videos/a/x.mp4", "videos/b/y.mp4")
    listed(tmp_path, "videos/a/x.mp4 0\nvideos/b/y.mp4 1\n")
    listed(tmp_path, "videos/b/y.mp4 1\n", "val.list")
    train, val = loaded(tmp_path)
    assert pairs(train) == [("videos/a/x.mp4", 0), ("videos/b/y.mp4", 1)] and pairs(val) == [("videos/b/y.mp4", 1)]
    assert train.classes == val.classes == ("a", "b")  # of the folders
    assert train.training and not val.training and len(train) == 2 and train.name(1) == "videos/b/y.mp4"


def test_lists_elsewhere_and_suffix(tmp_path):
    touch(tmp_path / "root", "a/x.mp4")
    path = listed(tmp_path, "a/x 0\n", "my.txt")
    train, val = loaded(tmp_path / "root", train_list=path, val_list=path, suffix=".mp4")
    assert pairs(train) == pairs(val) == [("a/x.mp4", 0)]


def test_three_columns_whose_paths_are_files_are_videos(tmp_path):
    touch(tmp_path, "a/x.mp4", "a/y.mp4")
    listed(tmp_path, "a/x.mp4 300 0\na/y.mp4 250 0\n")
    listed(tmp_path, "a/gone.mp4 250 0\na/y.mp4 250 0\n", "val.list")  # even if the first one is missing
    train, val = loaded(tmp_path)
    assert train.clips == [LabeledPath("a/x.mp4", 0), LabeledPath("a/y.mp4", 0)]
    assert val.clips == [LabeledPath("a/gone.mp4", 0), LabeledPath("a/y.mp4", 0)]


def test_three_columns_whose_paths_are_folders_are_pictures(tmp_path):
    touch(tmp_path, "a/x.mp4/img_00001.jpg")  # PaddleVideo keeps the ending
    listed(tmp_path, "a/x.mp4 300 0\n")
    listed(tmp_path, "a/x.mp4 300 0\n", "val.list")
    assert loaded(tmp_path)[0].clips == [LabeledPath("a/x.mp4", 0, 300)]


def test_classes_of_a_list_without_names(tmp_path):
    touch(tmp_path, "v/1.mp4", "v/2.mp4", "v/3.mp4")
    listed(tmp_path, "v/1.mp4 0\nv/2.mp4 2\n")
    listed(tmp_path, "v/3.mp4 1\n", "val.list")
    assert loaded(tmp_path)[0].classes == ("class 0", "class 1", "class 2")  # one folder: no names to be had


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
    train, val = loaded(tmp_path)
    assert train.classes == val.classes == ("B", "a c", "b", "only here")  # ASCII order
    assert pairs(train) == [
        ("train/B/4.webm", 0),
        ("train/a c/6.Mov", 1),
        ("train/b/1.MP4", 2),
        ("train/b/2.mp4", 2),
        ("train/b/deep/er/3.mkv", 2),
    ]
    assert pairs(val) == [("val/b/7.avi", 2), ("val/only here/8.m4v", 3)]


def test_hidden_files_and_folders_hold_no_clips(tmp_path):
    """macOS leaves `._clip.mp4` beside every file of an archive; they are no videos."""
    touch(tmp_path, "train/a/1.mp4", "train/a/._1.mp4", "train/a/.thumbs/2.mp4", "val/a/3.mp4")
    assert pairs(loaded(tmp_path)[0]) == [("train/a/1.mp4", 0)]


def test_the_order_of_a_tree_does_not_hang_on_the_file_system(tmp_path):
    names = [f"train/c/{number}.mp4" for number in (5, 3, 9, 1)] + ["train/c/z/0.mp4", "train/c/d/7.mp4"]
    touch(tmp_path, *names, "val/c/x.mp4")
    got = [path for path, _ in pairs(loaded(tmp_path)[0])]
    assert got == sorted(names[:4]) + ["train/c/d/7.mp4", "train/c/z/0.mp4"]


def test_names_plain_and_numbered(tmp_path):
    assert read_names(listed(tmp_path, "tango dancing\r\n\r\n air drumming \r\n")) == ("tango dancing", "air drumming")
    assert read_names(listed(tmp_path, b"\xef\xbb\xbfa\nb\n")) == ("a", "b")
    numbered = listed(tmp_path, "1 air drumming\n0 tango dancing\n2 z\n")
    assert read_names(numbered) == ("tango dancing", "air drumming", "z")
    assert read_names(listed(tmp_path, "0\tx y\n1\tz\n")) == ("x y", "z")


def test_names_that_begin_with_a_number(tmp_path):
    content = "2 people dancing\n10 pin bowling\n"  # the numbers are not 0 and 1: they belong to the names
    assert read_names(listed(tmp_path, content)) == ("2 people dancing", "10 pin bowling")
    assert read_names(listed(tmp_path, "0 a\nb\n")) == ("0 a", "b")


def test_names_missing_or_empty(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        read_names(str(tmp_path / "missing.txt"))
    with pytest.raises(UserError, match="no class names"):
        read_names(listed(tmp_path, "\n \n"))


def test_names_file_by_key_and_by_its_usual_place(tmp_path):
    touch(tmp_path, "v/x.mp4")
    listed(tmp_path, "v/x.mp4 1\n"), listed(tmp_path, "v/x.mp4 0\n", "val.list")
    listed(tmp_path, "zero\none\n", "classes.txt")
    assert loaded(tmp_path)[0].classes == ("zero", "one")
    other = listed(tmp_path, "null\neins\nzwei\n", "german.txt")
    assert loaded(tmp_path, names=other)[0].classes == ("null", "eins", "zwei")


def test_a_label_beyond_the_names(tmp_path):
    touch(tmp_path, "v/x.mp4", "v/y.mp4")
    listed(tmp_path, "v/x.mp4 0\n")
    listed(tmp_path, "v/x.mp4 1\nv/y.mp4 2\n", "val.list")
    names = listed(tmp_path, "zero\none\n", "names.txt")
    with pytest.raises(UserError) as caught:
        loaded(tmp_path, names=names)
    for part in ("val.list", "v/y.mp4", "label 2", names, "2 classes"):
        assert part in str(caught.value)


def test_a_folder_that_the_names_do_not_know(tmp_path):
    touch(tmp_path, "train/a/x.mp4", "train/mystery/y.mp4", "val/a/z.mp4")
    listed(tmp_path, "a\nb\n", "classes.txt")
    with pytest.raises(UserError, match="mystery.*none of the 2 classes"):
        loaded(tmp_path)


def test_plain_is_how_mit_writes_folders():
    assert normalize_name("skiing (not slalom or crosscountry)") == "skiing_not_slalom_or_crosscountry"
    assert normalize_name("massaging person's head") == "massaging_persons_head"
    assert normalize_name('so called "art"') == "so_called_art" and normalize_name("abseiling") == "abseiling"


def test_normalised_folders_keep_the_order_of_the_names(tmp_path):
    """Sorted by themselves, the two skiing folders would change places."""
    folders = [normalize_name(name) for name in K400]
    assert sorted(folders) != folders
    touch(tmp_path, *[f"{split}/{folder}/x.mp4" for split in ("train", "val") for folder in folders])
    listed(tmp_path, "\n".join(K400), "classes.txt")
    for split in loaded(tmp_path):
        assert {path.split("/")[1]: label for path, label in pairs(split)} == {f: i for i, f in enumerate(folders)}
        assert split.classes == K400


def test_raw_folders_match_raw_and_normalised_names(tmp_path):
    touch(tmp_path, *[f"{split}/{name}/x.mp4" for split in ("train", "val") for name in K400])
    want = [(f"train/{name}/x.mp4", label) for label, name in enumerate(K400)]
    assert pairs(loaded(tmp_path)[0]) == want  # sorted raw names are the official order
    listed(tmp_path, "\n".join(map(normalize_name, K400)), "classes.txt")
    assert pairs(loaded(tmp_path)[0]) == want


def test_an_exact_name_wins_over_a_normalised_one(tmp_path):
    touch(tmp_path, "train/a_b/x.mp4", "train/a b/y.mp4")
    clips = read_folders(str(tmp_path), "train", ("a b", "a_b"))
    assert {clip.path: clip.label for clip in clips} == {"train/a b/y.mp4": 0, "train/a_b/x.mp4": 1}


def test_not_one_path_exists(tmp_path):
    listed(tmp_path, "elsewhere/x.mp4 0\nelsewhere/y.mp4 1\n")
    with pytest.raises(UserError) as caught:
        loaded(tmp_path)
    for part in ("train.list", str(tmp_path / "elsewhere" / "x.mp4"), "data.root", "data.suffix"):
        assert part in str(caught.value)


def test_some_missing_paths_are_left_to_the_stream(tmp_path):
    touch(tmp_path, "a/y.mp4")
    listed(tmp_path, "a/x.mp4 0\na/y.mp4 0\n")
    listed(tmp_path, "a/y.mp4 0\n", "val.list")
    assert len(loaded(tmp_path)[0]) == 2


def test_a_missing_root_tells_what_to_do(tmp_path):
    with pytest.raises(UserError) as caught:
        loaded(tmp_path / "nothing")
    for part in (str(tmp_path / "nothing"), "data.root", "train.list", "python train.py -c configs/tsm_demo.yaml"):
        assert part in str(caught.value)


def test_a_root_without_clips(tmp_path):
    touch(tmp_path, "train/a/notes.txt")
    with pytest.raises(UserError, match="train.list.*data.train_list"):
        loaded(tmp_path)


def test_a_split_that_is_missing_is_named(tmp_path):
    touch(tmp_path, "train/a/x.mp4")
    with pytest.raises(UserError, match="data.val_list"):
        loaded(tmp_path)


def test_flip_pairs_beyond_the_classes(tmp_path):
    touch(tmp_path, "train/a/x.mp4", "train/b/x.mp4", "val/a/x.mp4")
    assert loaded(tmp_path, flip_pairs=((0, 1),))[0].classes == ("a", "b")
    with pytest.raises(UserError, match="flip_pairs"):
        loaded(tmp_path, flip_pairs=((0, 2),))


def checksum(root):
    return kinetics.checksum(*loaded(root))


def test_the_checksum_tells_whether_a_file_changed(tmp_path):
    touch(tmp_path, "train/a/x.mp4", "train/b/y.mp4", "val/a/z.mp4", "val/b/w.mp4")
    first = checksum(tmp_path)
    assert len(first) == 32 and checksum(tmp_path) == first
    os.utime(tmp_path / "train/a/x.mp4", (0, 0))
    assert checksum(tmp_path) == first  # a copy with other time stamps is the same set
    touch(tmp_path, "val/a/z.mp4", content=b"longer")
    changed = checksum(tmp_path)
    os.remove(tmp_path / "val/b/w.mp4")
    removed = checksum(tmp_path)
    assert len({first, changed, removed}) == 3
    touch(tmp_path, "val/a/z.mp4"), touch(tmp_path, "val/b/w.mp4")
    assert checksum(tmp_path) == first


def test_the_checksum_of_listed_clips(tmp_path):
    touch(tmp_path, "a/x.mp4", "a/y.mp4")
    seen = set()
    for train in (
        "a/x.mp4 0\na/y.mp4 0\n",
        "a/x.mp4 0\na/y.mp4 1\n",
        "a/y.mp4 0\na/x.mp4 0\n",
        "a/x.mp4 0\na/y.mp4 0\na/gone.mp4 0\n",
    ):
        listed(tmp_path, train), listed(tmp_path, "a/x.mp4 0\n", "val.list")
        seen.add(checksum(tmp_path))
    touch(tmp_path, "a/gone.mp4")  # was listed, but missing
    seen.add(checksum(tmp_path))
    assert len(seen) == 5


def test_the_checksum_does_not_hang_on_where_the_set_lies(tmp_path):
    for root in ("one", "two"):
        touch(tmp_path / root, "train/a/x.mp4", "val/a/z.mp4")
    assert checksum(tmp_path / "one") == checksum(tmp_path / "two")
