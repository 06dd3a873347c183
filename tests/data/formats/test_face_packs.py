"""Packs of faces: every kind that writers make, how many identities they hold, and what is damaged in them."""

import numpy as np
import pytest

from data.errors import BadSample, UserError
from data.formats import face_packs
from data.stream import open_training
from tests.helpers import packs
from tests.helpers.face_sets import IMAGES_EACH, PACK, IDENTITIES, add_bin, write_set, load, values_and_labels, value

FIRST = np.random.default_rng(0)


def complaint(root, **keys):
    with pytest.raises(UserError) as caught:
        load(root, **keys)
    return str(caught.value)


def test_every_kind_of_pack(tmp_path):
    add_bin(tmp_path)
    expected = [(value(person, number), person) for person in range(IDENTITIES) for number in range(IMAGES_EACH)]
    flat = {key: packs.content(PACK[key // IMAGES_EACH][key % IMAGES_EACH], key // IMAGES_EACH) for key in range(30)}
    many = {key: packs.content(PACK[key // IMAGES_EACH][key % IMAGES_EACH], key // IMAGES_EACH, 77) for key in range(30)}
    for payloads, keys in (
        (packs.face_pack(PACK, width=8), {}),
        (packs.face_pack(PACK, more=(3, 4)), {}),
        (flat, {"num_classes": IDENTITIES}),
        (many, {"num_classes": IDENTITIES}),
        (dict(reversed(list(flat.items()))), {"num_classes": IDENTITIES}),
    ):
        packs.write(tmp_path, payloads)
        train, _ = load(tmp_path, **keys)
        assert values_and_labels(train) == expected and train.classes == range(IDENTITIES)


def test_a_picture_that_contains_the_magic_word(tmp_path):
    """A JPEG's comment may hold anything."""
    add_bin(tmp_path)
    jpeg = packs.encode(packs.pixels(9), "JPEG")
    for shift in range(4):
        comment = b"x" * shift + 3 * packs.MAGIC
        holding = jpeg[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + jpeg[2:]
        packs.write(tmp_path, packs.face_pack([[holding], [jpeg]]))
        train, _ = load(tmp_path, flip=False)
        assert np.array_equal(train.sample(0, FIRST)["image"], train.sample(1, FIRST)["image"])
        assert train.source.encoded(0) == holding


def test_how_many_identities(tmp_path):
    write_set(tmp_path, "rec")
    (tmp_path / "property").write_text("6,112,112\n")
    assert len(load(tmp_path)[0].classes) == 6
    (tmp_path / "property").write_text("9,112,112\n")
    assert len(load(tmp_path)[0].classes) == 9 and len(load(tmp_path, num_classes=7)[0].classes) == 7
    (tmp_path / "property").write_text("many\n")
    assert "property: expected `identities,height,width`, got 'many'" in complaint(tmp_path)
    (tmp_path / "property").unlink()
    packs.write(tmp_path, {0: packs.content(PACK[0][0], 0), 1: packs.content(PACK[1][0], 1)})
    assert "neither a file `property`" in complaint(tmp_path) and "data.num_classes=N" in complaint(tmp_path)


def test_labels_that_32_bits_cannot_hold(tmp_path):
    add_bin(tmp_path)
    for width in (4, 8):
        packs.write(tmp_path, {key: packs.content(PACK[key][0], 2**24 + key, width=width, flag=1) for key in range(4)})
        assert len(load(tmp_path, num_classes=2**24)[0]) == 4
        if width == 4:
            assert "32-bit floats, which cannot tell more than 16777216" in complaint(tmp_path, num_classes=2**24 + 9)
    train, _ = load(tmp_path, num_classes=2**24 + 9)
    assert [int(train.sample(index, FIRST)["label"]) for index in range(4)] == [2**24 + key for key in range(4)]
    assert train.classes == range(2**24 + 9)  # and no list of them


@pytest.mark.parametrize("off", [-3, -1, 0, 2, 64])
def test_record_0_may_be_rounded(tmp_path, off):
    """In a pack of 2 ** 24 pictures and more, 32-bit floats round where the pictures end."""
    payloads = packs.face_pack(PACK)
    payloads[0] = packs.content(b"", 31 + off, 37 + off)
    packs.write(tmp_path, payloads)
    records = face_packs.FacePack(str(tmp_path / "train.rec"))
    assert len(records) == 30 and records.identities == 6 and records.keys.tolist() == list(range(1, 31))


def test_record_0_that_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(face_packs, "MAX_KEY_ERROR", 4)
    payloads = packs.face_pack(PACK)
    payloads[0] = packs.content(b"", 20, 37)
    packs.write(tmp_path, payloads)
    assert "according to record 0 the images end before key 20, but they do not" in complaint(tmp_path)


def broken(tmp_path, index, content):
    """The pack with other bytes in the payload of one picture."""
    offsets = packs.write(tmp_path, packs.face_pack(PACK))
    pack = bytearray((tmp_path / "train.rec").read_bytes())
    start = offsets[index + 1]
    pack[start : start + len(content)] = content
    (tmp_path / "train.rec").write_bytes(pack)


def test_one_damaged_record_is_a_bad_sample(tmp_path):
    add_bin(tmp_path)
    broken(tmp_path, 7, b"\0\0\0\0")
    train, _ = load(tmp_path)
    with pytest.raises(BadSample, match="no record begins at byte"):
        train.sample(7, FIRST)
    assert [int(train.sample(index, FIRST)["label"]) for index in (6, 8)] == [1, 1]
    ((batch, bad),) = open_training(train, 1, 30, 0, 1)
    assert [(each.name, each.replaced_by) for each in bad] == [("train.rec key 8", "train.rec key 9")]
    for label, says in (
        (6.0, "label 6 of 6 identities"),
        (-1.0, "label -1.0"),
        (0.5, "label 0.5"),
        (float("nan"), "label nan"),
        (float("inf"), "label inf"),
    ):
        payloads = packs.face_pack(PACK)
        payloads[8] = packs.content(PACK[1][2], label)
        packs.write(tmp_path, payloads)
        with pytest.raises(BadSample, match=says):
            load(tmp_path)[0].sample(7, FIRST)


def test_a_damaged_pack_says_so_before_a_run(tmp_path):
    write_set(tmp_path, "rec")
    pack, index = (tmp_path / "train.rec").read_bytes(), (tmp_path / "train.idx").read_text()
    (tmp_path / "train.rec").write_bytes(pack[:-100])
    assert "lies outside" in complaint(tmp_path) and f"{len(pack) - 100} bytes" in complaint(tmp_path)
    (tmp_path / "train.rec").write_bytes(pack[:-4])
    assert "the file ends within the frame" in complaint(tmp_path)
    (tmp_path / "train.rec").write_bytes(b"\0" * len(pack))
    assert "magic 0x00000000" in complaint(tmp_path)
    (tmp_path / "train.rec").write_bytes(pack)
    (tmp_path / "train.idx").unlink()
    assert "train.idx: cannot read the index" in complaint(tmp_path)
    (tmp_path / "train.idx").write_text(index)
    packs.write(tmp_path, {1: packs.content(b"", 1, 1), 0: packs.content(b"", 1, 2)})
    assert "there is no image in this pack" in complaint(tmp_path)
