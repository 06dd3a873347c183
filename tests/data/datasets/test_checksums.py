"""The data checksum sees the contents of every file of a sample, in every layout, prepared or not."""

import os
import shutil

import cv2
import numpy as np
import pytest

from tests.data.loaders import sets
from tests.helpers import clips, face_sets, packs
from tests.helpers.prepared import image_folders, serial_prepare
from zoo.data import contents, record
from zoo.data.datasets import cityscapes, faces, imagenet, kinetics

FRAMES = 5


def image_lists(root):
    for number in range(3):
        sets.write(f"{root}/images/{number}.jpg", sets.smooth(40, 30, number))
    for split, numbers in (("train", (0, 1)), ("val", (2,))):
        (root / f"{split}_list.txt").write_text("".join(f"images/{number}.jpg {number % 2}\n" for number in numbers))


def videos(root):
    for split, name in (("train", "a"), ("train", "b"), ("val", "a"), ("val", "b")):
        os.makedirs(root / split / name)
        clips.encode(root / split / name / "x.mp4", clips.numbered(6))


def frame_folders(root):
    for clip in range(3):
        for frame in range(1, FRAMES + 1):
            sets.write(f"{root}/clips/{clip}/img_{frame:05d}.jpg", sets.smooth(40, 30, 10 * clip + frame))
    for split, numbers in (("train", (0, 1)), ("val", (2,))):
        lines = [f"clips/{number} {FRAMES} {number % 2}\n" for number in numbers]
        (root / f"{split}.list").write_text("".join(lines))


def cities(root):
    for split in ("train", "val"):
        name = f"{split}/bonn/bonn_000001_000019"
        sets.write(f"{root}/leftImg8bit/{name}_leftImg8bit.png", sets.smooth(64, 48, 1), "png")
        os.makedirs(root / f"gtFine/{split}/bonn")
        cv2.imwrite(f"{root}/gtFine/{name}_gtFine_labelIds.png", np.full((48, 64), 7, np.uint8))


def face_files(root):
    """Faces in folders, and pairs of other faces."""
    face_sets.write_set(root, "folder")
    for number in range(11):
        (root / f"{number}.png").write_bytes(packs.encoded_image(number))
    (root / "friends.txt").write_text("".join(f"{n}.png {n + 1}.png {n % 2}\n" for n in range(10)))


SMALL = {"size": 32}
LAYOUTS = {  # name -> writer, data set, settings, a part of the paths of files that count
    "image folders": (image_folders, imagenet, SMALL, ".png"),
    "image lists": (image_lists, imagenet, SMALL, ".jpg"),
    "videos": (videos, kinetics, {"size": 32, "segments": 2}, ".mp4"),
    "frame folders": (frame_folders, kinetics, {"size": 32, "segments": 2}, ".jpg"),
    "masks": (cities, cityscapes, {"crop": (16, 16), "void_masks": True}, ".png"),
    "faces": (face_files, faces, {"size": 12, "verification": ("friends.txt",)}, ".png"),
    "packed faces": (
        lambda root: face_sets.write_set(root, "rec"),
        faces,
        {"size": 12, "verification": ("lfw.bin",)},
        ".rec",
    ),
}
UNSEEN = {"img_00002.jpg", "img_00004.jpg"}  # frames between the first, the middle and the last


def paths(root, part):
    found = (os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
    return sorted(path for path in found if part in path)


def overwrite(path, content):
    with open(path, "r+b") as file:
        file.write(content)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_file_that_is_overwritten_with_zeros_is_seen(tmp_path, name):
    write, module, keys, part = LAYOUTS[name]
    root = tmp_path / "set"
    root.mkdir()
    write(root)
    splits = module.load(module.Settings(root=str(root), **keys))
    first = module.describe(*splits).checksum
    files = paths(root, part)
    for path in files:
        with open(path, "rb") as file:
            before = file.read()
        overwrite(path, bytes(len(before)))
        assert (module.describe(*splits).checksum != first) == (os.path.basename(path) not in UNSEEN), path
        os.remove(path)
        if part != ".rec":  # a pack is open
            assert (module.describe(*splits).checksum != first) == (os.path.basename(path) not in UNSEEN), path
        with open(path, "wb") as file:
            file.write(before)
        if part != ".rec":
            assert module.describe(*splits).checksum == first, path
    assert len(files) >= 1
    copy = shutil.copytree(root, tmp_path / "copy")
    assert module.describe(*module.load(module.Settings(root=str(copy), **keys))).checksum == first


@pytest.mark.parametrize("name, kind", [("image folders", "imagenet"), ("videos", "k400"), ("masks", "cityscapes")])
def test_packs_have_the_checksum_of_their_source_and_damage_in_them_is_seen(tmp_path, monkeypatch, name, kind):
    write, module, keys, _ = LAYOUTS[name]
    (tmp_path / "set").mkdir()
    write(tmp_path / "set")
    prepare = serial_prepare(monkeypatch)
    for form, options in (("files", []), ("pack", ["--pack"])):
        assert prepare(kind, tmp_path / "set", *options, "--out", tmp_path / form) == 0
    source = module.describe(*module.load(module.Settings(root=str(tmp_path / "set"), **keys))).checksum
    for form in ("files", "pack"):
        splits = module.load(module.Settings(root=str(tmp_path / form), **keys))
        first = module.describe(*splits).checksum
        assert first == source, form
        files = [file for split in splits for item in split.items() for file in item.files]
        assert len(set(files)) == len(files) == len(paths(tmp_path / "set", "."))
        damaged = paths(tmp_path / "pack", ".rec") if form == "pack" else paths(tmp_path / "set", ".")
        for path in damaged:
            size = os.path.getsize(path)
            with open(path, "rb") as file:
                before = file.read()
            overwrite(path, before[: size // 2] + bytes(size - size // 2))
            assert module.describe(*splits).checksum != first, path
            overwrite(path, bytes(size))  # not even headers are left
            assert module.describe(*splits).checksum != first, path
            overwrite(path, before)
            assert module.describe(*splits).checksum == first


CHANGED = {  # layout -> the file to overwrite, and the names of the items that it changes, by split
    "image folders": ("val/dog/1.png", [], ["val/dog/1.png"]),
    "image lists": ("images/1.jpg", ["images/1.jpg"], []),
    "videos": ("train/b/x.mp4", ["train/b/x.mp4"], []),
    "frame folders": ("clips/2/img_00003.jpg", [], ["clips/2"]),
    "masks": (
        "gtFine/train/bonn/bonn_000001_000019_gtFine_labelIds.png",
        ["leftImg8bit/train/bonn/bonn_000001_000019_leftImg8bit.png"],
        [],
    ),
    "faces": ("3.png", [], ["3.png", "3.png"]),  # of two pairs
    "packed faces": ("train.rec", ["train.rec"], []),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_record_names_the_sample_whose_file_changed(tmp_path, name):
    write, module, keys, _ = LAYOUTS[name]
    (tmp_path / "set").mkdir()
    write(tmp_path / "set")

    def describe(root="set"):
        return module.describe(*module.load(module.Settings(root=str(tmp_path / root), **keys)))

    file, train, val = CHANGED[name]
    before = describe()
    assert [before.train.samples, before.val.samples] == [
        len(split) for split in module.load(module.Settings(root=str(tmp_path / "set"), **keys))
    ]
    path = tmp_path / "set" / file
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # the last byte is in the last block
    path.write_bytes(content)
    now = describe()
    for split, names in (("train", train), ("val", val)):
        change = record.compare(getattr(before, split), getattr(now, split), lambda name: False)
        assert list(change.changed) == names and bool(record.explain("x", change)) == bool(names), split
    shutil.copytree(tmp_path / "set", tmp_path / "copy")
    for one, other in zip(now[2:], describe("copy")[2:]):
        assert not record.explain("x", record.compare(one, other, lambda name: False))


def test_the_items_of_a_face_or_pair_are_found_by_its_name():
    assert faces.files_of("a/b c.png") == ["a/b c.png"] and faces.files_of("train.rec key 12") == ["train.rec"]
    assert faces.files_of("friends pair 3 (a/1.png, b, c/2.png)") == ["a/1.png, b", "c/2.png"]
    assert faces.files_of("lfw pair 3 (lfw.bin image 6, lfw.bin image 7)") == ["lfw.bin", "lfw.bin"]


def test_a_full_checksum_sees_every_byte(tmp_path, monkeypatch):
    image_folders(tmp_path, classes=("a", "b"))
    path = tmp_path / "train/a/0.png"
    content = bytearray(path.read_bytes() + np.random.default_rng(0).bytes(100_000))
    path.write_bytes(content)
    splits = {
        how: imagenet.load(imagenet.Settings(root=str(tmp_path), size=32, checksum=how)) for how in ("sampled", "full")
    }
    first = {how: imagenet.describe(*split).checksum for how, split in splits.items()}
    content[contents.BLOCK + 1000] ^= 1
    path.write_bytes(content)
    assert imagenet.describe(*splits["sampled"]).checksum == first["sampled"] != first["full"]
    assert imagenet.describe(*splits["full"]).checksum != first["full"]
