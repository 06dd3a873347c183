"""Lists, class folders and files of class names in their usual variants."""

import errno
import os
from functools import partial

import pytest

from tests.helpers.files import touch, write_list
from zoo.data.errors import UserError
from zoo.data.formats.class_names import official, read_names, readable
from zoo.data.formats.lists import (
    LabeledPath,
    check_inside,
    check_same_labels,
    class_folders,
    class_names_from_folders,
    normalize_name,
    read_folders,
    read_list,
)


def test_two_columns_are_videos_and_three_are_frame_folders(tmp_path):
    assert read_list(write_list(tmp_path, "a/x.mp4 0\nb/y.mp4 12\n")) == [
        LabeledPath("a/x.mp4", 0),
        LabeledPath("b/y.mp4", 12),
    ]
    assert read_list(write_list(tmp_path, "a/x 300 0\nb/y.mp4 7 12\n")) == [
        LabeledPath("a/x", 0, 300),
        LabeledPath("b/y.mp4", 12, 7),
    ]


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
def test_variants_of_a_list(content, tmp_path):
    assert read_list(write_list(tmp_path, content)) == [LabeledPath("a/x.mp4", 0), LabeledPath("b/y.mp4", 1)]


@pytest.mark.parametrize("gap", [" ", "\t", "  "])
def test_blanks_in_folder_names(gap, tmp_path):
    videos = write_list(tmp_path, f"tango dancing/x y.mp4{gap}3\nair  drumming/z.mp4{gap}4\n")
    assert read_list(videos) == [LabeledPath("tango dancing/x y.mp4", 3), LabeledPath("air  drumming/z.mp4", 4)]
    folders = write_list(tmp_path, f"tango dancing/x y{gap}300{gap}3\nplaying 7 drums/clip 2{gap}12{gap}4\n")
    assert read_list(folders) == [
        LabeledPath("tango dancing/x y", 3, 300),
        LabeledPath("playing 7 drums/clip 2", 4, 12),
    ]


@pytest.mark.parametrize(
    "line",
    ["b/y.mp4", "b/y.mp4 one", "b/y.mp4 -1", "b/y.mp4 1.0", "b/y.mp4 1,", "7", "b/y.mp4 \u00b2", "b/y.mp4 1 # note"],
)
def test_a_malformed_line_is_named_with_its_file(line, tmp_path):
    path = write_list(tmp_path, f"a/x.mp4 0\n\n{line}\nc/z.mp4 1\n")
    with pytest.raises(UserError) as caught:
        read_list(path)
    assert f"{path}:3:" in str(caught.value) and line in str(caught.value)


@pytest.mark.parametrize("content", ["", "\n\n  \n", b"\xef\xbb\xbf"])
def test_an_empty_list(content, tmp_path):
    with pytest.raises(UserError, match="empty"):
        read_list(write_list(tmp_path, content))


def test_an_unreadable_list(tmp_path):
    for path in (str(tmp_path / "missing.list"), str(tmp_path), write_list(tmp_path, b"\xff\xfe\x00a\x00 \x000")):
        with pytest.raises(UserError) as caught:
            read_list(path)
        assert path in str(caught.value)


def test_names_with_and_without_numbers(tmp_path):
    assert read_names(write_list(tmp_path, "tango dancing\r\n\r\n air drumming \r\n")) == (
        "tango dancing",
        "air drumming",
    )
    assert read_names(write_list(tmp_path, b"\xef\xbb\xbfa\nb\n")) == ("a", "b")
    numbered = write_list(tmp_path, "1 air drumming\n0 tango dancing\n2 z\n")
    assert read_names(numbered) == ("tango dancing", "air drumming", "z")
    assert read_names(write_list(tmp_path, "0\tx y\n1\tz\n")) == ("x y", "z")


@pytest.mark.parametrize("content", ["__ignore__\n_background_\ncar\n", "-1 __ignore__\n0 _background_\n1 car\n"])
def test_the_first_line_of_labelmes_labels_is_no_class(content, tmp_path):
    assert read_names(write_list(tmp_path, content)) == ("_background_", "car")


@pytest.mark.parametrize("content", ["0 __ignore__\n1 car\n", "car\n__ignore__\n", "__ignore__\n__ignore__\ncar\n"])
def test_a_value_for_pixels_of_no_class_is_refused(content, tmp_path):
    with pytest.raises(UserError, match="__ignore__, label [01], is no class; ignored pixels are 255"):
        read_names(write_list(tmp_path, content))


def test_names_that_begin_with_a_number(tmp_path):
    content = "2 people dancing\n10 pin bowling\n"  # the numbers are not 0 and 1, so they belong to the names
    assert read_names(write_list(tmp_path, content)) == ("2 people dancing", "10 pin bowling")
    assert read_names(write_list(tmp_path, "0 a\nb\n")) == ("0 a", "b")


@pytest.mark.parametrize("content", ["3 sky\n1 road\n2 car\n", "1 road\n2 car\n"])
def test_labels_from_1_on_are_refused(content, tmp_path):
    with pytest.raises(UserError, match="no labels from 0 on in front of names"):
        read_names(write_list(tmp_path, content))


@pytest.mark.parametrize("mark", [":", ": ", ";", ", ", "="])
def test_labels_before_a_mark_are_no_part_of_names(mark, tmp_path):
    content = f"2{mark}sky\n0{mark}road\n1{mark}car\n"
    assert read_names(write_list(tmp_path, content)) == ("road", "car", "sky")
    with pytest.raises(UserError, match="the numbers of these lines are no labels from 0 on"):
        read_names(write_list(tmp_path, f"7{mark}road\n26{mark}car\n"))
    with pytest.raises(UserError, match="no labels from 0 on in front of names; write names alone"):
        read_names(write_list(tmp_path, f"sky{mark}1\nroad{mark}0\n"))


def test_colors_are_no_part_of_names(tmp_path):
    with pytest.raises(UserError, match="these lines begin with colors"):
        read_names(write_list(tmp_path, "64 128 64\tAnimal\n192 0 128\t\tArchway\n"))


def test_names_missing_or_empty(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        read_names(str(tmp_path / "missing.txt"))
    with pytest.raises(UserError, match="no class names"):
        read_names(write_list(tmp_path, "\n \n"))


def test_names_of_public_sets():
    images, videos, templates = official("imagenet", 1000), official("kinetics", 400), official("kinetics", 174)
    assert [len(set(names)) for names in (images, videos, templates)] == [1000, 400, 174]
    assert (images[0], images[281], images[999]) == ("tench", "tabby", "toilet tissue")
    assert list(videos) == sorted(videos) and list(templates) == sorted(templates)  # as labels are numbered
    assert official("imagenet", 999) == official("motion", 400) == ()
    assert readable(["n02123045", "n99999999"]) == ("tabby", "n99999999")
    assert readable(["n02123045", "cat"]) == ("n02123045", "cat") and readable([]) == ()


def test_normalize_name_matches_mit_folders():
    assert normalize_name("skiing (not slalom or crosscountry)") == "skiing_not_slalom_or_crosscountry"
    assert normalize_name("massaging person's head") == "massaging_persons_head"
    assert normalize_name('so called "art"') == "so_called_art" and normalize_name("abseiling") == "abseiling"


def test_an_exact_name_takes_precedence_over_a_normalized_one(tmp_path):
    touch(tmp_path, "train/a_b/x.mp4", "train/a b/y.mp4")
    clips = read_folders(str(tmp_path), "train", ("a b", "a_b"))
    assert {clip.path: clip.label for clip in clips} == {"train/a b/y.mp4": 0, "train/a_b/x.mp4": 1}


def test_a_label_beyond_all_class_counts_is_an_error():
    """And not a tuple of that many names."""
    entries = [LabeledPath("a/1.mp4", 0), LabeledPath("a/2.mp4", 300_000_000)]
    with pytest.raises(UserError, match=r"a/2.mp4: its label 300000000 is beyond"):
        class_names_from_folders(entries)


@pytest.mark.parametrize("name", ["/etc/passwd", "../b.jpg", "a/../../b.jpg", "..", "a/.."])
def test_paths_that_lead_elsewhere(name):
    with pytest.raises(UserError, match=f"^train.list: {name} may lead out.*data.allow_outside_root=true"):
        check_inside("train.list", ["a.jpg", name], False)
    check_inside("train.list", ["a.jpg", name], True)
    check_inside("train.list", ["a/b.jpg", "a..b/c...jpg", "..a/b", "a\\..\\b", ""], False)


def test_links_to_folders_are_followed_once_and_files_of_other_kinds_are_named(tmp_path):
    names = ("a/1.mp4", "a/1.heic", "a/2.HEIC", "a/@eaDir/1.mp4/small.mp4", "b/._3.mp4", "n01.tar", "../more/2.mp4")
    for name in names:
        touch(tmp_path / "train", name)
    (tmp_path / "train/a/more").symlink_to(tmp_path / "more")
    notes = []
    found = read_folders(str(tmp_path), "train", ["a", "b"], notes=notes)
    assert [(entry.path, entry.label) for entry in found] == [
        ("train/a/1.mp4", 0),
        ("train/a/more/2.mp4", 0),
    ]
    what = "3 files of other kinds or in no class folder are ignored: 2 .heic, 1 .tar"
    assert notes == [f"{tmp_path}/train: {what}"]
    touch(tmp_path / "train", "loose.mp4", "val.list")
    assert len(read_folders(str(tmp_path / "train"), "", ["a", "b"], notes=notes)) == 2 and "1 .mp4" in notes[1]
    assert "3 files of other kinds" in notes[1] and ".list" not in notes[1]  # the root has lists, too
    for link, target in (("a/up", "a"), ("b/again", "a/more"), ("c", "a")):
        (tmp_path / "train" / link).symlink_to(tmp_path / "train" / target)
        with pytest.raises(UserError, match=f"train/{link}: leads to .*train/{target}, which is read already"):
            read_folders(str(tmp_path), "train", ["a", "b", "c"])
        (tmp_path / "train" / link).unlink()


def test_a_class_folder_that_cannot_be_read_is_no_class_less(tmp_path, monkeypatch):
    touch(tmp_path, "train/a/1.mp4", "train/b/deep/2.mp4")
    scandir = os.scandir

    def refuse(path, closed):
        if os.path.basename(path) == closed:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    for closed in ("train", "b", "deep"):
        monkeypatch.setattr(os, "scandir", partial(refuse, closed=closed))
        with pytest.raises(UserError, match=rf"/{closed}: cannot be read \(Permission denied\)"):
            read_folders(str(tmp_path), "train", ["a", "b"])
    monkeypatch.setattr(os, "scandir", scandir)
    (tmp_path / "train/c").symlink_to(tmp_path / "disk that is not mounted")
    with pytest.raises(UserError, match=r"train/c: this link leads nowhere"):
        class_folders(str(tmp_path), "train")


def test_a_path_with_two_labels_is_refused(tmp_path):
    path = write_list(tmp_path, "a.mp4 0\nb.mp4 1\n\na.mp4 0\nb.mp4 2\n")
    with pytest.raises(UserError, match=":5: b.mp4 has label 2 here and 1 in line 2"):
        read_list(path)
    path = write_list(tmp_path, "a/1.mp4 0\n./a//1.mp4 1\n")
    with pytest.raises(UserError, match=":2: ./a//1.mp4 has label 1 here and 0 in line 1"):
        read_list(path)


def test_a_path_that_is_listed_twice_is_named(tmp_path):
    notes = []
    assert len(read_list(write_list(tmp_path, "a/1.mp4 0\nb.mp4 1\n./a/1.mp4 0\n"), notes=notes)) == 3
    assert len(notes) == 1 and "1 lines repeat an earlier one, such as that of ./a/1.mp4" in notes[0]


def entries(*labels, folders="abc"):
    return [LabeledPath(f"x/{folder}/{label}.mp4", label) for folder, label in zip(folders, labels)]


def test_lists_that_number_folders_in_two_ways(tmp_path):
    with pytest.raises(UserError, match="files in a the label 0 in one split and 1 in another"):
        check_same_labels([entries(0, 1, 2), entries(1, 0, 2)])
    with pytest.raises(UserError, match="files in b the label 1 in one split and 2 in another"):
        check_same_labels([entries(0, 1), entries(2, folders="b")])
    check_same_labels([entries(0, 1, 2), entries(1, 2, folders="bc")])
    check_same_labels([entries(0, 1, 2), entries(1, 0, 2, folders="aab")])  # these folders are no classes
    check_same_labels([entries(0, 0, 2), entries(1, 0, 2)])
