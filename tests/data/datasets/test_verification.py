"""Verification sets: .bin files, lists of pairs, and pairs drawn from a source."""

import pickle

import numpy as np
import pytest

from tests.helpers import packs
from zoo.data.datasets import verification
from zoo.data.errors import UserError
from zoo.data.formats.face_files import FaceFiles

IMAGES = [packs.encoded_image(value) for value in range(20)]
SAME = [number % 3 == 0 for number in range(10)]


def write(tmp_path, content, name="lfw.bin"):
    (tmp_path / name).write_bytes(content)
    return str(tmp_path / name)


def open_sets(tmp_path, *entries):
    return verification.open_sets(str(tmp_path), entries)


def error_message(tmp_path, *entries):
    with pytest.raises(UserError) as caught:
        open_sets(tmp_path, *entries)
    return str(caught.value)


def test_images_of_a_bin_by_index(tmp_path):
    write(tmp_path, pickle.dumps((IMAGES, SAME)), "agedb_30.bin")
    (pair_set,) = open_sets(tmp_path, "agedb_30")  # the extension is optional
    assert pair_set.name == "agedb_30" and pair_set.same.tolist() == [int(same) for same in SAME]
    assert [[pair_set.source.encoded(image) for image in pair] for pair in pair_set.pairs] == [
        [IMAGES[2 * number], IMAGES[2 * number + 1]] for number in range(10)
    ]
    assert pair_set.source.name(13) == "agedb_30.bin image 13" and len(pair_set.source) == 20
    before = pair_set.source.items()
    write(tmp_path, pickle.dumps((IMAGES[::-1], SAME)), "agedb_30.bin")
    assert open_sets(tmp_path, "agedb_30.bin")[0].source.items() != before


def write_images(tmp_path, *names):
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(packs.encoded_image(9))


def named_pairs(pair_set):
    return [
        (*(pair_set.source.name(image) for image in pair), int(same))
        for pair, same in zip(pair_set.pairs, pair_set.same)
    ]


def test_pairs_of_lfw(tmp_path):
    write_images(
        tmp_path, *(f"lfw/{name}/{name}_{number:04d}.jpg" for name in ("Ann_Lee", "Bo") for number in range(1, 6))
    )
    write_images(tmp_path, "lfw/Cy/Cy_0012.png")
    same = [f"Ann_Lee\t1\t{number}\n" for number in (2, 3, 4, 5)] + ["Bo\t1\t5\n"]
    different = [f"Ann_Lee\t{number}\tBo\t{number}\n" for number in (1, 2, 3, 4)] + ["Bo\t1\tCy\t12\n"]
    (tmp_path / "lfw/pairs.txt").write_text("1\t5\n" + "".join(same + different))
    (tmp_path / "lfw/test.txt").write_text(("5\n" + "".join(same + different)).replace("\t", " "))
    pair_set, again = open_sets(tmp_path, "lfw/pairs.txt", "lfw/test.txt")
    assert (pair_set.name, again.name) == ("lfw", "test") and named_pairs(pair_set) == named_pairs(again)
    assert named_pairs(pair_set)[0] == ("Ann_Lee/Ann_Lee_0001.jpg", "Ann_Lee/Ann_Lee_0002.jpg", 1)
    assert named_pairs(pair_set)[9] == ("Bo/Bo_0001.jpg", "Cy/Cy_0012.png", 0)
    assert pair_set.same.tolist() == [1] * 5 + [0] * 5
    assert pair_set.source.encoded(0) == str(tmp_path / "lfw/Ann_Lee/Ann_Lee_0001.jpg")
    (tmp_path / "lfw/pairs.txt").write_text("1\t5\n" + "".join(same + different[:4]))
    assert "pairs.txt: 9 pairs, but line 1 promises 10" in error_message(tmp_path, "lfw/pairs.txt")
    (tmp_path / "lfw/pairs.txt").write_text("5\n" + "".join(same + different[:4]) + "Bo\t1\tDee\t1\n")
    assert "pairs.txt:11: there is no image" in error_message(tmp_path, "lfw/pairs.txt")
    (tmp_path / "lfw/pairs.txt").write_text("5\n" + "".join(same + different[:4]) + "Bo\tone\tCy\t12\n")
    assert "pairs.txt:11: expected `name 1 4`" in error_message(tmp_path, "lfw/pairs.txt")


def test_pairs_of_paths(tmp_path):
    write_images(tmp_path, "own/a b.png", "own/c.png")
    (tmp_path / "own/mine.txt").write_text("a b.png\tc.png\t0\nc.png\tc.png\t1\n" * 5)
    (pair_set,) = open_sets(tmp_path, "own/mine.txt")
    assert pair_set.name == "mine" and named_pairs(pair_set) == [("a b.png", "c.png", 0), ("c.png", "c.png", 1)] * 5
    (tmp_path / "own/mine.txt").write_text("c.png c.png 1\n" * 9)
    assert "mine.txt: 9 pairs, but 10-fold accuracy needs at least 10" in error_message(tmp_path, "own/mine.txt")
    for line, expected in (
        ("c.png c.png 2", "expected `path path 1`"),
        ("c.png 1", "expected"),
        ("c.png d.png 0", "there is no image"),
    ):
        (tmp_path / "own/mine.txt").write_text(f"c.png c.png 1\n{line}\n")
        message = error_message(tmp_path, "own/mine.txt")
        assert "mine.txt:2: " in message and expected in message
    (tmp_path / "own/mine.txt").write_bytes(b"\xff\xfe\x00\xd8")
    assert "mine.txt: cannot read" in error_message(tmp_path, "own/mine.txt")


def test_pairs_of_one_kind_are_no_test(tmp_path):
    for same, kind in ((True, "the same person"), (False, "different persons")):
        write(tmp_path, pickle.dumps((IMAGES, [same] * 10)))
        assert f"lfw.bin: all pairs are of {kind}" in error_message(tmp_path, "lfw.bin")


def test_sets_that_are_missing_or_have_equal_names(tmp_path):
    assert "there is no lfw in" in error_message(tmp_path, "lfw") and "val_fraction" in error_message(tmp_path, "lfw")
    write(tmp_path, pickle.dumps((IMAGES, SAME)))
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep", pickle.dumps((IMAGES, SAME)))
    assert "two sets with the name lfw" in error_message(tmp_path, "lfw", "deep/lfw")


def drawn(labels, count):
    labels = np.array(labels)
    rows = np.arange(len(labels)) + 100  # numbers in a larger source
    source = FaceFiles("", [b""] * (100 + len(labels)), np.zeros(100 + len(labels)))
    return verification.sample_pairs(source, rows, labels, count)


def test_drawn_pairs_are_distinct_and_correctly_labeled():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(12), 7))
    pair_set = drawn(labels, 200)
    assert pair_set.name == "held_out" and pair_set.same.tolist() == [1, 0] * 100
    assert len({tuple(pair) for pair in pair_set.pairs.tolist()}) == 200
    identities = labels[pair_set.pairs - 100]
    assert ((identities[:, 0] == identities[:, 1]) == pair_set.same).all() and (
        pair_set.pairs[:, 0] != pair_set.pairs[:, 1]
    ).all()
    assert set(identities[pair_set.same == 1].ravel()) == set(range(12))  # every identity occurs
    again = drawn(labels, 200)
    assert np.array_equal(pair_set.pairs, again.pairs) and pair_set.item() == again.item()
    assert pair_set.item() != drawn(labels, 198).item()


def test_the_number_of_pairs_is_limited_by_the_images():
    pair_set = drawn([0, 0, 0, 1, 1, 1], 1000)  # 3 + 3 of the same person, 9 of different persons
    assert pair_set.same.tolist() == [1, 0] * 6
    assert {tuple(pair) for pair in pair_set.pairs[::2].tolist()} == {
        (100, 101),
        (100, 102),
        (101, 102),
        (103, 104),
        (103, 105),
        (104, 105),
    }
    # one image per person, a single person, only 3 pairs of the same person
    for labels in ([0, 1, 2, 3], [0] * 9, [0, 0, 0, 1, 2]):
        with pytest.raises(UserError, match="held-out.*add images of the same persons.*val_fraction"):
            drawn(labels, 1000)
