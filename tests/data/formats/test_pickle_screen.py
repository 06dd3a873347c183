"""Screening of pickles: small files that would make large, deep or endless objects are refused before they do."""

import io
import pickle

import pytest

from zoo.data.formats.pickle_screen import screen

ENCODE = b"\x80\x02c_codecs\nencode\nq\x000"


def attacks():
    """Yield names, pickles and what is said of them."""
    yield (
        "billions of items",
        b"\x80\x02]q\x00" + b"".join(b"](h%ch%ceq%c" % (k, k, k + 1) for k in range(60)),
        "expands",
    )
    yield "tuples of tuples", b"\x80\x02)" + b"2\x86" * 60, "expands"
    yield "depth", b"\x80\x02)" + b"\x85" * 10_000, "100 levels"
    yield "a tuple as a key", b"\x80\x02})Ns", "neither text nor a number"
    yield "a list in itself", b"\x80\x02]q\x00h\x00a", "grows after it is used"
    yield "memo", b"\x80\x02Nr\x00\x00\x00\x10", "a memo of"
    yield "opcodes", b"\x80\x04(" + b"\x8f" * 600_000, "opcodes"
    yield "a long integer", b"\x80\x02\x8a\x20" + b"\x01" * 32, "an integer of 249 bits"
    yield "encoding", ENCODE + b"h\x00U\x01aU\x08punycode\x86R", "in an encoding"
    text = b"X" + (1 << 16).to_bytes(4, "little") + b"a" * (1 << 16) + b"q\x010U\x06latin1q\x020"
    yield "the same text again", ENCODE + text + b"(" + b"h\x00h\x01h\x02\x86R" * 1000, "expands"
    yield "bytearray", b"\x80\x02c__builtin__\nbytearray\nJ\x00\x00\x00\x40\x85R", "as an argument"
    yield "a storage", b"\x80\x02(U\x07storageJ\x00\x00\x00\x40tQ", "a storage of"


@pytest.mark.parametrize("content, reason", [pytest.param(*rest, id=name) for name, *rest in attacks()])
def test_attacks_are_refused(content, reason):
    with pytest.raises(ValueError, match=reason):
        screen(io.BytesIO(content + b"."), len(content) + 1)


@pytest.mark.parametrize("protocol", range(6))
def test_ordinary_contents_pass(protocol):
    shared = (0.9, 0.999)
    content = {"a": [shared, shared, {1: {2, 3}}], "b": None, "c": list(range(3000)), "d": "x" * 100}
    file = io.BytesIO(pickle.dumps(content, protocol) + b"rest")
    screen(file, len(file.getvalue()))
    assert file.read() == b"rest"
