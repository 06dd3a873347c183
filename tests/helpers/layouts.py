"""Tiny sets of every kind of data, sound or with one fault, as folders, lists and packs."""

import os

from tests.data.datasets.test_cityscapes import write_custom
from tests.helpers import packs
from tests.helpers.face_sets import PACK, SIZE, add_bin
from tests.helpers.files import touch, write_list
from zoo.data.datasets import cityscapes, faces, imagenet, kinetics

MODULES = {"image": imagenet, "clip": kinetics, "scene": cityscapes, "face": faces}
EXTENSIONS = {"image": "jpg", "clip": "mp4"}


def load(kind, root, **keys):
    """Open both splits of a kind of data."""
    small = {"scene": {"crop": (8, 8)}, "face": {"size": SIZE}}.get(kind, {})
    return MODULES[kind].load(MODULES[kind].Settings(root=str(root), **{**small, **keys}))


def folders(root, kind, **classes):
    """Write class folders; classes: name -> (files of train, files of val), None for no folder."""
    for name, counts in classes.items():
        for split, count in zip(("train", "val"), counts):
            if count is not None:
                os.makedirs(root / split / name)
            for number in range(count or 0):
                path = f"{split}/{name}/{split}{number}.{EXTENSIONS[kind]}"
                touch(root, path, content=f"{path:<100}".encode())


def lists(root, kind, train, val):
    """Write lists of files with these labels."""
    for split, labels in (("train", train), ("val", val)):
        paths = [f"{split}/{number}.{EXTENSIONS[kind]}" for number in range(len(labels))]
        for path in paths:
            touch(root, path, content=f"{path:<100}".encode())
        lines = [f"{path} {label}\n" for path, label in zip(paths, labels)]
        write_list(root, "".join(lines), {"image": f"{split}_list.txt", "clip": f"{split}.list"}[kind])


def scenes(root, train=((0, 1, 2), (0, 2)), val=((0, 1, 2),), names="road\nsky\ncar\n"):
    """Write images whose masks hold these values, and class names."""
    for split, values in (("train", train), ("val", val)):
        for number, of_mask in enumerate(values):
            write_custom(root, f"{split}/{number}", values=of_mask)
    (root / "classes.txt").write_text(names)


def faces_pack(root, labels):
    """Write a pack with an image of each label, and a verification set."""
    add_bin(root)
    packs.write(root, {key: packs.content(PACK[0][key % 5], label) for key, label in enumerate(labels)})


def faces_list(root, labels):
    """Write a list with an image of each label, and a verification set."""
    add_bin(root)
    for number in range(len(labels)):
        touch(root, f"images/{number}.png", content=PACK[number // 5][number % 5])
    (root / "label.txt").write_text("".join(f"images/{n}.png {label}\n" for n, label in enumerate(labels)))
