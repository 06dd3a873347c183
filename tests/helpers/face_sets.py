"""The same few people as a pack, a list and folders, in pictures that tell who they show."""

import pickle

import numpy as np

from data.datasets import faces
from tests.helpers import packs

PEOPLE, EACH, SIZE = 6, 5, 12


def value(person, number):
    return 40 * person + number


PACK = [[packs.picture(value(person, number)) for number in range(EACH)] for person in range(PEOPLE)]


def add_bin(root, name="lfw.bin", count=10, size=SIZE):
    """Pair i shows the values i and i + 100; every other pair is one person."""
    pictures = [packs.picture(value, size) for number in range(count) for value in (number, number + 100)]
    (root / name).write_bytes(pickle.dumps((pictures, [number % 2 == 0 for number in range(count)])))


def settings(root, **keys):
    return faces.Settings(**{"root": str(root), "size": SIZE, "workers": 0, "verification": ("lfw.bin",), **keys})


def load(root, **keys):
    return faces.load(settings(root, **keys))


def laid(root, kind):
    """The same people as a pack, a list or folders."""
    add_bin(root)
    if kind == "rec":
        packs.write(root, packs.face_pack(PACK))
        return root
    lines = []
    for person, pictures in enumerate(PACK):
        folder = root / ("train" if kind == "folder" else "pictures") / f"p{person}"
        folder.mkdir(parents=True)
        for number, picture in enumerate(pictures):
            (folder / f"{number}.png").write_bytes(picture)
            lines.append(f"pictures/p{person}/{number}.png{' ' if number % 2 else chr(9)}{person}\n")
    if kind == "list":
        (root / "label.txt").write_text("".join(lines))
    return root


def seen(split):
    """Value and label of every sample, once the picture is known to be whole, as it is or mirrored."""
    found = []
    for index in range(len(split)):
        row = split.sample(index, np.random.default_rng(index))
        image, label = row["image"], int(row["label"])
        expected = packs.pixels(image[0, 0, 0], SIZE)
        assert image.dtype == np.uint8 and row["label"].dtype == np.int64
        assert np.array_equal(image, expected) or np.array_equal(image, expected[:, ::-1])
        found.append((int(image[0, 0, 0]), label))
    return found
