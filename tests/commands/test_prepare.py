"""`zoo data prepare` on small data sets: all that is broken is found, and the rest is in the manifest and the packs."""

import json
import os
import pickle
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.helpers import clips, packs
from tests.helpers.cli import call_zoo
from tests.helpers.prepared import contents, image_folders, serial_prepare, unreadable
from zoo.data.datasets import imagenet, kinetics
from zoo.data.errors import BadSample
from zoo.data.packs import manifest
from zoo.data.packs.prepared import PreparedSplit


@pytest.fixture
def serial(monkeypatch):
    return serial_prepare(monkeypatch)


def clip_folders(root, count=3):
    for split in ("train", "val"):
        for label, name in enumerate(("jump", "run")):
            os.makedirs(root / split / name)
            for number in range(count):
                frames = clips.numbered(6 + 2 * number + label)
                clips.encode(root / split / name / f"{number}.mp4", frames, gop=4, rate=10 + number)
    return root


def break_clips(folder):
    """Add files to a folder of clips that are broken in eleven ways: {name: part of the reason}."""
    good = (folder / "0.mp4").read_bytes()
    front = clips.encode(folder / "front.mp4", clips.numbered(20), gop=5, container_options={"movflags": "faststart"})
    (folder / "empty.mp4").write_bytes(b"")
    (folder / "cut.mp4").write_bytes(good[: len(good) // 2])
    (folder / "cut_front.mp4").write_bytes(Path(front).read_bytes()[:-300])
    os.remove(front)
    (folder / "page.mp4").write_bytes(b"<html><body>404 Not Found</body></html>" * 30)
    (folder / "noise.mp4").write_bytes(np.random.default_rng(0).bytes(5000))
    (folder / "image.mp4").write_bytes(packs.encoded_image(3, 32, "JPEG"))
    clips.encode_audio(folder / "sound.mp4")
    damaged, start = bytearray(good), good.index(b"mdat") + 40
    damaged[start : good.index(b"moov") - 4] = np.random.default_rng(1).bytes(good.index(b"moov") - 4 - start)
    (folder / "damaged.mp4").write_bytes(damaged)
    (folder / "link.mp4").symlink_to("nowhere.mp4")
    (folder / "circle.mp4").symlink_to("circle.mp4")
    os.mkfifo(folder / "pipe.mp4")
    return {
        "empty": "the file is empty",
        "cut": "cannot be decoded as video",
        "cut_front": "truncated",
        "page": "cannot be decoded as video",
        "noise": "cannot be decoded as video",
        "image": "it is an image",
        "sound": "there is no video",
        "damaged": "",
        "link": "no such file",
        "circle": "cannot be read (Too many levels of symbolic links)",
        "pipe": "not a regular file",
    }


def test_clips_that_are_broken_in_many_ways(tmp_path, serial, capsys):
    root = clip_folders(tmp_path / "set")
    reasons = break_clips(root / "train" / "run")
    assert serial("folder", root, "--out", tmp_path / "out") == 1
    found = unreadable(tmp_path / "out")
    assert set(found) == {f"train/run/{name}.mp4" for name in reasons}
    for name, part in reasons.items():
        assert part in found[f"train/run/{name}.mp4"]
    output = capsys.readouterr().out
    assert (
        "train: 6 readable samples\nval: 6 readable samples" in output
        and "left out: 10 unreadable and 1 missing" in output
    )
    train = PreparedSplit(str(tmp_path / "out"), "train")
    names = [f"train/{name}/{number}.mp4" for name in ("jump", "run") for number in range(3)]
    assert [train.name(index) for index in range(6)] == names
    assert train.labels.tolist() == [0] * 3 + [1] * 3 and train.frames.tolist() == [6, 8, 10, 7, 9, 11]
    assert train.info.classes == ("jump", "run") and train.info.codecs == ("h264",)
    columns = manifest.read(str(tmp_path / "out")).columns
    assert columns["rate"][:3].tolist() == [[10, 1], [11, 1], [12, 1]] and columns["size"][0].tolist() == [96, 64]
    assert columns["bytes"][0] == os.path.getsize(root / "train/jump/0.mp4")
    assert train.content(0) == (root / "train/jump/0.mp4").read_bytes()
    with train.open(0) as path:
        assert path == str(root / "train/jump/0.mp4")
    assert pickle.loads(pickle.dumps(train)).name(2) == names[2]


def test_clips_in_packs(tmp_path, serial):
    root = clip_folders(tmp_path / "set", 2)
    for form in ("--pack", "--reencode", "--frames"):
        assert serial("folder", root, form, "--out", tmp_path / form) == 0
    packed = PreparedSplit(str(tmp_path / "--pack"), "val")
    assert [packed.content(i) for i in range(4)] == [
        (root / f"val/{c}/{n}.mp4").read_bytes() for c in ("jump", "run") for n in range(2)
    ]
    encoded, frames = (PreparedSplit(str(tmp_path / form), "train") for form in ("--reencode", "--frames"))
    with encoded.open(3) as path:
        shown = clips.video_frames(path, lambda count: np.array([count - 1, 0, 4]))
    assert clips.read_numbers(shown) == [8, 0, 4] and encoded.frames[3] == 9
    with packed.open(0) as path:
        assert Path(path).read_bytes() == packed.content(0)
    assert not os.path.exists(path)
    parts = frames.frame_contents(3, [8, 0])
    images = [cv2.imdecode(np.frombuffer(part, np.uint8), cv2.IMREAD_COLOR) for part in parts]
    assert clips.read_numbers(images) == [8, 0]
    with pytest.raises(BadSample, match="there is no frame 9 in a clip of 9 frames"):
        frames.frame_contents(3, [9])


def test_images_with_masks(tmp_path, serial):
    root = tmp_path / "set"
    for split in ("train", "val"):
        for folder in (f"leftImg8bit/{split}/ulm", f"gtFine/{split}/ulm"):
            os.makedirs(root / folder)
        for number in range(3):
            stem = f"{split}/ulm/ulm_{number}"
            (root / f"leftImg8bit/{stem}_leftImg8bit.png").write_bytes(packs.encoded_image(number))
            mask = packs.encode(np.full((12, 12), number, np.uint8))
            (root / f"gtFine/{stem}_gtFine_labelIds.png").write_bytes(mask)
    (root / "gtFine/train/ulm/ulm_0_gtFine_labelIds.png").write_bytes(packs.encoded_image(0, 13))
    os.remove(root / "gtFine/train/ulm/ulm_1_gtFine_labelIds.png")
    for number, mask in ((0, np.zeros((13, 13))), (1, np.full((12, 12), 99))):
        path = root / f"gtFine/val/ulm/ulm_{number}_gtFine_labelIds.png"
        path.write_bytes(packs.encode(mask.astype(np.uint8)))
    assert serial("cityscapes", root, "--pack", "--out", tmp_path / "out") == 1
    reasons = unreadable(tmp_path / "out")
    assert "holds colors" in reasons["leftImg8bit/train/ulm/ulm_0_leftImg8bit.png"]
    assert "the image has 12 x 12 pixels, its mask 13 x 13" in reasons["leftImg8bit/val/ulm/ulm_0_leftImg8bit.png"]
    assert "holds the value 99" in reasons["leftImg8bit/val/ulm/ulm_1_leftImg8bit.png"]
    assert reasons["gtFine/train/ulm/ulm_1_gtFine_labelIds.png"] == "no such file"
    train = PreparedSplit(str(tmp_path / "out"), "train")
    assert len(train) == 1 and train.content(0) == packs.encoded_image(2)
    assert train.mask(0) == packs.encode(np.full((12, 12), 2, np.uint8))
    assert os.path.samefile(train.mask_path(0), root / "gtFine/train/ulm/ulm_2_gtFine_labelIds.png")


def test_missing_files_and_equal_contents(tmp_path, serial, capsys):
    root = image_folders(tmp_path / "set")
    (root / "train/dog/copy.png").write_bytes((root / "train/cat/0.png").read_bytes())
    for split in ("train", "val"):
        paths = sorted((root / split).rglob("*.png"))
        lines = [f"{path.relative_to(root)} {int(path.parent.name == 'dog')}\n" for path in paths]
        (root / f"{split}_list.txt").write_text("".join([*lines, f"{split}/cat/gone.png 0\n", lines[0]]))
    assert serial("imagenet", root, "--out", tmp_path / "out") == 1
    output = capsys.readouterr().out
    assert "0 unreadable and 2 missing" in output
    assert "3 files have the contents of another one, 1 with another label" in output
    assert unreadable(tmp_path / "out") == {f"{split}/cat/gone.png": "no such file" for split in ("train", "val")}
    assert (tmp_path / "out/classes.txt").read_text() == "cat\ndog\n"


def test_nothing_of_the_user_is_written_over(tmp_path, serial, capsys):
    root, other = image_folders(tmp_path / "set"), tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    before = contents(tmp_path)
    for out, message in ((other, "this folder holds other files"), (root / "out", "lies inside the data set")):
        assert serial("folder", root, "--out", out) == 2
        assert message in capsys.readouterr().err
    assert serial("folder", root, "--out", root) == 2
    (other / "thesis.txt").rename(other / "prepare.json")
    assert serial("folder", root, "--out", other) == 2
    (other / "prepare.json").rename(other / "thesis.txt")
    assert contents(tmp_path) == before


def test_another_preparation_in_the_same_folder(tmp_path, serial, capsys):
    root, out = image_folders(tmp_path / "set"), tmp_path / "out"
    assert serial("imagenet", root, "--resize", "16", "--out", out) == 0
    done = contents(out)
    assert serial("imagenet", root, "--resize", "16", "--out", out) == 0  # complete: prints the report again
    assert "done: " in capsys.readouterr().out and contents(out) == done and not (out / "work").exists()
    assert serial("imagenet", root, "--resize", "18", "--out", out) == 2
    assert "another preparation was begun there (short_side: 16 there, 18 now)" in capsys.readouterr().err
    assert contents(out) == done


@pytest.mark.parametrize(
    "options, message",
    [
        (["--crf", "20"], "--crf: is for --reencode only"),
        (["--pack", "--short-side", "128"], "--short-side: is for --reencode and --frames only"),
        (["--reencode", "--quality", "80"], "--quality: is for --frames and --resize only"),
        (["--reencode", "--gop", "0"], "--gop 0: must be 1 to 1000"),
        (["--resize", "8"], "--resize 8: must be 16 to 4096"),
        (["--workers", "0"], "argument --workers: expected a whole number of at least 1, got '0'"),
        (["--frames"], "holds images, for which there is --pack and --resize"),
        (["--full"], "--full: is for clips"),
        (["--val-fraction", "0.9"], "--val-fraction: must be above 0 and at most 0.5"),
    ],
)
def test_options_that_do_not_apply(tmp_path, serial, capsys, options, message):
    root = image_folders(tmp_path / "set")
    assert serial("imagenet", root, "--out", tmp_path / "out", *options) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("root", ["s3://bucket/set", "shards/{0..9}.tar", "tables/*.parquet"])
def test_what_is_no_folder_needs_the_name_of_one(root, capsys):
    assert call_zoo("data", "prepare", "imagenet", root) == 2
    assert f"--out: name a folder for the result; beside {root}" in capsys.readouterr().err.replace(
        f"{os.getcwd()}/", ""
    )


def test_a_dry_run_and_the_report_as_json(tmp_path, serial, capsys):
    root, out = image_folders(tmp_path / "set"), tmp_path / "out"
    assert serial("folder", root, "--out", out, "--dry-run") == 0
    assert "14 samples of 2 classes" in capsys.readouterr().out and not out.exists()
    assert serial("folder", root, "--out", out, "--json", tmp_path / "report.json") == 0
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads((out / "report.json").read_text())


@pytest.mark.parametrize("dataset", [imagenet, kinetics])
def test_a_set_without_a_validation_split(tmp_path, serial, capsys, dataset):
    """It is divided as the loader divides it, and not again."""
    root, out = tmp_path / "set", tmp_path / "out"
    image_folders(root) if dataset is imagenet else clip_folders(root)
    shutil.rmtree(root / "val")
    for folder in list((root / "train").iterdir()):
        shutil.move(folder, root)
    (root / "train").rmdir()
    assert serial("folder", root, "--out", out) == 2
    assert "zoo data prepare: --val-fraction 0.2" in capsys.readouterr().err and not (out / "report.json").exists()
    assert serial("folder", root, "--out", out, "--val-fraction", "0.2") == 0
    expected = dataset.load(dataset.Settings(root=str(root), val_fraction=0.2))
    for fraction in (None, 0.5):
        found = dataset.load(dataset.Settings(root=str(out), val_fraction=fraction))
        for one, other in zip(found, expected, strict=True):
            assert [*map(one.name, range(len(one)))] == [*map(other.name, range(len(other)))] and len(one) >= 2
        assert found[1].held_out == expected[1].held_out == "-held_out0.2"  # in the protocol id
