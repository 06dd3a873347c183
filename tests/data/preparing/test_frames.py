"""Folders of frames: every frame is checked, and the prepared samples are those of the lists."""

import json
import os
import shutil

import numpy as np
import pytest

from tests.data.loaders.sets import smooth, write
from tests.helpers.prepared import contents, unreadable
from zoo.data import order
from zoo.data.datasets import kinetics
from zoo.data.packs.prepared import PreparedSplit

SETTINGS = {"size": 32, "segments": 4, "workers": 0}
OWN_NAMES = {"frame_template": "f{:d}.png", "first_frame": 0}


def write_set(root, template="img_{:05d}.jpg", first=1):
    """Write three clips of 7 to 9 frames."""
    for clip in range(3):
        for number in range(first, first + 7 + clip):
            form = "png" if template.endswith("png") else "jpeg"
            write(f"{root}/{{a}} b/clip{clip}/{template.format(number)}", smooth(60, 44, 20 * clip + number), form)
    lines = [f"{{a}} b/clip{clip} {7 + clip} {clip % 2}\n" for clip in range(3)]
    (root / "train.list").write_text("".join(lines))
    (root / "val.list").write_text(lines[1])
    return root


def samples(splits):
    return [
        split.sample(index, order.generator(0, "augment", index)) for split in splits for index in range(len(split))
    ]


@pytest.mark.parametrize("own_names", [{}, OWN_NAMES])
@pytest.mark.parametrize("form", [[], ["--pack"]])
def test_prepared_samples_are_those_of_the_list(tmp_path, serial, form, own_names):
    root = write_set(tmp_path / "set", *own_names.values())
    before = contents(root)
    options = [word for name, value in own_names.items() for word in (f"--{name.replace('_', '-')}", value)]
    assert serial("k400", root, *form, *options, "--out", tmp_path / "out") == 0
    source = kinetics.load(kinetics.Settings(root=str(root), **SETTINGS, **own_names))
    made = kinetics.load(kinetics.Settings(root=str(tmp_path / "out"), **SETTINGS))
    assert (
        kinetics.describe(*made).checksum == kinetics.describe(*source).checksum
        and made[0].classes == source[0].classes
    )
    expected = samples(source)
    assert contents(root) == before
    if form:
        shutil.rmtree(root)  # packs need no source
    for one, other in zip(samples(made), expected, strict=True):
        assert np.array_equal(one["video"], other["video"]) and one["label"] == other["label"]
    plan = made[0].plan(2, order.generator(0, "augment", 2))
    assert len(expected) == 4 and (bool(own_names) or len(plan["video"].files) == 4)
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["samples"] == {"train": 3, "val": 1} and report["frames"] == 32
    assert report["codecs"] == {"png" if own_names else "jpeg": 4}
    split = PreparedSplit(str(tmp_path / "out"), "train")
    assert split.frames.tolist() == [7, 8, 9] and split.sizes.tolist() == [[60, 44]] * 3


def test_every_frame_is_checked(tmp_path, serial):
    root = write_set(tmp_path / "set")
    broken = {
        "cut": "img_00004.jpg: cannot be decoded",
        "empty": "img_00004.jpg: the file is empty",
        "text": "img_00004.jpg: not an image of a supported format",
        "gap": "img_00004.jpg is missing, the list says 7 frames",
        "short": "img_00007.jpg is missing, the list says 7 frames",
        "size": "its images differ in size",
        "link": "img_00004.jpg is missing",
        "none": "the list says that it has no frames",
    }
    for name in broken:
        shutil.copytree(root / "{a} b/clip0", root / name)
    frame = (root / "cut/img_00004.jpg").read_bytes()
    (root / "cut/img_00004.jpg").write_bytes(frame[: len(frame) // 2])
    (root / "empty/img_00004.jpg").write_bytes(b"")
    (root / "text/img_00004.jpg").write_text("words")
    os.remove(root / "gap/img_00004.jpg")
    os.remove(root / "short/img_00007.jpg")
    write(f"{root}/size/img_00004.jpg", smooth(60, 46))
    os.remove(root / "link/img_00004.jpg")
    os.symlink("nowhere.jpg", root / "link/img_00004.jpg")
    lines = [f"{name} {0 if name == 'none' else 7} 0\n" for name in [*broken, "absent"]]
    with open(root / "train.list", "a", encoding="utf-8") as file:
        file.writelines(lines)
    assert serial("folder", root, "--pack", "--out", tmp_path / "out") == 1
    found = unreadable(tmp_path / "out")
    assert found.pop("absent") == "no such file" and found.keys() == broken.keys()
    for name, reason in broken.items():
        assert reason in found[name], name
    assert len(PreparedSplit(str(tmp_path / "out"), "train")) == 3


@pytest.mark.parametrize("option", ["--reencode", "--frames"])
def test_folders_of_frames_are_not_encoded_again(tmp_path, serial, capsys, option):
    root = write_set(tmp_path / "set")
    assert serial("k400", root, option, "--out", tmp_path / "out") == 2
    assert f"{option}: {root} holds folders of frames, for which there is --pack\n" in capsys.readouterr().err
