"""Lists that name files outside of data.root, in every data set that reads lists."""

import cv2
import numpy as np
import pytest

from zoo.data.datasets import faces, imagenet, kinetics
from zoo.data.errors import UserError


def load(module, root, **settings):
    return module.load(module.Settings(root=str(root), **settings))


@pytest.fixture
def root(tmp_path):
    """A folder with lists whose samples lie beside it."""
    (tmp_path / "set").mkdir()
    (tmp_path / "frames").mkdir()
    for number in range(1, 25):
        for name in (f"{number}.jpg", f"frames/img_{number:05d}.jpg"):
            cv2.imwrite(str(tmp_path / name), np.full((112, 112, 3), number, np.uint8))
    return tmp_path / "set"


def write_lists(root, names, lines):
    for name in names:
        (root / name).write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("form", ["../{}", "{root}/../{}", "a/../../{}"])
@pytest.mark.parametrize(
    "module, names, files, keys",
    [
        (kinetics, ("train.list", "val.list"), "frames 8", {}),
        (imagenet, ("train_list.txt", "val_list.txt"), "1.jpg", {}),
        (faces, ("label.txt",), "1.jpg", {"val_fraction": 0.5}),
    ],
    ids=["clips", "images", "faces"],
)
def test_they_are_refused_unless_the_recipe_allows_them(root, module, names, files, keys, form):
    (root / "a").mkdir()
    files = [files] if module is not faces else [f"{number}.jpg" for number in range(1, 25)]
    lines = [f"{form.format(file, root=root)} {label // 6}" for label, file in enumerate(files)]
    write_lists(root, names, lines)
    with pytest.raises(UserError, match="may lead out of data.root; .*data.allow_outside_root=true"):
        load(module, root, **keys)
    train, _ = load(module, root, allow_outside_root=True, **keys)
    assert len(train)


def test_pairs_of_faces(root):
    write_lists(root, ["pairs.txt"], ["../1.jpg ../2.jpg 0"] * 10)
    write_lists(root, ["label.txt"], [f"{number}.jpg {number // 2}" for number in range(8)])
    for number in range(8):
        cv2.imwrite(str(root / f"{number}.jpg"), np.zeros((112, 112, 3), np.uint8))
    with pytest.raises(UserError, match="pairs.txt: ../1.jpg may lead out"):
        load(faces, root, verification=("pairs.txt",))
    _, pairs = load(faces, root, verification=("pairs.txt",), allow_outside_root=True)
    assert len(pairs.pair_sets[0].same) == 10
