"""Packs of faces and verification sets of insightface: every layout and protocol, and damaged files."""

import os
import pickle
import struct

import numpy as np
import pytest

from tests.helpers import packs
from tests.helpers.face_sets import IDENTITIES, IMAGES_EACH, PACK, add_bin, load, value, values_and_labels, write_set
from tests.helpers.files import Call
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import face_packs
from zoo.data.stream import open_training

RNG = np.random.default_rng(0)


def load_error(root, **keys):
    with pytest.raises(UserError) as caught:
        load(root, **keys)
    return str(caught.value)


def test_every_layout_of_a_pack(tmp_path):
    add_bin(tmp_path)
    expected = [(value(identity, number), identity) for identity in range(IDENTITIES) for number in range(IMAGES_EACH)]
    rows = [(key, PACK[key // IMAGES_EACH][key % IMAGES_EACH], key // IMAGES_EACH) for key in range(30)]
    one_label = {key: packs.content(image, identity) for key, image, identity in rows}
    two_labels = {key: packs.content(image, identity, 77) for key, image, identity in rows}
    for payloads, keys in (
        (packs.face_pack(PACK, width=8), {}),
        (packs.face_pack(PACK, more=(3, 4)), {}),
        (one_label, {"num_classes": IDENTITIES}),
        (two_labels, {"num_classes": IDENTITIES}),
        (dict(reversed(list(one_label.items()))), {"num_classes": IDENTITIES}),
    ):
        packs.write(tmp_path, payloads)
        train, _ = load(tmp_path, **keys)
        assert values_and_labels(train) == expected and train.classes == range(IDENTITIES)


def test_image_that_contains_the_magic_word(tmp_path):
    """A comment in a JPEG may hold any bytes."""
    add_bin(tmp_path)
    jpeg = packs.encode(packs.pixels(9), "JPEG")
    for shift in range(4):
        comment = b"x" * shift + 3 * packs.MAGIC
        with_comment = jpeg[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + jpeg[2:]
        packs.write(tmp_path, packs.face_pack([[with_comment], [jpeg]]))
        train, _ = load(tmp_path, flip=False)
        assert np.array_equal(train.sample(0, RNG)["image"], train.sample(1, RNG)["image"])
        assert train.source.encoded(0) == with_comment


def test_number_of_identities(tmp_path):
    write_set(tmp_path, "rec")
    (tmp_path / "property").write_text("6,112,112\n")
    assert len(load(tmp_path)[0].classes) == 6
    (tmp_path / "property").write_text("9,112,112\n")
    assert len(load(tmp_path)[0].classes) == 9 and len(load(tmp_path, num_classes=7)[0].classes) == 7
    (tmp_path / "property").write_text("many\n")
    assert "property: expected `identities,height,width`, got 'many'" in load_error(tmp_path)
    (tmp_path / "property").unlink()
    packs.write(tmp_path, {0: packs.content(PACK[0][0], 0), 1: packs.content(PACK[1][0], 1)})
    assert "neither the pack nor a file `property`" in load_error(tmp_path) and "data.num_classes=N" in load_error(
        tmp_path
    )


def test_labels_beyond_32_bit_floats(tmp_path):
    add_bin(tmp_path)
    for width in (4, 8):
        packs.write(tmp_path, {key: packs.content(PACK[key][0], 2**24 + key, width=width, flag=1) for key in range(4)})
        assert len(load(tmp_path, num_classes=2**24)[0]) == 4
        if width == 4:
            assert "32-bit floats, which cannot distinguish more than 16777216" in load_error(
                tmp_path, num_classes=2**24 + 9
            )
    train, _ = load(tmp_path, num_classes=2**24 + 9)
    assert [int(train.sample(index, RNG)["label"]) for index in range(4)] == [2**24 + key for key in range(4)]
    assert train.classes == range(2**24 + 9)  # and no list of them


@pytest.mark.parametrize("error", [-3, -1, 0, 2, 64])
def test_record_0_may_be_rounded(tmp_path, error):
    """In a pack of 2 ** 24 images and more, 32-bit floats round the key at which the images end."""
    payloads = packs.face_pack(PACK)
    payloads[0] = packs.content(b"", 31 + error, 37 + error)
    packs.write(tmp_path, payloads)
    records = face_packs.FacePack(str(tmp_path / "train.rec"))
    assert len(records) == 30 and records.identities == 6 and records.keys.tolist() == list(range(1, 31))


def test_wrong_record_0(tmp_path, monkeypatch):
    monkeypatch.setattr(face_packs, "MAX_KEY_ERROR", 4)
    payloads = packs.face_pack(PACK)
    payloads[0] = packs.content(b"", 20, 37)
    packs.write(tmp_path, payloads)
    assert "according to record 0 the images end before key 20, but they do not" in load_error(tmp_path)


def write_damaged(tmp_path, index, content):
    """Write the pack with other bytes at the beginning of the record of one image."""
    offsets = packs.write(tmp_path, packs.face_pack(PACK))
    pack = bytearray((tmp_path / "train.rec").read_bytes())
    start = offsets[index + 1]
    pack[start : start + len(content)] = content
    (tmp_path / "train.rec").write_bytes(pack)


def test_one_damaged_record_is_a_bad_sample(tmp_path):
    add_bin(tmp_path)
    write_damaged(tmp_path, 7, b"\0\0\0\0")
    train, _ = load(tmp_path)
    with pytest.raises(BadSample, match="no record begins at byte"):
        train.sample(7, RNG)
    assert [int(train.sample(index, RNG)["label"]) for index in (6, 8)] == [1, 1]
    ((_, bad),) = open_training(train, 1, 30, 0, 1)
    assert [(sample.name, sample.replaced_by) for sample in bad] == [("train.rec key 8", "train.rec key 9")]
    for label, reason in (
        (6.0, "label 6, but there are 6 identities"),
        (-1.0, "label -1.0"),
        (0.5, "label 0.5"),
        (float("nan"), "label nan"),
        (float("inf"), "label inf"),
    ):
        payloads = packs.face_pack(PACK)
        payloads[8] = packs.content(PACK[1][2], label)
        packs.write(tmp_path, payloads)
        with pytest.raises(BadSample, match=reason):
            load(tmp_path)[0].sample(7, RNG)


def test_a_damaged_pack_is_refused_before_a_run(tmp_path):
    write_set(tmp_path, "rec")
    pack, index = (tmp_path / "train.rec").read_bytes(), (tmp_path / "train.idx").read_text()
    (tmp_path / "train.rec").write_bytes(pack[:-100])
    assert "lies outside" in load_error(tmp_path) and f"{len(pack) - 100} bytes" in load_error(tmp_path)
    (tmp_path / "train.rec").write_bytes(pack[:-4])
    assert "the file ends within the frame" in load_error(tmp_path)
    (tmp_path / "train.rec").write_bytes(b"\0" * len(pack))
    assert "magic 0x00000000" in load_error(tmp_path)
    (tmp_path / "train.rec").write_bytes(pack)
    (tmp_path / "train.idx").unlink()
    assert "train.idx: cannot read the index" in load_error(tmp_path)
    (tmp_path / "train.idx").write_text(index)
    packs.write(tmp_path, {1: packs.content(b"", 1, 1), 0: packs.content(b"", 1, 2)})
    assert "there is no image in this pack" in load_error(tmp_path)


TRACE = "executed"
IMAGES = [packs.encoded_image(value) for value in range(20)]
SAME = [number % 3 == 0 for number in range(10)]


def arrays(images):
    """Return the arrays of cv2.imencode."""
    return [np.frombuffer(image, np.uint8).reshape(-1, 1).copy() for image in images]


def write(tmp_path, content, name="lfw.bin"):
    (tmp_path / name).write_bytes(content)
    return str(tmp_path / name)


def refused(tmp_path, content):
    with pytest.raises(UserError) as caught:
        face_packs.read_bin(write(tmp_path, content))
    assert str(tmp_path / "lfw.bin") in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("images", [IMAGES, arrays(IMAGES)], ids=["bytes", "arrays"])
def test_every_protocol(tmp_path, protocol, images):
    content = pickle.dumps((images, SAME), protocol)
    assert face_packs.read_bin(write(tmp_path, content)) == (IMAGES, SAME, content)


def test_strings_of_python_2(tmp_path):
    """Python 2 pickled a str by opcode U with one byte for its length, or T with four."""
    items = b"".join(b"T" + struct.pack("<i", len(image)) + image for image in IMAGES)
    content = b"\x80\x02](" + items + b"e](" + b"".join(b"\x88" if same else b"\x89" for same in SAME) + b"e\x86."
    assert face_packs.read_bin(write(tmp_path, content))[:2] == (IMAGES, SAME)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_file_that_calls_something_is_refused_and_nothing_runs(tmp_path, protocol):
    """tests/data/formats/test_safe_pickle.py has further attacks."""
    trace = f"open({str(tmp_path / TRACE)!r}, 'w')"
    content = pickle.dumps((IMAGES, [Call(eval, trace)] * 10), protocol)
    assert "running code" in refused(tmp_path, content) and os.listdir(tmp_path) == ["lfw.bin"]
    pickle.loads(content)  # Python would run it
    assert TRACE in os.listdir(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff\xe0", pickle.dumps((IMAGES, SAME))[:-50]])
def test_damage(tmp_path, content):
    assert "damaged" in refused(tmp_path, content)


@pytest.mark.parametrize(
    "content, reason",
    [
        ([1], "not a verification set"),
        ((IMAGES, SAME, SAME), "not a verification set"),
        (7, "not a verification set"),
        ((IMAGES, tuple(SAME)), "not a verification set"),
        ((IMAGES[:19], SAME), "19 images for 10 pairs"),
        (([], []), "0 images for 0 pairs"),
        ((IMAGES, SAME[:9] + [2]), "the flag of pair 9"),
        ((IMAGES, SAME[:9] + [None]), "the flag of pair 9"),
        ((IMAGES, SAME[:9] + [1.0]), "the flag of pair 9"),
        ((IMAGES[:13] + ["text"] + IMAGES[14:], SAME), "image 13 (of pair 6)"),
        ((IMAGES[:13] + [b""] + IMAGES[14:], SAME), "image 13 (of pair 6)"),
        ((IMAGES[:19] + [np.zeros(4, np.float32)], SAME), "arrays of type 'f4' are not supported"),
    ],
)
def test_content_that_is_not_a_verification_set(tmp_path, content, reason):
    assert reason in refused(tmp_path, pickle.dumps(content, 4))


def test_a_file_larger_than_any_set(tmp_path, monkeypatch):
    content = pickle.dumps((IMAGES, SAME))
    monkeypatch.setattr(face_packs, "MAX_BIN_BYTES", len(content))
    assert face_packs.read_bin(write(tmp_path, content))[0] == IMAGES
    monkeypatch.setattr(face_packs, "MAX_BIN_BYTES", len(content) - 1)
    assert f"it has {len(content)} bytes, the limit is" in refused(tmp_path, content)
