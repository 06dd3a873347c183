"""Preparation: samples of all layouts, packs of faces, folders of frames, and kills at every moment."""

import fcntl
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tests.data.loaders.sets import smooth, write
from tests.helpers import face_sets, packs
from tests.helpers.cli import call_zoo
from tests.helpers.files import touch
from tests.helpers.prepared import (
    all_samples,
    assert_equal_samples,
    contents,
    image_folders,
    serial_prepare,
    unreadable,
)
from zoo.commands import prepare as prepare_command
from zoo.data import order
from zoo.data.datasets import faces, imagenet, kinetics
from zoo.data.errors import UserError
from zoo.data.formats.face_packs import FacePack, read_property
from zoo.data.packs import manifest
from zoo.data.packs.prepared import PreparedSplit
from zoo.data.preparing import job as jobs
from zoo.data.preparing import listing
from zoo.data.preparing.listing import Sample


@pytest.fixture
def serial(monkeypatch):
    return serial_prepare(monkeypatch)


def find(kind, root, **lists):
    return listing.find(kind, root, lists)


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
    with pytest.raises(UserError, match="loop: this link leads nowhere"):
        find("imagenet", str(tmp_path))


def write_faces(root, images):
    """Write images {name: (label, value)} and their list."""
    (root / "x").mkdir(parents=True)
    for name, (_, value) in images.items():
        (root / "x" / name).write_bytes(packs.encoded_image(value))
    lines = [f"x/{name} {label}\n" for name, (label, _) in images.items()]
    (root / "label.txt").write_text("".join(lines))
    return root


IMAGES = {"a": (2, 10), "b": (0, 20), "c": (2, 30), "d": (0, 40), "e": (4, 50)}


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
    settings = {"size": 12, "verification": ("lfw.bin",)}
    face_sets.add_bin(root), face_sets.add_bin(tmp_path / "out")
    listed, _ = faces.load(faces.Settings(root=str(root), **settings))
    packed, _ = faces.load(faces.Settings(root=str(tmp_path / "out"), **settings))
    assert len(packed) == len(listed) == 40
    for index in range(40):
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


def test_two_labels_of_a_file_are_refused(tmp_path, serial, capsys):
    root = face_folders(tmp_path / "set")
    (root / "label.txt").write_text("person0/0.png 0\nperson0/1.png 1\nperson0/0.png 1\n")
    assert serial("faces", root, "--pack", "--out", tmp_path / "out") == 2
    message = "person0/0.png has the labels 0 and 1; remove one"
    assert message in capsys.readouterr().err and not (tmp_path / "out" / "train.rec").exists()


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
    expected = all_samples(source)
    assert contents(root) == before
    if form:
        shutil.rmtree(root)  # packs need no source
    assert_equal_samples(all_samples(made), expected)
    plan = made[0].plan(2, order.generator(0, "augment", 2))
    assert len(expected) == 4 and (bool(own_names) or len(plan["video"].files) == 4)
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["samples"] == {"train": 3, "val": 1} and report["frames"] == 32
    assert report["codecs"] == {"png" if own_names else "jpeg": 4}
    columns = manifest.read(str(tmp_path / "out")).columns
    assert columns["frames"].tolist()[:3] == [7, 8, 9] and columns["size"].tolist() == [[60, 44]] * 4


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


def test_a_chunk_that_another_program_has_is_waited_for(tmp_path, serial, monkeypatch, capsys):
    root, make, other = image_folders(tmp_path / "set"), jobs.make_plan, ExitStack()
    assert serial("imagenet", root, "--out", tmp_path / "wanted", "--pack") == 0

    def plan_and_take(out, *words):
        plan = make(out, *words)
        file = os.open(jobs.work_path(out, 0, "lock"), os.O_CREAT | os.O_RDWR)
        other.callback(os.close, file)
        fcntl.flock(file, fcntl.LOCK_EX)
        return plan

    monkeypatch.setattr(jobs, "make_plan", plan_and_take)
    monkeypatch.setattr(prepare_command.time, "sleep", lambda seconds: other.close())
    capsys.readouterr()
    assert serial("imagenet", root, "--out", tmp_path / "out", "--pack") == 0
    assert capsys.readouterr().out.count("waiting for other programs, which have the last chunks") == 1
    assert contents(tmp_path / "out") == contents(tmp_path / "wanted")


@pytest.mark.slow
def test_programs_that_start_at_once_make_one_result(tmp_path):
    root = image_folders(tmp_path / "set", counts=(20, 9))
    words = ["data", "prepare", "imagenet", str(root), "--workers", "1", "--resize", "16", "--out"]
    assert call_zoo(*words, tmp_path / "wanted") == 0
    command = [sys.executable, "-m", "zoo", *words, str(tmp_path / "out")]
    programs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    programs[0].kill()
    for program in programs[1:]:
        assert "done: " in program.communicate()[0] and program.returncode == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "wanted")


class Killed(BaseException):
    """The end of the process: nothing may be written after it."""


class Kill:
    """Count the operations on files and fail at one of them and all later ones; what is not synced may be lost."""

    def __init__(self, monkeypatch, moment):
        self.moment, self.count, self.random = moment, 0, random.Random(moment)
        for name in ("fsync", "replace", "rename"):
            monkeypatch.setattr(os, name, self._wrap(getattr(os, name), name))

    def _wrap(self, function, name):
        def wrapped(*arguments):
            self.count += 1
            if self.count >= self.moment:
                if name == "fsync" and self.count == self.moment and os.fstat(arguments[0]).st_size:
                    size = os.fstat(arguments[0]).st_size
                    if os.path.isfile(f"/proc/self/fd/{arguments[0]}"):
                        os.truncate(f"/proc/self/fd/{arguments[0]}", self.random.randint(0, size))
                raise Killed
            return function(*arguments)

        return wrapped


def face_folders(root):
    for identity in range(3):
        os.makedirs(root / f"person{identity}")
        for number in range(3):
            name = root / f"person{identity}" / f"{number}.png"
            name.write_bytes(packs.encoded_image(40 * identity + number, 16))
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, form, make",
    [
        ("imagenet", ["--resize", "16"], image_folders),
        ("faces", ["--pack"], face_folders),
    ],
)
def test_every_moment(tmp_path, serial, kind, form, make):
    root = make(tmp_path / "set")
    damaged = next(root.rglob("1.png"))
    damaged.write_bytes(damaged.read_bytes()[:60])
    wanted = tmp_path / "wanted"
    assert serial(kind, root, "--out", wanted, *form) == 1
    moment, killed = 0, True
    while killed:
        moment, killed = moment + 1, False
        out = tmp_path / f"out{moment}"
        with pytest.MonkeyPatch.context() as patch:
            Kill(patch, moment)
            try:
                serial(kind, root, "--out", out, *form)
            except Killed:
                killed = True
        assert serial(kind, root, "--out", out, *form) == 1
        assert contents(out) == contents(wanted), moment
    assert moment > 30
