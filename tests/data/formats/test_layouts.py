"""Folders of any names, read as the splits, scenes and clips that they hold, and what the data sets say of others."""

import os

import pytest

from tests.helpers.drawn import animation, mask, paths, photo, scenes
from tests.helpers.files import touch
from zoo.data.datasets import cityscapes, imagenet, kinetics
from zoo.data.errors import UserError
from zoo.data.formats.file_names import split_of
from zoo.data.formats.layouts import bare, count_animations
from zoo.data.formats.splits import class_split


def load(dataset, root, **keys):
    return dataset.load(dataset.Settings(root=str(root), **{"workers": 0, "val_fraction": 0.3, **keys}))


@pytest.mark.parametrize(
    "split, names",
    {
        "train": ("train", "Train", "training_set", "seg_train", "TrainSet", "train2017", "my-training-data"),
        "val": ("val", "valid", "Validation", "dev", "eval_set", "val2017"),
        "test": ("test", "testing", "test_set", "TestData"),
        None: ("trains", "evaluate", "contest", "values", "trainval", "train_test", "cats"),
    }.items(),
)
def test_words_of_splits(split, names):
    assert {name: split_of(name) for name in names} == dict.fromkeys(names, split)


SPLITS = {
    ("training_set", "test_set"): ("training_set", "test_set"),
    ("train", "test"): ("train", "test"),
    ("train", "valid", "test"): ("train", "valid"),
    ("train", "train_small", "val"): ("train", "val"),
    ("a_train", "b_train", "a_test"): (None, None),
    ("seg_train/seg_train", "seg_test/seg_test"): ("seg_train/seg_train", "seg_test/seg_test"),
}


@pytest.mark.parametrize("folders, found", SPLITS.items(), ids=map(" ".join, SPLITS))
def test_splits_hold_the_same_classes(tmp_path, folders, found):
    touch(tmp_path, *paths("{}/{}/1.jpg", folders, "ab"))
    assert tuple(class_split(str(tmp_path), split) for split in ("train", "val")) == found


def test_a_test_split_without_classes_validates_nothing(tmp_path):
    touch(tmp_path, *paths("train/{}/1.jpg", "ab"), "test/1.jpg", "test/other/2.jpg")
    assert class_split(str(tmp_path), "val") is None


def test_a_data_set_reads_splits_of_other_names_and_says_so(tmp_path):
    photo(tmp_path, *paths("training/{}/t{}.jpg", "ab", "12"), *paths("testing/{}/v.jpg", "ab"))
    train, val = load(imagenet, tmp_path, val_fraction=None)
    assert [train.name(0), val.name(0)] == ["training/a/t1.jpg", "testing/a/v.jpg"] and len(val) == 2
    assert train.notes == ("splits by the names of their folders: train is training/, val is testing/",)


SCENES = {
    "of mmsegmentation": ("img_dir/{}", "ann_dir/{}", ("train", "val")),
    "of ADE20K": ("images/{}", "annotations/{}", ("training", "validation")),
    "in folders of splits": ("{}/img", "{}/gt", ("train", "valid")),
    "with a split for tests": ("images/{}", "masks/{}", ("train", "test")),
    "of Kaggle's names": ("{}_images", "{}_masks", ("train", "val")),
    "of no split": ("image", "mask", ("",)),
    "of names that say nothing": ("x", "y", ("",)),
    "of a prefix each": ("image", "label", ("",), "img_{}.jpg", "mask_{}.png"),
    "of a suffix each": ("sat", "road", ("",), "{}_sat.jpg", "{}_road.png"),
    "of Roboflow": ("{}", "{}", ("train", "valid"), "{}.jpg", "{}_mask.png"),
    "in one folder": (".", ".", ("",), "{}_sat.jpg", "{}_mask.png"),
}


@pytest.mark.parametrize("layout", SCENES.values(), ids=SCENES)
def test_images_are_paired_with_their_masks(tmp_path, layout):
    images, masks, splits, *names = layout
    for split in splits:
        scenes(tmp_path, images.format(split), masks.format(split), 4, *names)
    found = load(cityscapes, tmp_path, num_classes=3)
    pairs = [(split.name(index), split.item_label(index)) for split in found for index in range(len(split))]
    image_name, mask_name = names or ("{}.jpg", "{}.png")
    assert sorted(pairs) == sorted(
        tuple(
            os.path.normpath(os.path.join(*each))
            for each in (
                (images.format(split), image_name.format(number)),
                (masks.format(split), mask_name.format(number)),
            )
        )
        for split in splits
        for number in range(4)
    )
    assert len(found[1]) == (4 if len(splits) == 2 else 1)
    is_named = any("splits by the names of their folders" in note for note in found[0].notes)
    assert is_named == bool({"training", "test"} & set(splits))


def test_two_folders_of_masks_are_not_chosen_from(tmp_path):
    scenes(tmp_path, "photos", "ids")
    scenes(tmp_path, "photos", "preview")
    with pytest.raises(UserError, match="neither Cityscapes nor custom images"):
        load(cityscapes, tmp_path, num_classes=3)


def test_scenes_without_a_validation_split_in_a_folder_of_another_name(tmp_path):
    scenes(tmp_path, "training_set/images", "training_set/masks", 4)
    train, val = load(cityscapes, tmp_path, num_classes=3)
    assert (len(train), len(val)) == (3, 1) and train.name(0).startswith("training_set/images/")


COCO = b'{"images": [], "annotations": []}'
TOO_HIGH = {
    "images": (imagenet, lambda root: photo(root, *paths("photos/{}/{}/1.jpg", ("train", "val"), "ab")), "{}/photos"),
    "clips": (kinetics, lambda root: touch(root, *paths("clips/{}/{}/1.mp4", ("train", "val"), "ab")), "{}/clips"),
    "scenes": (cityscapes, lambda root: scenes(root, "set/imgs/train", "set/anns/train"), "{}/set"),
}


@pytest.mark.parametrize("dataset, write, meant", TOO_HIGH.values(), ids=TOO_HIGH)
def test_a_root_one_level_too_high(tmp_path, dataset, write, meant):
    write(tmp_path)
    with pytest.raises(UserError, match=f"did you mean -o data.root={meant.format(tmp_path)}?"):
        load(dataset, tmp_path, **({} if dataset is cityscapes else {"val_fraction": None}))


def test_labels_in_place_of_masks(tmp_path):
    touch(tmp_path, "labels.json", content=COCO)
    with pytest.raises(UserError, match="nor custom images, but labels of COCO .*: `zoo data import"):
        load(cityscapes, tmp_path)


DOUBTS = {
    "scenes": (lambda root: scenes(root, "pictures", "ids"), "pictures and ids in .* look like images and their masks"),
    "splits": (lambda root: photo(root, *paths("{}/{}/{}.jpg", "xy", "ab", "123")), "folders of the same names .a, b."),
    "frames": (lambda root: photo(root, *paths("{}/c{}/{}.jpg", "ab", "12", "3456")), "`a/c1 4 0` for each"),
    "a root too high": (lambda root: photo(root, *paths("{}/{}.jpg", ("images", "other"), "123")), "images would be"),
    "animations": (lambda root: animation(root, paths("{}/{}.gif", "ab", "12"), 3), "4 of 4 GIF files are animations"),
}  # fmt: skip


@pytest.mark.parametrize("write, message", DOUBTS.values(), ids=DOUBTS)
def test_a_run_is_warned_of_what_only_looks_like_classes(tmp_path, write, message):
    write(tmp_path)
    notes = load(imagenet, tmp_path)[0].notes
    with pytest.raises(UserError, match=message):
        raise UserError("\n".join(note for note in notes if note.startswith("warning: ")))


CLASSES = {
    "numbered alike": paths("{}/{}.jpg", "ab", "12345"),
    "numbered with a prefix": paths("{}/IMG_{}.jpg", "ab", "12345"),
    "some names alike": [*paths("{}/{}.jpg", "ab", ("sea", "sun", "sky")), *paths("a/{}.jpg", ("land", "city"))],
    "folders of one name": paths("{}/images/{}.jpg", "ab", "123"),  # Tiny ImageNet
    "photos of two cameras": paths("{}/{}_{}.jpg", "ab", ("IMG", "DSC"), range(9)),
    "frames of a few faces": paths("{}/S{}_{}.jpg", "ab", "1234", "567"),
    "mask and no mask": paths("{}/{}.jpg", ("mask", "no_mask"), "123"),
}


@pytest.mark.parametrize("files", CLASSES.values(), ids=CLASSES)
def test_classes_raise_no_doubt(tmp_path, files):
    photo(tmp_path, *files)
    assert not any(note.startswith("warning") for note in load(imagenet, tmp_path)[0].notes)


def test_drawings_of_equal_names_are_classes(tmp_path):
    for name in paths("{}/{}.png", ("circle", "square"), "123"):
        mask(tmp_path, name)
    assert not any(note.startswith("warning") for note in load(imagenet, tmp_path)[0].notes)


def test_animations_are_clips_where_there_is_no_video(tmp_path):
    animation(tmp_path, paths("{}/{}.gif", "ab", "12"), 4)
    train, val = load(kinetics, tmp_path)
    assert (len(train), len(val)) == (2, 2) and val.sample(0, None)["video"].shape == (8, 224, 224, 3)
    for name in paths("{}/{}.mp4", "ab", "12"):
        touch(tmp_path, name, content=name.encode())
    train, _ = load(kinetics, tmp_path)
    assert train.name(0).endswith(".mp4") and any("4 .gif" in note for note in train.notes)


def test_frames_of_gif_files_are_counted(tmp_path):
    animation(tmp_path, ["1.gif"], 3)
    animation(tmp_path, ["2.gif"], 1)
    touch(tmp_path, "3.gif")
    assert count_animations([str(tmp_path / f"{number}.gif") for number in "1234"]) == (1, 4)


def test_what_all_names_have_is_left_aside():
    assert bare(["a/img_08.x", "a/img_09.x"]) == ["a/08", "a/09"] and bare(["img_1"]) == ["img_1"]
    assert bare(["a", "aa"]) == bare(["a_mask", "aa_mask"]) == bare(["m_a", "m_aa"]) == ["", "a"]
    assert bare(["1_m", "10_m"]) == bare(["1", "10"]) and bare(["same", "same"]) == ["same", "same"]
