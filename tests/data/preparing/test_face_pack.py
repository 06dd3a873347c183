"""Packs of faces: identity records as insightface writes them, read again by the loader."""

import json
import os
import pickle

import numpy as np
import pytest

from tests.helpers import face_sets, packs
from tests.helpers.prepared import contents, unreadable
from zoo.data.datasets import faces
from zoo.data.formats.face_packs import FacePack, read_property


def write_faces(root, images):
    """Write images {name: (label, value)} and their list."""
    (root / "x").mkdir(parents=True)
    for name, (_, value) in images.items():
        (root / "x" / name).write_bytes(packs.encoded_image(value))
    lines = [f"x/{name} {label}\n" for name, (label, _) in images.items()]
    (root / "label.txt").write_text("".join(lines))
    return root


IMAGES = {"a": (2, 10), "b": (0, 20), "c": (2, 30), "d": (0, 40), "e": (4, 50)}


def test_a_list_becomes_a_pack_of_insightface(tmp_path, serial):
    root = write_faces(tmp_path / "set", IMAGES)
    assert serial("faces", root, "--pack", "--out", tmp_path / "out") == 0
    pack = FacePack(str(tmp_path / "out" / "train.rec"))
    assert (len(pack), pack.identities, read_property(pack.pack.path)) == (5, 5, 5)
    found = [pack.encoded_and_label(index) for index in range(5)]
    order = ["b", "d", "a", "c", "e"]  # by identity, then as listed
    assert found == [(packs.encoded_image(IMAGES[name][1]), IMAGES[name][0]) for name in order]
    assert [pack.keys[index] for index in range(5)] == [1, 2, 3, 4, 5]


def test_the_bytes_are_those_of_the_reference_writer(tmp_path, serial):
    """But for the ids in the headers, which the reference writer leaves at 0."""
    root = write_faces(tmp_path / "set", IMAGES)
    assert serial("faces", root, "--pack", "--out", tmp_path / "out") == 0
    wanted = tmp_path / "wanted"
    wanted.mkdir()
    groups = [[packs.encoded_image(IMAGES[name][1]) for name in names] for names in ("bd", "", "ac", "", "e")]
    packs.write(wanted, packs.face_pack(groups))
    assert (wanted / "train.idx").read_text() == (tmp_path / "out" / "train.idx").read_text()
    pack = np.frombuffer((tmp_path / "out" / "train.rec").read_bytes(), np.uint8)
    reference = np.frombuffer((wanted / "train.rec").read_bytes(), np.uint8)
    assert len(pack) == len(reference) and np.count_nonzero(pack != reference) == 4  # ids 1 to 4 of five images


def test_the_loader_trains_on_the_pack(tmp_path, serial):
    root = write_faces(tmp_path / "set", {str(n): (n // 5, 5 * n) for n in range(40)})
    assert serial("faces", root, "--pack", "--out", tmp_path / "out") == 0
    settings = {"size": 12, "val_fraction": 0.3, "val_pairs": 10}
    listed, _ = faces.load(faces.Settings(root=str(root), **settings))
    packed, _ = faces.load(faces.Settings(root=str(tmp_path / "out"), **settings))
    assert len(packed) == len(listed) == 30
    for index in range(30):
        samples = [split.sample(index, np.random.default_rng(index)) for split in (listed, packed)]
        np.testing.assert_array_equal(samples[0]["image"], samples[1]["image"])
        assert samples[0]["label"] == samples[1]["label"]


def test_a_pack_is_cleaned(tmp_path, serial, capsys):
    source = tmp_path / "set"
    source.mkdir()
    good = [packs.encoded_image(value) for value in (10, 20, 30)]
    packs.write(source, packs.face_pack([[good[0], b"\x89PNG broken"], [good[1], good[2]]]))
    assert serial("faces", source, "--pack", "--out", tmp_path / "out") == 1
    pack = FacePack(str(tmp_path / "out" / "train.rec"))
    assert [pack.encoded_and_label(index) for index in range(3)] == list(zip(good, (0, 1, 1)))
    assert pack.identities == 2 and "left out: 1 unreadable" in capsys.readouterr().out
    assert b"train.rec key 2,-1,not an image" in contents(tmp_path / "out")["unreadable.csv"]


def test_a_pack_in_another_order_has_no_identity_records(tmp_path, serial):
    source = tmp_path / "set"
    source.mkdir()
    images = [packs.encoded_image(value) for value in (10, 20)]
    packs.write(source, {0: packs.content(images[0], 1), 1: packs.content(images[1], 0)})
    assert serial("faces", source, "--pack", "--out", tmp_path / "out") == 0
    pack = FacePack(str(tmp_path / "out" / "train.rec"))
    assert pack.identities is None and read_property(pack.pack.path) == 2
    assert [pack.label(index) for index in range(2)] == [1, 0]


@pytest.mark.parametrize("form", ["--resize", "--reencode"])
def test_other_forms_are_refused(tmp_path, serial, form, capsys):
    root = write_faces(tmp_path / "set", IMAGES)
    assert serial("faces", root, form, *(["64"] if form == "--resize" else []), "--out", tmp_path / "out") == 2
    assert "holds faces, for which there is --pack" in capsys.readouterr().err


def test_verification_sets_are_checked(tmp_path, serial, capsys):
    (tmp_path / "set").mkdir()
    root, image = face_sets.write_set(tmp_path / "set", "list"), packs.encoded_image(3, 12)
    damaged = pickle.dumps(([image, b"GIF89a", image, image[:-30], image, image], [True, False, True]))
    root.joinpath("agedb_30.bin").write_bytes(damaged)
    root.joinpath("cfp_fp.bin").write_bytes(pickle.dumps(([image] * 3, [True])))
    root.joinpath("evil.bin").write_bytes(pickle.dumps(os.getcwd))
    assert serial("faces", root, "--out", tmp_path / "out") == 1
    found = unreadable(tmp_path / "out")
    names = ["agedb_30.bin image 1 of pair 0", "agedb_30.bin image 3 of pair 1", "cfp_fp.bin", "evil.bin"]
    assert list(found) == names and found["cfp_fp.bin"].startswith("3 images for 1 pairs")
    assert found["evil.bin"].startswith("refused: ")
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert [one["unreadable"] for one in report["verification"]] == [2, 1, 1, 0]
    good = {"name": "lfw.bin", "pairs": 10, "same": 5, "unreadable": 0}
    assert report["verification"][3] == good and report["unreadable"] == 0
    printed = capsys.readouterr().out
    assert "lfw.bin: 10 pairs, 5 of the same person\n" in printed
    assert "agedb_30.bin: 3 pairs, 2 of the same person; 2 unreadable, listed in" in printed
