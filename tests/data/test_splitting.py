"""A part of the samples is held out by their contents: by numpy on keys, and in data sets of images and clips."""

import os
import shutil

import numpy as np
import pytest

from tests.helpers.files import touch
from tests.helpers.layouts import EXTENSIONS, folders, load
from zoo.data import audit, splitting
from zoo.data.contents import Content
from zoo.data.datasets import imagenet
from zoo.data.errors import UserError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.2, 0.25, 0.5])
def test_the_share_of_every_class_is_the_fraction_rounded(fraction):
    keys = RNG.permutation(1 << 20)[:2000].astype(np.uint64)
    labels = np.sort(RNG.integers(40, size=2000) ** 2 // 40)  # classes of very different sizes
    held = splitting.hold_out(keys, labels, fraction)
    for label in np.unique(labels):
        own, mine = keys[labels == label], held[labels == label]
        expected = np.clip(round(fraction * len(own)), min(1, len(own) - 1), len(own) - 1)
        assert mine.sum() == expected and set(own[mine]) == set(np.sort(own)[:expected])


def test_every_class_of_two_samples_has_one_on_either_side_and_a_single_one_trains():
    labels = [0, 0, 1, 2, 2, 2, 3, 3]
    held = splitting.hold_out(np.array([9, 4, 1, 7, 7, 7, 5, 6], np.uint64), labels, 0.2)
    assert held.tolist() == [False, True, False, False, False, False, True, False]  # class 2 has three copies of one


def test_copies_are_on_one_side_also_across_classes():
    keys = np.array([1, 2, 1, 3, 2, 4, 5, 6], np.uint64)  # class 1 shares 1 and 2 with class 0, which decides
    held = splitting.hold_out(keys, [0, 0, 1, 1, 1, 2, 2, 2], 0.5)
    assert held.tolist() == [True, False, True, True, False, True, True, False]
    keys = np.array([2, 1, 2, 3], np.uint64)  # the copy trains, so class 1 holds out its other sample
    assert splitting.hold_out(keys, [0, 0, 1, 1], 0.2).tolist() == [False, True, False, True]


def test_order_does_not_matter():
    keys, labels = RNG.integers(300, size=500).astype(np.uint64), RNG.integers(9, size=500)
    order = RNG.permutation(500)
    held = splitting.hold_out(keys, labels, 0.3)
    assert held.any() and np.array_equal(splitting.hold_out(keys[order], labels[order], 0.3), held[order])


def test_groups_that_share_a_copy_have_one_key():
    keys = np.array([8, 3, 5, 9, 5, 1, 9, 7], np.uint64)  # groups 0-1 share 5, 1-2 share 9, 4 has nothing
    groups = np.array([0, 0, 0, 1, 1, 2, 2, 3])
    assert splitting.group_keys(keys, groups, 5).tolist() == [1, 1, 1, 7, np.iinfo(np.uint64).max]


def test_keys_follow_contents_alone(tmp_path):
    for name, content in {"a": b"1", "b": b"1", "c": b"2", "big": bytes(50_000), "big2": bytes(50_001)}.items():
        (tmp_path / name).write_bytes(content)
    files = [[Content(str(tmp_path / name)) for name in names] for names in ("a", "b", "c", ["a", "c"], ["c", "a"])]
    files += [[Content(str(tmp_path / name))] for name in ("big", "big2")]
    keys = splitting.content_keys(files, str(tmp_path))
    assert keys[0] == keys[1] and len(set(keys.tolist())) == 6


def write(root, kind, counts, folder=""):
    """Write class folders; every file has contents of its own."""
    for name, count in counts.items():
        for number in range(count):
            path = os.path.join(folder, f"{name}/{number}.{EXTENSIONS[kind]}")
            touch(root, path, content=f"{name} {number}".ljust(99).encode())


def held_files(root, kind, **keys):
    """Return the contents of the validation files, after a check that both splits are the whole and disjoint."""
    train, val = load(kind, root, **{"val_fraction": 0.25, **keys})
    contents = [[(root / split.name(index)).read_bytes() for index in range(len(split))] for split in (train, val)]
    assert not set(contents[0]) & set(contents[1]) and val.held_out == "-held_out0.25"
    return sorted(contents[1])


COUNTS = {"ant": 8, "bee": 4, "cat": 2}


@pytest.mark.parametrize("kind", ["image", "clip"])
def test_plain_class_folders_the_folder_train_and_a_list_have_the_same_split(tmp_path, kind):
    write(tmp_path, kind, COUNTS)
    held = held_files(tmp_path, kind)
    assert [content[:3] for content in held] == [b"ant"] * 2 + [b"bee"] + [b"cat"]
    train, val = load(kind, tmp_path, val_fraction=0.25)
    assert train.classes == tuple(COUNTS) and "4 of 14 samples are held out" in train.notes[0]
    assert val.protocol.name == f"{tmp_path.name}-held_out0.25"
    report = audit.examine(train, val, deep=True)
    assert report.problems == [] and report.warnings == ["classes with a single training sample: 1 (cat)"]
    for name in COUNTS:
        shutil.move(tmp_path / name, tmp_path / "train" / name)
    assert held_files(tmp_path, kind) == held
    shutil.move(tmp_path / "train", tmp_path / "files")
    names = [f"files/{name}/{number}" for name in reversed(COUNTS) for number in range(COUNTS[name])]
    label_of = dict(zip(COUNTS, range(3)))
    lines = [f"{name}.{EXTENSIONS[kind]} {label_of[name.split('/')[1]]}\n" for name in names]
    (tmp_path / {"image": "train_list.txt", "clip": "train.list"}[kind]).write_text("".join(lines))
    assert held_files(tmp_path, kind) == held


@pytest.mark.parametrize("kind", ["image", "clip"])
def test_renamed_files_and_copies_stay_on_their_side(tmp_path, kind):
    write(tmp_path, kind, COUNTS)
    held = held_files(tmp_path, kind)
    for number in range(8):
        os.rename(tmp_path / f"ant/{number}.{EXTENSIONS[kind]}", tmp_path / f"ant/z{9 - number}.{EXTENSIONS[kind]}")
    assert held_files(tmp_path, kind) == held
    for number in range(9, 2, -3):
        name = f"ant/z{number}.{EXTENSIONS[kind]}"
        shutil.copy(tmp_path / name, tmp_path / f"{name}.copy.{EXTENSIONS[kind]}")
    assert set(held_files(tmp_path, kind)) == set(held)


@pytest.mark.parametrize("kind", ["image", "clip"])
def test_a_validation_split_is_never_replaced(tmp_path, kind):
    folders(tmp_path, kind, a=(4, 2), b=(4, 2))
    train, val = load(kind, tmp_path, val_fraction=0.5)
    assert (len(train), len(val), val.held_out) == (8, 4, "")
    os.rename(tmp_path / "val", tmp_path / "validation")
    train, val = load(kind, tmp_path)
    assert (len(train), len(val)) == (8, 4) and val.name(0).startswith("validation/")


@pytest.mark.parametrize("kind", ["image", "clip"])
@pytest.mark.parametrize("folder", ["", "train"])
def test_without_a_fraction_the_message_names_it(tmp_path, kind, folder):
    write(tmp_path, kind, COUNTS, folder)
    with pytest.raises(UserError, match=r"hold out a part of the samples .* -o data\.val_fraction=0\.2"):
        load(kind, tmp_path)


@pytest.mark.parametrize("kind", ["image", "clip"])
def test_nothing_to_hold_out(tmp_path, kind):
    write(tmp_path, kind, {"a": 1, "b": 1})
    with pytest.raises(UserError, match="none of the 2 samples can be held out"):
        load(kind, tmp_path, val_fraction=0.2)
    with pytest.raises(UserError) as caught:
        load(kind, tmp_path / "a", val_fraction=0.2)
    assert "data.val_fraction" not in str(caught.value)


def test_an_evaluation_alone_has_the_same_validation_split(tmp_path):
    write(tmp_path, "image", COUNTS)
    settings = imagenet.Settings(root=str(tmp_path), val_fraction=0.25)
    _, both = imagenet.load(settings)
    _, alone = imagenet.load(settings, ("val",))
    assert [*map(both.name, range(len(both)))] == [*map(alone.name, range(len(alone)))] and len(alone) == 4
