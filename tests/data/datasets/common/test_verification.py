"""Verification sets: .bin files of every protocol and none that runs code, lists of pairs, and pairs that are drawn."""

import os
import pickle
import struct

import numpy as np
import pytest

from data.datasets.common import verification
from data.errors import UserError
from data.formats import face_bin
from data.formats.face_files import FaceFiles
from tests.helpers import packs

TRACE = "executed"
PICTURES = [packs.picture(value) for value in range(20)]
SAME = [number % 3 == 0 for number in range(10)]


def arrays(pictures):
    """As cv2.imencode returns them."""
    return [np.frombuffer(picture, np.uint8).reshape(-1, 1).copy() for picture in pictures]


def write(tmp_path, content, name="lfw.bin"):
    (tmp_path / name).write_bytes(content)
    return str(tmp_path / name)


def refused(tmp_path, content):
    with pytest.raises(UserError) as caught:
        face_bin.read_bin(write(tmp_path, content))
    assert str(tmp_path / "lfw.bin") in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("pictures", [PICTURES, arrays(PICTURES)], ids=["bytes", "arrays"])
def test_every_protocol(tmp_path, protocol, pictures):
    content = pickle.dumps((pictures, SAME), protocol)
    assert face_bin.read_bin(write(tmp_path, content)) == (PICTURES, SAME, content)


def test_the_spelling_of_numpy_2(tmp_path):
    """Its arrays name numpy._core."""
    for protocol in (2, 4, 5):
        content = pickle.dumps((arrays(PICTURES), SAME), protocol)
        old = b"numpy.core." if b"numpy.core." in content else b"numpy._core."
        new = b"numpy._core." if old == b"numpy.core." else b"numpy.core."
        if protocol == 2:
            content = content.replace(b"c" + old, b"c" + new)
        else:
            for part in (b"multiarray", b"numeric"):
                content = content.replace(bytes([len(old + part)]) + old + part, bytes([len(new + part)]) + new + part)
            content = content[:2] + content[11:]  # the frame's length is another now; a pickle needs no frames
        assert new in content and old not in content
        assert face_bin.read_bin(write(tmp_path, content))[:2] == (PICTURES, SAME)


def test_texts_of_python_2(tmp_path):
    """Python 2 wrote a str: opcode U with one byte for its length, T with four."""
    items = b"".join(b"T" + struct.pack("<i", len(picture)) + picture for picture in PICTURES)
    content = b"\x80\x02](" + items + b"e](" + b"".join(b"\x88" if same else b"\x89" for same in SAME) + b"e\x86."
    assert face_bin.read_bin(write(tmp_path, content))[:2] == (PICTURES, SAME)


class Calls:
    """Pickled as a call of any function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class Shaped:
    """Pickled as an array of bytes that claims to be larger than it is."""

    def __reduce__(self):
        make, arguments, state = np.zeros(3, np.uint8).__reduce__()
        return make, arguments, (state[0], (10**9, 1)) + state[2:]


def trace(tmp_path):
    """What a file could do to show that it ran."""
    return f"open({str(tmp_path / TRACE)!r}, 'w')"


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize(
    "function, named",
    [
        (eval, "in__.eval"),
        (exec, "in__.exec"),
        (os.system, "posix.system"),
        (getattr, "in__.getattr"),
        (np.load, "load"),
        (np.ndarray.tofile, "getattr"),
    ],
)
def test_a_file_that_calls_something_is_refused_and_nothing_runs(tmp_path, protocol, function, named):
    content = pickle.dumps((PICTURES, [Calls(function, trace(tmp_path))] * 10), protocol)
    found = refused(tmp_path, content)
    assert named in found.replace("builtins", "__builtin__") and "running code" in found
    assert os.listdir(tmp_path) == ["lfw.bin"]


def test_that_such_a_file_would_have_run(tmp_path):
    """Python's own reader runs what the test above refuses."""
    pickle.loads(pickle.dumps(Calls(eval, trace(tmp_path))))
    assert os.listdir(tmp_path) == [TRACE]


def known(module, name, *rest):
    """A pickle of protocol 2 that names module.name, and goes on with `rest`."""
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + b"".join(rest) + b"."


@pytest.mark.parametrize(
    "content, says",
    [
        (known("numpy.core.multiarray", "_reconstruct", b"}U\x0b__globals__K\x01sb"), "cannot be given a state"),
        (known("_codecs", "encode", b"N}U\x0c__defaults__Ns\x86b"), "cannot be given a state"),
        (known("numpy", "ndarray", b"(J\xff\xff\xff\x7ftR"), "only _reconstruct"),
        (known("_codecs", "encode", b"(X\x01\x00\x00\x00aX\x05\x00\x00\x00utf-8tR"), "'utf-8'"),
        (known("os", "system"), "os.system"),
        (known("data.face_bin", "read_bin"), "data.face_bin.read_bin"),
        (b"\x80\x04r\xff\xff\xff\xff.", "memo of"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", "bytes8"),
        (b"\x80\x02p99999999999\n.", "memo of"),
        (b"", "broken"),
        (b"\xff\xd8\xff\xe0", "broken"),
        (pickle.dumps((PICTURES, SAME))[:-50], "broken"),
    ],
)
def test_what_else_a_file_could_try(tmp_path, content, says):
    assert says in refused(tmp_path, content)


@pytest.mark.parametrize(
    "content, says",
    [
        ([1], "no verification set"),
        ((PICTURES, SAME, SAME), "no verification set"),
        (7, "no verification set"),
        ((PICTURES, tuple(SAME)), "no verification set"),
        ((PICTURES[:19], SAME), "19 pictures for 10 pairs"),
        (([], []), "0 pictures for 0 pairs"),
        ((PICTURES, SAME[:9] + [2]), "answer of pair 9"),
        ((PICTURES, SAME[:9] + [None]), "answer of pair 9"),
        ((PICTURES, SAME[:9] + [1.0]), "answer of pair 9"),
        ((PICTURES[:13] + ["text"] + PICTURES[14:], SAME), "picture 13 (of pair 6)"),
        ((PICTURES[:13] + [b""] + PICTURES[14:], SAME), "picture 13 (of pair 6)"),
        ((PICTURES[:19] + [np.zeros(4, np.float32)], SAME), "other numbers than bytes"),
        ((PICTURES[:19] + [Shaped()], SAME), "an array of shape (1000000000, 1)"),
    ],
)
def test_what_is_no_verification_set(tmp_path, content, says):
    assert says in refused(tmp_path, pickle.dumps(content, 4))


def test_a_file_larger_than_any_set(tmp_path, monkeypatch):
    content = pickle.dumps((PICTURES, SAME))
    monkeypatch.setattr(face_bin, "MAX_BYTES", len(content))
    assert face_bin.read_bin(write(tmp_path, content))[0] == PICTURES
    monkeypatch.setattr(face_bin, "MAX_BYTES", len(content) - 1)
    assert "has more than" in refused(tmp_path, content)


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
        path.write_bytes(packs.picture(9))


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
