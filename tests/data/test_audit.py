"""Faults of data sets before a run, in every kind of data; sound sets raise no alarm."""

import os

import numpy as np
import pytest
from PIL import Image

from tests.data.datasets.test_cityscapes import STEMS, write_city, write_png
from tests.helpers import layouts
from tests.helpers.face_sets import PACK, write_set
from tests.helpers.files import touch
from tests.helpers.prepared import image_folders, serial_prepare
from zoo.data import audit
from zoo.data.audit import MAX_LISTED
from zoo.data.datasets import segmentation, synthetic
from zoo.data.errors import UserError, nearest
from zoo.data.formats import masks


def examine(kind, root, deep=False, **keys):
    return audit.examine(*layouts.load(kind, root, **keys), deep)


def problems(*arguments, **keys):
    return examine(*arguments, **keys).problems


@pytest.mark.parametrize("kind", ["image", "clip"])
def test_a_misspelt_class_folder(kind, tmp_path):
    layouts.folders(tmp_path, kind, bikes=(3, None), bike=(None, 2), cars=(3, 2))
    assert problems(kind, tmp_path) == ["val/bike: train has bikes"]


@pytest.mark.parametrize("kind", ["image", "clip"])
def test_a_class_of_one_split(kind, tmp_path):
    layouts.folders(tmp_path, kind, bikes=(3, 2), cars=(3, None), trees=(None, 1))
    assert problems(kind, tmp_path) == [
        f"val/trees: train has no sample of it (label 2: val/trees/val0.{layouts.EXTENSIONS[kind]} alone)",
        "train/cars: val has no sample of it (label 1: 3 samples)",
    ]


def test_an_empty_class_folder(tmp_path):
    for kind in ("clip", "image"):
        layouts.folders(tmp_path / kind, kind, bikes=(3, 2), cars=(0, 2), none=(0, 0))
        assert problems(kind, tmp_path / kind) == [
            "val/cars: train has no sample of it (label 1: 2 samples)",
            "none: no sample in train or val (label 2)",
        ]
    passed = {"allow_missing_classes": True}
    (tmp_path / "faces/train/p9").mkdir(parents=True)
    root = write_set(tmp_path / "faces", "folder")
    assert problems("face", root, verification=("lfw.bin",), **passed) == ["p9: no training sample (label 6)"]


@pytest.mark.parametrize("kind", ["image", "clip"])
def test_a_stray_label_of_a_list(kind, tmp_path):
    layouts.lists(tmp_path, kind, [0, 1, 2, 0, 1, 2, 12], [0, 1, 2])
    alone = f"train/class 12: val has no sample of it (label 12: train/6.{layouts.EXTENSIONS[kind]} alone)"
    others = [f"class {label}: no sample in train or val (label {label})" for label in range(3, 12)]
    assert problems(kind, tmp_path) == [alone, *others]


def test_sound_folders_and_lists(tmp_path):
    for kind in ("image", "clip"):
        layouts.folders(tmp_path / kind / "folders", kind, bikes=(3, 1), cars=(2, 2))
        layouts.lists(tmp_path / kind / "lists", kind, [0, 1, 1, 0], [1, 0])
        assert problems(kind, tmp_path / kind / "folders") == problems(kind, tmp_path / kind / "lists") == []


def test_names_beyond_the_last_value_of_the_masks(tmp_path):
    layouts.scenes(tmp_path, names="road\nsky\ncar\ntruck\n")
    expected = (
        "1 (truck) of 4 classes: no pixel in 2 training masks, which hold 0 road (43.8%), 2 car (40.6%) and 1 sky "
        "(15.6%); by the names, 0 is road and 3 is truck"
    )
    assert problems("scene", tmp_path) == problems("scene", tmp_path, checked_masks=1) == [expected]
    assert problems("scene", tmp_path, deep=True, checked_masks=1) == [expected]
    with pytest.raises(UserError, match="allow_missing_classes=true"):
        audit.lines(examine("scene", tmp_path))


def test_a_name_that_training_masks_do_not_show_is_a_warning(tmp_path):
    layouts.scenes(tmp_path, train=((0, 2), (0, 2)), names="road\nsky\ncar\n")
    found = examine("scene", tmp_path)
    assert (found.problems, found.warnings) == ([], ["classes that none of 2 training masks shows: 1 (sky)"])
    layouts.scenes(tmp_path / "val", train=((0, 1), (0, 1)), names="road\nsky\ncar\n")  # whose masks show the last one
    assert examine("scene", tmp_path / "val").warnings == ["classes that none of 2 training masks shows: 1 (car)"]


@pytest.mark.parametrize(
    "values, classes, held",
    [
        ((0, 128, 255), 129, "0 (37.5%), 128 (31.2%) and 255 for ignored (31.2%)"),  # levels for the eye
        ((1, 2, 3), 4, "1 (37.5%), 2 (31.2%) and 3 (31.2%)"),
        ((0, 2), 3, "0 (50.0%) and 2 (50.0%)"),
    ],
)
def test_values_with_gaps_are_no_classes(values, classes, held, tmp_path):
    layouts.scenes(tmp_path, train=[values] * 3, val=[values], names="")
    (tmp_path / "classes.txt").unlink()
    (line,) = problems("scene", tmp_path, num_classes=classes, checked_masks=1)
    assert f"of {classes} classes: no pixel in 3 training masks, which hold {held}; number the classes from 0" in line
    assert problems("scene", tmp_path, num_classes=classes, allow_missing_classes=True, deep=True) == [line]


def test_masks_are_read_until_all_classes_were_seen(tmp_path, monkeypatch):
    layouts.scenes(tmp_path, train=[(0, 1)] * 30 + [(2, 2)] + [(0, 1)] * 30)
    read, looked = [], masks.look
    monkeypatch.setattr(masks, "look", lambda file, path: read.append(path) or looked(file, path))
    train, val = layouts.load("scene", tmp_path, checked_masks=2)
    assert audit.examine(train, val).problems == [] and train.inventory(False).counts() is None
    first = len(read)
    train.inventory(False)
    assert 3 < first == len(read) and val.looked_at == 1
    monkeypatch.setattr(segmentation, "MORE_MASKS", 20)
    (tmp_path / "masks/train/30.png").unlink()
    (tmp_path / "images/train/30.jpg").unlink()
    found = examine("scene", tmp_path, checked_masks=2)
    assert (found.problems, found.warnings) == ([], ["classes that none of 20 training masks shows: 1 (car)"])
    assert len(problems("scene", tmp_path, checked_masks=2, deep=True)) == 0  # a validation mask has the last value
    (tmp_path / "classes.txt").write_text("".join(f"{name}\n" for name in "abcdef"))
    assert (
        "4 (c, d, e ...) of 6 classes: no pixel in 20 training masks" in problems("scene", tmp_path, checked_masks=2)[0]
    )


def test_masks_that_do_not_agree_are_found_with_deep(tmp_path):
    layouts.scenes(tmp_path, train=[(0, 1, 2)] * 5)
    write_png(tmp_path, "masks/train/3.png", (0, 255))
    assert problems("scene", tmp_path, checked_masks=2) == []
    with pytest.raises(UserError, match="masks/train/3.png: holds nothing but 0 and 255"):
        examine("scene", tmp_path, checked_masks=2, deep=True)


def test_all_masks_are_counted_with_deep(tmp_path):
    layouts.scenes(tmp_path, train=((0, 1, 2), (0, 2), (1, 1)), val=((0, 1, 1), (0, 0)))
    train, val = layouts.load("scene", tmp_path, checked_masks=1)
    assert train.inventory(False).counts() is None
    counts = train.inventory(True).counts()
    assert counts.tolist() == [12 * (6 + 8), 12 * (5 + 16), 12 * (5 + 8)] and counts.sum() == 3 * 12 * 16
    found = audit.examine(train, val, deep=True)
    assert found.problems == [] and "classes that no validation mask shows: 1 (car)" in found.warnings


def test_a_stray_label_of_a_list_of_faces(tmp_path):
    layouts.faces_list(tmp_path, [0, 0, 1, 1, 7])
    with pytest.raises(UserError, match=r"no image has the label 2 to 6, but images/4.png alone has 7; correct it"):
        layouts.load("face", tmp_path)
    keys = {"verification": ("lfw",), "allow_missing_classes": True}
    assert problems("face", tmp_path, **keys) == [f"class {n}: no training sample (label {n})" for n in range(2, 7)]
    assert problems("face", tmp_path, verification=("lfw",), num_classes=9) == []  # the recipe says so


def test_labels_of_a_small_pack_of_faces(tmp_path, monkeypatch):
    layouts.faces_pack(tmp_path, [0, 0, 1, 3])
    (tmp_path / "property").write_text("4,12,12\n")
    assert problems("face", tmp_path, verification=("lfw",)) == ["class 2: no training sample (label 2)"]
    stray = "train.rec key 3: label 3, but there are 3 classes; labels count from 0"
    assert problems("face", tmp_path, verification=("lfw",), num_classes=3) == [stray]
    monkeypatch.setattr(layouts.MODULES["face"], "COUNTED_LABELS", 3)
    found = examine("face", tmp_path, verification=("lfw",))
    assert found.problems == [] and found.summary.endswith("are not counted in packs of more than 3")
    assert problems("face", tmp_path, True, verification=("lfw",)) == ["class 2: no training sample (label 2)"]


def test_sound_faces_and_identities_with_one_image(tmp_path):
    for layout in ("rec", "list", "folder"):
        (tmp_path / layout).mkdir()
        write_set(tmp_path / layout, layout)
        for keys in ({"verification": ("lfw",)}, {"val_fraction": 0.3, "val_pairs": 10}):
            found = examine("face", tmp_path / layout, **keys)
            assert found.problems == found.warnings == []
    (tmp_path / "single").mkdir()
    layouts.faces_list(tmp_path / "single", [0, 0, 1, 1, 2])
    found = examine("face", tmp_path / "single", verification=("lfw",))
    assert found.problems == found.warnings == [] and found.summary.endswith("3 classes, 1 of them with one sample")


def test_many_problems_are_cut_short(tmp_path):
    layouts.folders(tmp_path, "image", **{f"{n}{n}{n}": (1, None) for n in range(MAX_LISTED + 2)}, same=(1, 1))
    found = examine("image", tmp_path)
    assert found.warnings[0].startswith("classes with a single training sample: 13 (000, ")
    with pytest.raises(UserError, match=rf"\(differences: {MAX_LISTED + 2}\)") as caught:
        audit.lines(found)
    lines = str(caught.value).splitlines()
    assert lines[-2] == "  and 2 more" and len(lines) == MAX_LISTED + 3
    assert "data.allow_missing_classes=true" in lines[-1]
    allowed = audit.lines(found, "data.allow_missing_classes")
    assert allowed[1].startswith("data: passed by data.allow_missing_classes: train/000: val has no sample of it")


def test_the_nearest_name_ignores_case():
    assert nearest("Bike", ["bikes", "boats"]) == "bikes"
    assert nearest("bike", ["zebra"]) is None


def test_missing_and_tiny_files(tmp_path, monkeypatch):
    layouts.lists(tmp_path, "image", [0, 1, 0, 1], [0, 1])
    touch(tmp_path, "train/1.jpg", content=b"")
    touch(tmp_path, "train/3.jpg", content=b"x" * (audit.TINY - 1))
    os.remove(tmp_path / "train/2.jpg")
    assert examine("image", tmp_path).warnings == [
        "training files that are missing: 1 (train/2.jpg)",
        "training files that are tiny: 2 (train/1.jpg (0 bytes), train/3.jpg (63 bytes))",
    ]
    monkeypatch.setattr(audit, "FILES", 3)
    tiny = "training files that are tiny, of 3 that were looked at: 1 (train/3.jpg (63 bytes))"
    assert tiny in examine("image", tmp_path).warnings
    assert "training files that are missing: 1 (train/2.jpg)" in examine("image", tmp_path, deep=True).warnings


def test_a_file_is_tiny_next_to_large_ones(tmp_path):
    layouts.lists(tmp_path, "image", [0, 1, 0], [0, 1])
    for number, size in ((0, audit.LARGE), (1, audit.LARGE), (2, audit.SMALL - 1)):
        touch(tmp_path, f"train/{number}.jpg", content=b"x" * size)
    assert "training files that are tiny: 1 (train/2.jpg (1023 bytes))" in examine("image", tmp_path).warnings
    touch(tmp_path, "train/1.jpg", content=b"x" * 2000)
    assert not any("tiny" in warning for warning in examine("image", tmp_path).warnings)


@pytest.fixture
def images(tmp_path):
    """Two classes, with a file of the same name and size, but other content, in both splits."""
    layouts.folders(tmp_path, "image", a=(3, 2), b=(3, 2))
    touch(tmp_path, "train/a/x.jpg", content=b"1" * 100)
    touch(tmp_path, "val/b/x.jpg", content=b"2" * 100)
    return tmp_path


def copies(root, deep=False, kind="image", **keys):
    train, val = layouts.load(kind, root, **keys)
    return audit.find_copies(train.inventory(deep), val.inventory(deep), deep)[0]


def test_equal_names_and_sizes_are_no_copies(images):
    assert copies(images) == copies(images, deep=True) == []


def test_a_copy_with_its_name(images, monkeypatch):
    touch(images, "val/b/x.jpg", content=b"1" * 100)
    assert copies(images) == copies(images, deep=True) == [("train/a/x.jpg", "val/b/x.jpg")]
    warning = "validation files that are training files too: 1 (val/b/x.jpg is train/a/x.jpg)"
    assert examine("image", images).warnings == [warning]
    touch(images, "train/b/x.jpg", content=b"1" * 100)
    assert len(copies(images)) == 2 and examine("image", images).warnings == [warning]
    monkeypatch.setattr(audit, "CONTENTS", 1)
    assert examine("image", images).summary.endswith("copies were looked for among some files only")
    assert len(copies(images)) == 1 and len(copies(images, deep=True)) == 2


def test_a_validation_list_that_is_the_training_list(tmp_path):
    layouts.folders(tmp_path, "image", a=(3, 0), b=(3, 0))
    lines = "".join(f"train/{name}/{path.name} {label}\n" for label, name in enumerate("ab")
                    for path in sorted((tmp_path / "train" / name).iterdir()))  # fmt: skip
    for split in ("train", "val"):
        touch(tmp_path, f"{split}_list.txt", content=lines.encode())
    assert any(
        "validation files that are training files too: 6" in line for line in examine("image", tmp_path).warnings
    )


def test_a_copy_with_another_name_needs_deep(images):
    touch(images, "val/b/y.jpg", content=b"1" * 100)
    assert copies(images) == [] and copies(images, deep=True) == [("train/a/x.jpg", "val/b/y.jpg")]


def test_copies_of_clips_and_scenes(tmp_path):
    layouts.folders(tmp_path / "clips", "clip", a=(2, 2))
    touch(tmp_path / "clips", "train/a/same.mp4", "val/a/same.mp4", content=b"video" * 20)
    assert copies(tmp_path / "clips", kind="clip") == [("train/a/same.mp4", "val/a/same.mp4")]
    layouts.scenes(tmp_path / "scenes")
    touch(tmp_path / "scenes", "images/val/0.jpg", content=(tmp_path / "scenes/images/train/0.jpg").read_bytes())
    pairs = [(f"images/train/{number}.jpg", "images/val/0.jpg") for number in range(2)]  # both have the same pixels
    assert copies(tmp_path / "scenes", kind="scene") == pairs[:1]
    assert copies(tmp_path / "scenes", True, "scene") == pairs


@pytest.mark.parametrize("layout", ["rec", "list", "folder"])
def test_an_image_of_a_verification_set_that_is_trained_on(layout, tmp_path):
    write_set(tmp_path, layout)
    keys = {"kind": "face", "verification": ("own.txt",), "eval_bad": "wrong"}
    for name in ("p.png", "q.png"):
        touch(tmp_path, name, content=b"other")
    touch(tmp_path, "seen.png", content=PACK[1][2])
    (tmp_path / "own.txt").write_text("seen.png p.png 0\n" * 9 + "p.png q.png 1\n")
    assert copies(tmp_path, **keys) == []
    name = {"rec": "train.rec key 8", "list": "images/p1/2.png", "folder": "train/p1/2.png"}[layout]
    assert (name, "seen.png") in copies(tmp_path, True, **keys)


def test_lines_and_tables(tmp_path):
    layouts.folders(tmp_path / "clips", "clip", a=(2, 3), b=(4, 2), c=(7, 2))
    found = examine("clip", tmp_path / "clips")
    line = "data: train 13 (2/4/7 per class: min/median/max), val 7 (2/2/3), 3 classes"
    assert audit.lines(found) == (line,) and found.table == "label,class,train,val\n0,a,2,3\n1,b,4,2\n2,c,7,2\n"
    layouts.scenes(tmp_path / "scenes", train=((0, 0, 1, 255), (2, 2, 2, 2)), val=((0, 1, 1, 2),))
    found = examine("scene", tmp_path / "scenes")
    assert audit.lines(found) == ("data: train 2, val 1, 3 classes",)
    assert found.table == "label,class,train,val\n0,road,96,48\n1,sky,48,96\n2,car,192,48\n"
    write_city(tmp_path / "city", *STEMS)  # which may lack classes
    assert audit.lines(examine("scene", tmp_path / "city")) == ("data: train 3, val 1, 19 classes",)


def test_frame_folders_have_no_sizes(tmp_path):
    for name in "fg":
        (tmp_path / name).mkdir()
    for split in ("train", "val"):
        (tmp_path / f"{split}.list").write_text("f 10 0\ng 10 1\n")
    found = examine("clip", tmp_path)
    assert found.problems == [] and found.warnings == ["classes with a single training sample: 2 (class 0, class 1)"]


def test_a_prepared_set(tmp_path, monkeypatch):
    prepare, root = serial_prepare(monkeypatch), image_folders(tmp_path / "set")
    (root / "val/cat/0.png").write_bytes((root / "train/cat/0.png").read_bytes())
    for words in ([], ["--pack"]):
        out = tmp_path / f"out{len(words)}"
        assert prepare("imagenet", root, "--out", out, *words) == 0
        found = examine("image", out)
        assert found.problems == []
        assert found.warnings == ["validation files that are training files too: 1 (val/cat/0.png is train/cat/0.png)"]


def test_synthetic_data_are_not_checked():
    assert audit.examine(*synthetic.load(synthetic.Settings(kind="image"))) is None


def test_a_single_class_is_a_warning(tmp_path):
    touch(tmp_path, *(f"{split}/images/{name}.jpg" for split in ("train", "val") for name in "ab"))
    found = examine("image", tmp_path)
    assert any("there is one class alone, images" in warning for warning in found.warnings)


def test_names_that_look_alike_are_told_apart(tmp_path):
    for split, name in (("train", "caf\u00e9"), ("val", "cafe\u0301")):
        touch(tmp_path, *(f"{split}/{folder}/{number}.jpg" for folder in (name, "tea") for number in range(2)))
    (problem,) = examine("image", tmp_path).problems
    assert problem.endswith("the same letters in other bytes (Unicode NFC and NFD)")


def test_one_image_in_two_classes_needs_deep(images):
    """As a file that a list gives two labels."""
    touch(images, "train/a/y.jpg", "train/b/y.jpg", content=b"1" * 100)
    assert not examine("image", images).warnings
    warning = "training files of two classes: 1 (train/b/y.jpg is train/a/x.jpg)"
    assert examine("image", images, deep=True).warnings == [warning]


def test_classes_of_one_split_that_look_alike(tmp_path):
    touch(
        tmp_path,
        *(f"{split}/{name}/{split}.jpg" for split in ("train", "val") for name in ("Cat", "a_b", "a b", "cat")),
    )
    assert "classes whose names look alike: 2 (Cat and cat, a b and a_b)" in examine("image", tmp_path).warnings


def test_images_of_which_a_part_is_lost_are_warned_of(tmp_path):
    layouts.folders(tmp_path, "image", bikes=(3, 1), cars=(2, 2))
    levels = np.random.default_rng(0).integers(0, 4096, (16, 16)).astype(np.uint16)
    for name in ("train/cars/train0.jpg", "train/cars/train1.jpg"):
        Image.fromarray(levels).save(tmp_path / name, "PNG")
    found = examine("image", tmp_path).warnings
    assert found == [
        "training images, 2 of 5 that were looked at: train/cars/train0.jpg: its 16-bit levels become 0 to 15 of 255: "
        "set data.levels, or scale them over 8 bits"
    ]
    assert not examine("image", tmp_path, deep=True).warnings  # zoo data check names each
    layouts.scenes(tmp_path / "scenes")
    Image.fromarray(levels[:12]).save(tmp_path / "scenes/images/val/0.jpg", "PNG")
    assert (
        "validation images, 1 of 1 that were looked at: images/val/0.jpg"
        in examine("scene", tmp_path / "scenes").warnings[0]
    )
