"""Classes that a split lacks are named in every kind of data, and sound sets raise no alarm."""

import numpy as np
import pytest

from tests.data.audit import layouts
from tests.helpers.face_sets import write_set
from zoo.data.audit import report
from zoo.data.audit.classes import MAX_LISTED, nearest
from zoo.data.errors import UserError


def problems(kind, root, deep=False, **keys):
    return report.examine(*layouts.load(kind, root, **keys), deep).problems


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
    layouts.folders(tmp_path / "clips", "clip", bikes=(3, 2), cars=(0, 2), none=(0, 0))
    assert problems("clip", tmp_path / "clips") == [
        "val/cars: train has no sample of it (label 1: 2 samples)",
        "none: no sample in train or val (label 2)",
    ]
    layouts.folders(tmp_path / "images", "image", bikes=(3, 2), cars=(0, 2))
    with pytest.raises(UserError, match="train/cars: there is no image in this class folder"):
        layouts.load("image", tmp_path / "images")
    assert problems("image", tmp_path / "images", allow_missing_classes=True) == [
        "val/cars: train has no sample of it (label 1: 2 samples)"
    ]
    (tmp_path / "faces/train/p9").mkdir(parents=True)
    passed = {"verification": ("lfw.bin",), "allow_missing_classes": True}
    assert problems("face", write_set(tmp_path / "faces", "folder"), **passed) == ["p9: no training sample (label 6)"]


@pytest.mark.parametrize("kind", ["image", "clip"])
def test_a_stray_label_of_a_list(kind, tmp_path):
    layouts.lists(tmp_path, kind, [0, 1, 2, 0, 1, 2, 12], [0, 1, 2])
    found = problems(kind, tmp_path)
    alone = f"train/class 12: val has no sample of it (label 12: train/6.{layouts.EXTENSIONS[kind]} alone)"
    assert found == [alone, *(f"class {label}: no sample in train or val (label {label})" for label in range(3, 12))]


def test_a_class_of_the_names_without_samples(tmp_path):
    layouts.folders(tmp_path, "image", bikes=(3, 2), cars=(3, 2))
    (tmp_path / "classes.txt").write_text("bikes\ncars\ntrucks\n")
    assert problems("image", tmp_path) == ["trucks: no sample in train or val (label 2)"]


@pytest.mark.parametrize("kind", ["image", "clip"])
def test_sound_folders_and_lists(kind, tmp_path):
    layouts.folders(tmp_path / "folders", kind, bikes=(3, 1), cars=(2, 2))
    layouts.lists(tmp_path / "lists", kind, [0, 1, 1, 0], [1, 0])
    assert problems(kind, tmp_path / "folders") == problems(kind, tmp_path / "lists") == []


def test_a_class_that_no_mask_shows(tmp_path):
    layouts.scenes(tmp_path, names="road\nsky\ncar\ntruck\n")
    assert problems("scene", tmp_path) == ["truck: no pixel in a training mask (label 3)"]
    assert problems("scene", tmp_path, checked_masks=1) == []  # the other mask may show it
    assert problems("scene", tmp_path, deep=True, checked_masks=1) == ["truck: no pixel in a training mask (label 3)"]


def test_all_masks_are_counted_with_deep(tmp_path):
    layouts.scenes(tmp_path, train=((0, 1, 2), (0, 2), (1, 1)), val=((0, 1, 1), (0, 0)))
    train, val = layouts.load("scene", tmp_path, checked_masks=1)
    assert train.inventory(False).pixels is None
    counts = train.inventory(True).pixels
    assert np.array_equal(counts, train.inventory(True)._replace(labels=None).counts()) and counts.sum() == 3 * 12 * 16
    assert counts.tolist() == [12 * (6 + 8), 12 * (5 + 16), 12 * (5 + 8)]
    found = report.examine(train, val, deep=True)
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
    assert problems("face", tmp_path, verification=("lfw",)) == []
    found = report.examine(*layouts.load("face", tmp_path, verification=("lfw",)))
    assert found.summary.endswith("4 classes; images per class are not counted in packs of more than 3")
    assert problems("face", tmp_path, True, verification=("lfw",)) == ["class 2: no training sample (label 2)"]


@pytest.mark.parametrize("layout", ["rec", "list", "folder"])
def test_sound_faces(layout, tmp_path):
    write_set(tmp_path, layout)
    for keys in ({"verification": ("lfw",)}, {"val_fraction": 0.3, "val_pairs": 10}):
        found = report.examine(*layouts.load("face", tmp_path, **keys))
        assert found.problems == found.warnings == []


def test_identities_with_one_image_are_normal(tmp_path, monkeypatch):
    layouts.faces_list(tmp_path, [0, 0, 1, 1, 2])
    found = report.examine(*layouts.load("face", tmp_path, verification=("lfw",)))
    assert found.problems == found.warnings == []
    assert found.summary.endswith("3 classes, 1 of them with one sample")
    monkeypatch.setattr(layouts.MODULES["face"], "COUNTED_LABELS", 3)  # which concerns packs
    assert report.examine(*layouts.load("face", tmp_path, verification=("lfw",))) == found


def test_a_class_with_one_image_is_a_warning(tmp_path):
    layouts.folders(tmp_path, "image", bikes=(1, 1), cars=(3, 2))
    found = report.examine(*layouts.load("image", tmp_path))
    assert found.problems == [] and found.warnings == ["classes with a single training sample: 1 (bikes)"]


def test_many_problems_are_cut_short(tmp_path):
    layouts.folders(tmp_path, "image", **{f"{n}{n}{n}": (1, None) for n in range(MAX_LISTED + 2)}, same=(1, 1))
    found = report.examine(*layouts.load("image", tmp_path))
    with pytest.raises(UserError, match=rf"\(differences: {MAX_LISTED + 2}\)") as caught:
        report.lines(found)
    lines = str(caught.value).splitlines()
    assert lines[-2] == "  and 2 more" and len(lines) == MAX_LISTED + 3
    assert lines[-1].endswith("let them pass with -o data.allow_missing_classes=true")
    allowed = report.lines(found, "data.allow_missing_classes")
    assert allowed[1].startswith("data: passed by data.allow_missing_classes: train/000: val has no sample of it")


def test_the_nearest_name_ignores_case():
    assert nearest("Bike", {"bikes": 0, "boats": 1}) == "bikes"
    assert nearest("bike", {"zebra": 0}) is None
