"""Samples of all data sets in their layouts: those of the loaders, in their order."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import packs
from tests.helpers.files import touch
from tests.helpers.prepared import image_folders
from zoo.data.datasets import faces, imagenet, kinetics
from zoo.data.errors import UserError
from zoo.data.preparing import job, sources
from zoo.data.preparing.sources import Sample


def find(kind, root, **lists):
    return sources.find(kind, root, lists)


def test_clips_are_those_of_the_loader(tmp_path):
    touch(tmp_path, "train/b c/2.mp4", "train/b c/10.mp4", "train/a/sub/1.webm", "val/a/0.mp4", "val/.hidden/0.mp4")
    found = find("k400", str(tmp_path))
    assert found.media == "video" and found.classes == ("a", "b c")
    splits = zip(("train", "val"), kinetics.load(kinetics.Settings(root=str(tmp_path))))
    assert found.samples == [Sample(name, clip.path, clip.label) for name, split in splits for clip in split.clips]
    assert find("folder", str(tmp_path)) == found


def test_images_are_those_of_the_loader(tmp_path):
    image_folders(tmp_path)
    found = find("imagenet", str(tmp_path))
    train, val = imagenet.load(imagenet.Settings(root=str(tmp_path)))
    names = [train.name(index) for index in range(len(train))] + [val.name(index) for index in range(len(val))]
    assert (found.media, found.classes) == ("image", ("cat", "dog"))
    assert [sample.path for sample in found.samples] == names
    assert [sample.label for sample in found.samples] == [*train.labels, *val.labels]
    assert find("folder", str(tmp_path)) == found


@pytest.mark.parametrize("folder", ["", "annotations/"])
@pytest.mark.parametrize("layout", ["{split}/{name}", "{split}/abseiling_rope/{name}"])
def test_the_official_annotations_of_kinetics(tmp_path, folder, layout):
    rows = {"train": "abseiling rope,-0a_b,4,14,train\nair,xyz,120,130,train\n", "val": "abseiling rope,q,0,10,val\n"}
    for split, text in rows.items():
        touch(tmp_path, f"{folder}{split}.csv", content=f"label,youtube_id,time_start,time_end,split\n{text}".encode())
        touch(tmp_path, layout.format(split=split, name="other.mp4"))
    found = find("k400", str(tmp_path))
    first = layout.format(split="train", name="-0a_b_000004_000014.mp4")
    assert found.samples[0] == Sample("train", first, 0) and found.classes == ("abseiling rope", "air")
    assert found.samples[1].path.endswith("xyz_000120_000130.mp4") and found.samples[2].split == "val"


def test_damaged_annotations_of_kinetics(tmp_path):
    touch(tmp_path, "train/x.mp4", "val/x.mp4")
    for text, message in (
        ("a,b\n", "its first line should name the columns"),
        ("label,youtube_id,time_start,time_end\n", "there is no clip in this list"),
        ("label,youtube_id,time_start,time_end\na,b,1,x\n", "train.csv:2: expected"),
    ):
        touch(tmp_path, "train.csv", "val.csv", content=text.encode())
        with pytest.raises(UserError, match=message):
            find("k400", str(tmp_path))


def test_the_official_annotations_of_something_something(tmp_path):
    entry = {"id": "78687", "label": "holding a potato", "template": "Holding [something]"}
    touch(tmp_path, "20bn-something-something-v2/78687.webm")
    for name, content in (
        ("train", [entry]),
        ("validation", [{**entry, "id": "5", "template": "Moving [something] up"}]),
        ("labels", {"Moving something up": "0", "Holding something": "1"}),
    ):
        (tmp_path / f"something-something-v2-{name}.json").write_text(json.dumps(content))
    found = find("ssv2", str(tmp_path))
    assert found.samples == [
        Sample("train", "20bn-something-something-v2/78687.webm", 1),
        Sample("val", "20bn-something-something-v2/5.webm", 0),
    ]
    assert found.classes == ("Moving something up", "Holding something")
    for name, text, message in (
        ("labels", '{"a": "1"}', "expected class names with labels from 0 on"),
        ("train", "[[1]]", "not an annotation file"),
        ("train", "[", "cannot be read as JSON"),
        ("train", '[{"id": "1", "template": "x"}]', "entry 0 has no id or no known template"),
    ):
        path = tmp_path / f"something-something-v2-{name}.json"
        before = path.read_text()
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            find("ssv2", str(tmp_path))
        path.write_text(before)


def test_cityscapes(tmp_path):
    touch(tmp_path, "leftImg8bit/train/ulm/ulm_1_leftImg8bit.png", "leftImg8bit/val/bonn/b_2_leftImg8bit.png")
    found = find("cityscapes", str(tmp_path))
    assert found.media == "pair" and found.samples == [
        Sample(
            "train", "leftImg8bit/train/ulm/ulm_1_leftImg8bit.png", -1, "gtFine/train/ulm/ulm_1_gtFine_labelIds.png"
        ),
        Sample("val", "leftImg8bit/val/bonn/b_2_leftImg8bit.png", -1, "gtFine/val/bonn/b_2_gtFine_labelIds.png"),
    ]
    os.remove(tmp_path / "leftImg8bit/val/bonn/b_2_leftImg8bit.png")
    with pytest.raises(UserError, match="there is no image"):
        find("cityscapes", str(tmp_path))
    with pytest.raises(UserError, match="unpack leftImg8bit"):
        find("cityscapes", str(tmp_path / "leftImg8bit"))


def test_faces_in_a_pack_a_list_and_folders(tmp_path):
    folders, listed, packed = tmp_path / "folders", tmp_path / "listed", tmp_path / "packed"
    touch(folders, "ann/1.jpg", "ben/1.jpg", "ben/0.jpg")
    found = find("faces", str(folders))
    source, names = faces.face_files.read_identities(str(folders), "")
    assert [sample.path for sample in found.samples] == [source.name(index) for index in range(3)]
    assert found.classes == names == ("ann", "ben")
    touch(listed, "label.txt", content=b"x/1.jpg 4\nx/2.jpg 0\n")
    found = find("faces", str(listed))
    assert found.samples == [Sample("train", "x/1.jpg", 4), Sample("train", "x/2.jpg", 0)] and len(found.classes) == 5
    packed.mkdir()
    offsets = packs.write(packed, packs.face_pack([[b"\xff\xd8\xffa"], [b"\xff\xd8\xffb", b"\xff\xd8\xffc"]]))
    found = find("faces", str(packed))
    size = os.path.getsize(packed / "train.rec") // 3
    assert found.samples == [Sample("train", "train.rec", -1, "", key, offsets[key], size=size) for key in (1, 2, 3)]
    assert found.classes == ("0", "1") and found.samples[2].name == "train.rec key 3"


def test_lists_and_names_of_other_files(tmp_path):
    touch(tmp_path, "clips/a.mp4", "clips/b.mp4")
    touch(tmp_path, "my.list", content=b"clips/a 1\nclips/b 0\n")
    touch(tmp_path, "my.names", content=b"no\nyes\n")
    lists = {"train_list": str(tmp_path / "my.list"), "val_list": str(tmp_path / "my.list")}
    found = find("k400", str(tmp_path), **lists, suffix=".mp4", names=str(tmp_path / "my.names"))
    assert found.samples[0] == Sample("train", "clips/a.mp4", 1) and found.classes == ("no", "yes")
    for kind, message in (("cityscapes", "has no lists"), ("faces", "has one list"), ("imagenet", "is for lists of")):
        with pytest.raises(UserError, match=f"--suffix: .*{message}.*; leave it out"):
            find(kind, str(tmp_path), suffix=".mp4")


def test_folders_that_hold_something_else(tmp_path):
    touch(tmp_path, "train.list", "val.list", content=b"clip 30 0\n")
    touch(tmp_path, "clip/img_00001.jpg")
    touch(tmp_path, "val.list", content=b"clip/img_00001.jpg 0\n")
    with pytest.raises(UserError, match="one list names videos and the other folders of frames; prepare one kind"):
        find("k400", str(tmp_path))
    with pytest.raises(UserError, match=r"^--frame-template: needs one placeholder for the number, such as img_"):
        find("k400", str(tmp_path), frame_template="x.jpg")
    for kind in ("imagenet", "faces"):
        with pytest.raises(UserError, match=r"^--first-frame: .*; leave it out"):
            find(kind, str(tmp_path), first_frame=0)


def test_a_link_that_leads_to_itself(tmp_path):
    image_folders(tmp_path)
    Path(tmp_path / "train/loop").symlink_to("loop")
    with pytest.raises(UserError, match="loop.*levels of symbolic links"):
        find("imagenet", str(tmp_path))


def test_labels_are_integers_that_json_can_hold(tmp_path):
    image_folders(tmp_path)
    assert not any(isinstance(sample.label, np.integer) for sample in find("imagenet", str(tmp_path)).samples)


def test_samples_that_are_listed_twice():
    first, same = Sample("train", "a", 1), Sample("train", "a", 1)
    samples, notes = job.unique_samples([first, same, Sample("val", "a", 1), Sample("train", "b", 0)])
    assert [sample.path for sample in samples] == ["a", "a", "b"]
    assert notes == (
        "1 samples are listed more than once; each is used once",
        "warning: 1 files are in more than one split",
    )
    with pytest.raises(UserError, match="names it twice, with the labels 1 and 2"):
        job.unique_samples([first, Sample("train", "a", 2)])
