"""Verification sets: .bin files, lists of pairs, and pairs drawn from a source."""

import pickle

import numpy as np
import pytest

from data.datasets.common import verification
from data.errors import UserError
from data.formats.face_files import FaceFiles
from tests.helpers import packs

PICTURES = [packs.encoded_image(value) for value in range(20)]
SAME = [number % 3 == 0 for number in range(10)]


def write(tmp_path, content, name="lfw.bin"):
    (tmp_path / name).write_bytes(content)
    return str(tmp_path / name)


def opened(tmp_path, *entries):
    return verification.open_sets(str(tmp_path), entries)


def complaint(tmp_path, *entries):
    with pytest.raises(UserError) as caught:
        opened(tmp_path, *entries)
    return str(caught.value)


def test_pictures_of_a_bin_by_number(tmp_path):
    write(tmp_path, pickle.dumps((PICTURES, SAME)), "agedb_30.bin")
    (one,) = opened(tmp_path, "agedb_30")  # the ending may be left out
    assert one.name == "agedb_30" and one.same.tolist() == [int(same) for same in SAME]
    assert [[one.source.encoded(which) for which in pair] for pair in one.pairs] == [
        [PICTURES[2 * number], PICTURES[2 * number + 1]] for number in range(10)
    ]
    assert one.source.name(13) == "agedb_30.bin picture 13" and len(one.source) == 20
    before = one.source.describe()
    write(tmp_path, pickle.dumps((PICTURES[::-1], SAME)), "agedb_30.bin")
    assert opened(tmp_path, "agedb_30.bin")[0].source.describe() != before


def lay(tmp_path, *names):
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(packs.encoded_image(9))


def shown(one):
    return [(*(one.source.name(which) for which in pair), int(same)) for pair, same in zip(one.pairs, one.same)]


def test_pairs_of_lfw(tmp_path):
    lay(tmp_path, *(f"lfw/{name}/{name}_{number:04d}.jpg" for name in ("Ann_Lee", "Bo") for number in range(1, 6)))
    lay(tmp_path, "lfw/Cy/Cy_0012.png")
    same = [f"Ann_Lee\t1\t{number}\n" for number in (2, 3, 4, 5)] + ["Bo\t1\t5\n"]
    other = [f"Ann_Lee\t{number}\tBo\t{number}\n" for number in (1, 2, 3, 4)] + ["Bo\t1\tCy\t12\n"]
    (tmp_path / "lfw/pairs.txt").write_text("1\t5\n" + "".join(same + other))
    (tmp_path / "lfw/test.txt").write_text(("5\n" + "".join(same + other)).replace("\t", " "))
    one, again = opened(tmp_path, "lfw/pairs.txt", "lfw/test.txt")
    assert (one.name, again.name) == ("lfw", "test") and shown(one) == shown(again)
    assert shown(one)[0] == ("Ann_Lee/Ann_Lee_0001.jpg", "Ann_Lee/Ann_Lee_0002.jpg", 1)
    assert shown(one)[9] == ("Bo/Bo_0001.jpg", "Cy/Cy_0012.png", 0)
    assert one.same.tolist() == [1] * 5 + [0] * 5
    assert one.source.encoded(0) == str(tmp_path / "lfw/Ann_Lee/Ann_Lee_0001.jpg")
    (tmp_path / "lfw/pairs.txt").write_text("1\t5\n" + "".join(same + other[:4]))
    assert "pairs.txt: 9 pairs, but line 1 tells of 10" in complaint(tmp_path, "lfw/pairs.txt")
    (tmp_path / "lfw/pairs.txt").write_text("5\n" + "".join(same + other[:4]) + "Bo\t1\tDee\t1\n")
    assert "pairs.txt:11: there is no picture" in complaint(tmp_path, "lfw/pairs.txt")
    (tmp_path / "lfw/pairs.txt").write_text("5\n" + "".join(same + other[:4]) + "Bo\tone\tCy\t12\n")
    assert "pairs.txt:11: expected `name 1 4`" in complaint(tmp_path, "lfw/pairs.txt")


def test_pairs_of_paths(tmp_path):
    lay(tmp_path, "own/a b.png", "own/c.png")
    (tmp_path / "own/mine.txt").write_text("a b.png\tc.png\t0\nc.png\tc.png\t1\n" * 5)
    (one,) = opened(tmp_path, "own/mine.txt")
    assert one.name == "mine" and shown(one) == [("a b.png", "c.png", 0), ("c.png", "c.png", 1)] * 5
    (tmp_path / "own/mine.txt").write_text("c.png c.png 1\n" * 9)
    assert "mine.txt: 9 pairs, but an accuracy of 10 folds" in complaint(tmp_path, "own/mine.txt")
    for line, says in (
        ("c.png c.png 2", "expected `path path 1`"),
        ("c.png 1", "expected"),
        ("c.png d.png 0", "there is no picture"),
    ):
        (tmp_path / "own/mine.txt").write_text(f"c.png c.png 1\n{line}\n")
        found = complaint(tmp_path, "own/mine.txt")
        assert "mine.txt:2: " in found and says in found
    (tmp_path / "own/mine.txt").write_bytes(b"\xff\xfe\x00\xd8")
    assert "mine.txt: cannot read" in complaint(tmp_path, "own/mine.txt")


def test_sets_that_are_not_there_or_share_a_name(tmp_path):
    assert "there is no lfw in" in complaint(tmp_path, "lfw") and "val_fraction" in complaint(tmp_path, "lfw")
    write(tmp_path, pickle.dumps((PICTURES, SAME)))
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep", pickle.dumps((PICTURES, SAME)))
    assert "two sets called lfw" in complaint(tmp_path, "lfw", "deep/lfw")


def drawn(labels, count):
    labels = np.array(labels)
    rows = np.arange(len(labels)) + 100  # numbers in a larger source
    source = FaceFiles("", [b""] * (100 + len(labels)), np.zeros(100 + len(labels)))
    return verification.draw(source, rows, labels, count)


def test_drawn_pairs_are_different_and_tell_the_truth():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(12), 7))
    one = drawn(labels, 200)
    assert one.name == "held_out" and one.same.tolist() == [1, 0] * 100
    assert len({tuple(pair) for pair in one.pairs.tolist()}) == 200
    who = labels[one.pairs - 100]
    assert ((who[:, 0] == who[:, 1]) == one.same).all() and (one.pairs[:, 0] != one.pairs[:, 1]).all()
    assert set(who[one.same == 1].ravel()) == set(range(12))  # everybody is seen
    again = drawn(labels, 200)
    assert np.array_equal(one.pairs, again.pairs) and verification.digest(one) == verification.digest(again)
    assert verification.digest(one) != verification.digest(drawn(labels, 198))


def test_as_many_pairs_as_there_are():
    one = drawn([0, 0, 0, 1, 1, 1], 1000)  # 3 + 3 of one person, 9 of two
    assert one.same.tolist() == [1, 0] * 6
    assert {tuple(pair) for pair in one.pairs[::2].tolist()} == {
        (100, 101),
        (100, 102),
        (101, 102),
        (103, 104),
        (103, 105),
        (104, 105),
    }
    for labels in ([0, 1, 2, 3], [0] * 9, [0, 0, 0, 1, 2]):  # no two of one person, one person, 3 pairs of one person
        with pytest.raises(UserError, match="held out.*val_fraction"):
            drawn(labels, 1000)
