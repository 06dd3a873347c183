"""Verification sets of faces: every image is decoded, and the pairs are counted."""

import json
import os
import pickle

import pytest

from tests.commands.test_prepare import unreadable
from tests.helpers import face_sets, packs
from tests.helpers.prepared import contents, serial_prepare


@pytest.fixture
def serial(monkeypatch):
    return serial_prepare(monkeypatch)


def bin_file(images, same):
    return pickle.dumps((images, same))


@pytest.mark.parametrize("layout, option", [("rec", []), ("list", []), ("folder", ["--pack"])])
def test_intact_sets_are_counted(tmp_path, serial, layout, option, capsys):
    (tmp_path / "set").mkdir()
    face_sets.write_set(tmp_path / "set", layout)
    face_sets.add_bin(tmp_path / "set", "own.bin", 12, 16)
    assert serial("faces", tmp_path / "set", *option, "--out", tmp_path / "out") == 0
    assert json.loads((tmp_path / "out/report.json").read_text())["verification"] == [
        {
            "name": "lfw.bin",
            "pairs": 10,
            "published_pairs": 6000,
            "same": 5,
            "images_by_size": {"12 x 12": 20},
            "unreadable": 0,
        },
        {
            "name": "own.bin",
            "pairs": 12,
            "published_pairs": None,
            "same": 6,
            "images_by_size": {"16 x 16": 24},
            "unreadable": 0,
        },
    ]
    printed = capsys.readouterr().out
    assert "lfw.bin: 10 pairs (published: 6,000), 5 of the same person; images: 20 of 12 x 12\n" in printed
    assert "own.bin: 12 pairs, 6 of the same person; images: 24 of 16 x 16\n" in printed
    assert unreadable(tmp_path / "out") == {}


def test_damaged_images_and_sets_are_listed(tmp_path, serial, capsys):
    (tmp_path / "set").mkdir()
    root = face_sets.write_set(tmp_path / "set", "list")
    image = packs.encoded_image(3, 12)
    root.joinpath("agedb_30.bin").write_bytes(
        bin_file([image, b"GIF89a", image, image[:-30], packs.encoded_image(3, 14), image], [True, False, True])
    )
    root.joinpath("cfp_fp.bin").write_bytes(bin_file([image] * 3, [True]))
    root.joinpath("evil.bin").write_bytes(pickle.dumps(os.getcwd))
    before = contents(root)
    assert serial("faces", root, "--out", tmp_path / "out") == 1
    found = unreadable(tmp_path / "out")
    assert list(found) == [
        "agedb_30.bin image 1 of pair 0",
        "agedb_30.bin image 3 of pair 1",
        "cfp_fp.bin",
        "evil.bin",
    ]
    assert found["cfp_fp.bin"].startswith("3 images for 1 pairs") and found["evil.bin"].startswith("refused: ")
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert [one["unreadable"] for one in report["verification"]] == [2, 1, 1, 0]
    assert report["verification"][0]["images_by_size"] == {"12 x 12": 3, "14 x 14": 1}
    assert report["unreadable"] == 0 and report["samples"] == {"train": 30}  # of the training set
    assert "agedb_30.bin: 2 unreadable, listed in " in capsys.readouterr().out
    assert contents(root) == before
