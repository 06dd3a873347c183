"""The same few identities as a pack, a list and folders, in images that identify themselves."""

import pickle

import numpy as np

from tests.helpers import packs
from zoo.data.datasets import faces

IDENTITIES, IMAGES_EACH, SIZE = 6, 5, 12


def value(identity, number):
    return 40 * identity + number


PACK = [
    [packs.encoded_image(value(identity, number)) for number in range(IMAGES_EACH)] for identity in range(IDENTITIES)
]


def add_bin(root, name="lfw.bin", count=10, size=SIZE):
    """Write a verification set: pair i has the values i and i + 100, and every other pair is of the same person."""
    images = [packs.encoded_image(value, size) for number in range(count) for value in (number, number + 100)]
    (root / name).write_bytes(pickle.dumps((images, [number % 2 == 0 for number in range(count)])))


def settings(root, **keys):
    return faces.Settings(**{"root": str(root), "size": SIZE, "workers": 0, "verification": ("lfw.bin",), **keys})


def load(root, **keys):
    return faces.load(settings(root, **keys))


def write_set(root, layout):
    """Write the identities as a pack (rec), a list or folders."""
    add_bin(root)
    if layout == "rec":
        packs.write(root, packs.face_pack(PACK))
        return root
    lines = []
    for identity, images in enumerate(PACK):
        folder = root / ("train" if layout == "folder" else "images") / f"p{identity}"
        folder.mkdir(parents=True)
        for number, image in enumerate(images):
            (folder / f"{number}.png").write_bytes(image)
            lines.append(f"images/p{identity}/{number}.png{' ' if number % 2 else chr(9)}{identity}\n")
    if layout == "list":
        (root / "label.txt").write_text("".join(lines))
    return root


def values_and_labels(split):
    """Return value and label of every sample, after a check that the image is complete, mirrored or not."""
    samples = []
    for index in range(len(split)):
        sample = split.sample(index, np.random.default_rng(index))
        image, label = sample["image"], int(sample["label"])
        expected = packs.pixels(image[0, 0, 0], SIZE)
        assert image.dtype == np.uint8 and sample["label"].dtype == np.int64
        assert np.array_equal(image, expected) or np.array_equal(image, expected[:, ::-1])
        samples.append((int(image[0, 0, 0]), label))
    return samples
