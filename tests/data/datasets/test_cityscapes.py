"""Cityscapes and custom data in every layout, and the messages for every mistake in one."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from zoo.data.datasets import cityscapes
from zoo.data.errors import UserError
from zoo.data.formats import masks

SIZE = (12, 16)
ROAD, SKY, EGO = 7, 23, 1  # ids


def write_png(root, path, values=None, size=SIZE, mode=None):
    """Write a random image or, with values, a mask whose columns repeat them."""
    file = Path(root) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    if values is None:
        pixels = np.random.default_rng(len(str(path))).integers(0, 256, size + (3,), dtype=np.uint8)
    else:
        pixels = np.tile(np.resize(np.array(values, np.uint8), size[1]), (size[0], 1))
    Image.fromarray(pixels).convert(mode).save(file) if mode else Image.fromarray(pixels).save(file)


def write_city(root, *stems, values=(ROAD, SKY, EGO, ROAD), labels="labelIds"):
    """Write pairs in Cityscapes' layout for stems `split/city/city_000000_000019`."""
    for stem in stems:
        write_png(root, f"leftImg8bit/{stem}_leftImg8bit.png")
        write_png(root, f"gtFine/{stem}_gtFine_{labels}.png", values)


STEMS = (
    "train/bonn/bonn_000001_000019",
    "train/aachen/aachen_000002_000019",
    "train/aachen/aachen_000001_000019",
    "val/lindau/lindau_000000_000019",
)


def write_custom(root, *stems, images="images", masks="masks", extension=".jpg", values=(0, 1, 2, 255)):
    for stem in stems:
        write_png(root, f"{images}/{stem}{extension}")
        write_png(root, f"{masks}/{stem}.png", values)


def settings(root, **keys):
    return cityscapes.Settings(**{"root": str(root), "crop": (8, 8), "workers": 0, **keys})


def load(root, **keys):
    return cityscapes.load(settings(root, **keys))


def error_message(root, **keys):
    with pytest.raises(UserError) as caught:
        load(root, **keys)
    return str(caught.value)


def names(split):
    return [split.name(index) for index in range(len(split))]


def path_pairs(split):
    return [[split.name(index), split.item_label(index)] for index in range(len(split))]


def test_cityscapes_in_its_official_layout(tmp_path):
    write_city(tmp_path, *STEMS)
    for unused in ("gtFine_color", "gtFine_instanceIds", "gtFine_labelTrainIds"):
        write_png(tmp_path, f"gtFine/{STEMS[0]}_{unused}.png", (3,))
    (tmp_path / "gtFine" / f"{STEMS[0]}_gtFine_polygons.json").write_text("{}")
    write_png(tmp_path, "leftImg8bit/test/berlin/berlin_000000_000019_leftImg8bit.png")
    write_png(tmp_path, "leftImg8bit/train/bonn/._bonn_000009_000019_leftImg8bit.png")
    train, val = load(tmp_path)
    assert names(train) == [f"leftImg8bit/{stem}_leftImg8bit.png" for stem in (STEMS[2], STEMS[1], STEMS[0])]
    assert path_pairs(val) == [[f"leftImg8bit/{STEMS[3]}_leftImg8bit.png", f"gtFine/{STEMS[3]}_gtFine_labelIds.png"]]
    assert train.classes == val.classes == masks.TRAIN_CLASSES and train.training and not val.training
    label = val.sample(0, None)["label"]
    assert label[0, :5].tolist() == [0, 10, 255, 0, 0] and label.shape == SIZE


def test_masks_of_train_ids(tmp_path):
    write_city(tmp_path, *STEMS, values=(0, 18, 255), labels="labelTrainIds")
    _, val = load(tmp_path, labels="labelTrainIds")
    assert val.sample(0, None)["label"][0, :3].tolist() == [0, 18, 255]
    write_city(tmp_path, *STEMS, values=(0, 19, 255), labels="labelTrainIds")
    message = error_message(tmp_path, labels="labelTrainIds")
    assert "aachen_000001_000019_gtFine_labelTrainIds.png: holds the value 19; legal values are 0 to 18" in message


def test_images_without_masks_are_named(tmp_path):
    write_city(tmp_path, *STEMS, *(f"train/ulm/ulm_{number:06d}_000019" for number in range(9)))
    for path in (tmp_path / "gtFine/train/ulm").iterdir():
        path.unlink()
    message = error_message(tmp_path)
    assert "9 of 12 images have no mask *_gtFine_labelIds.png in gtFine/train" in message
    assert "leftImg8bit/train/ulm/ulm_000000_000019_leftImg8bit.png" in message and message.count("ulm_") == 5
    assert " ...; unpack gtFine_trainvaltest.zip" in message


def test_incomplete_cityscapes(tmp_path):
    write_city(tmp_path / "a", *STEMS)
    os.rename(tmp_path / "a/gtFine", tmp_path / "gtFine")
    message = error_message(tmp_path / "a")
    assert "3 of 3 images have no mask" in message and "gtFine_trainvaltest.zip" in message
    message = error_message(tmp_path)
    assert "leftImg8bit/train: no such folder; unpack leftImg8bit_trainvaltest.zip" in message
    write_city(tmp_path / "b", *STEMS[:3])
    (tmp_path / "b/leftImg8bit/val").mkdir()
    assert "leftImg8bit/val: there is no image *_leftImg8bit.png in this folder" in error_message(tmp_path / "b")


@pytest.mark.parametrize(
    "folder, other, end",
    [
        (
            "leftImg8bit/train",
            "leftImg8bit/trian",
            "leftImg8bit/train: no such folder; unpack leftImg8bit_trainvaltest",
        ),
        ("leftImg8bit", "leftimg8bit", "leftImg8bit/train: no such folder; unpack leftImg8bit_trainvaltest.zip"),
        ("gtFine", "gtfine", "unpack gtFine_trainvaltest.zip; there is no folder {root}/gtFine/train/aachen"),
        ("gtFine/train/bonn", "gtFine/train/bonnn", "there is no folder {root}/gtFine/train/bonn"),
    ],
)
def test_a_misspelt_folder_of_cityscapes_is_named(tmp_path, folder, other, end):
    write_city(tmp_path, *STEMS)
    os.rename(tmp_path / folder, tmp_path / other)
    message = error_message(tmp_path)
    assert end.format(root=tmp_path) in message and message.endswith(f"; did you mean {tmp_path / other}?")


@pytest.mark.parametrize(
    "folder, other", [("masks/val", "masks/vla"), ("images/train", "images/trian"), ("images", "imgs")]
)
def test_a_misspelt_folder_of_custom_data_is_named(tmp_path, folder, other):
    write_custom(tmp_path, "train/a", "val/b")
    os.rename(tmp_path / folder, tmp_path / other)
    assert f"; did you mean {tmp_path / other}?" in error_message(tmp_path, num_classes=3)


MISTAKES = {  # what is written, the settings, and a part of the message
    "a single image": (("a",), {}, "none of the 1 samples"),
    "a setting of Cityscapes": (("train/a", "val/b"), {"labels": "labelTrainIds"}, "data.labels: is for Cityscapes"),
    "too few classes": (
        ("train/a", "val/b"),
        {"num_classes": 2},
        "holds the value 2; legal values are 0 to 1",
    ),
    "two names": (("train/a", "val/b", "train/a.PNG"), {}, "images/train/a.jpg have the same name"),
}


@pytest.mark.parametrize("stems, keys, message", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_of_custom_data(tmp_path, stems, keys, message):
    write_custom(tmp_path, *(stem for stem in stems if not stem.endswith("PNG")))
    for stem in stems:
        if stem.endswith("PNG"):
            write_png(tmp_path, f"images/{stem}")
    assert message in error_message(tmp_path, **{"num_classes": 3, **keys})


def test_every_image_has_its_mask_where_one_name_begins_another(tmp_path):
    for stem in ("a", "aa"):
        for split in ("train", "val"):
            write_png(tmp_path, f"images/{split}/{stem}.jpg")
            write_png(tmp_path, f"masks/{split}/{stem}_mask.png", (0, 1, 2))
    train, _ = load(tmp_path, num_classes=3)
    assert [os.path.basename(train.mask_path(index)) for index in range(len(train))] == ["a_mask.png", "aa_mask.png"]


def test_masks_without_images_are_reported_and_not_refused(tmp_path):
    write_city(tmp_path / "city", *STEMS)
    (tmp_path / f"city/leftImg8bit/{STEMS[0]}_leftImg8bit.png").unlink()
    train, _ = load(tmp_path / "city")
    assert len(train) == 2 and train.notes == ("warning: gtFine/train contains 1 masks without an image",)
    write_custom(tmp_path, "train/a", "val/c")
    write_png(tmp_path, "masks/val/old.png", (0,))
    assert load(tmp_path, num_classes=3)[0].notes == ("warning: masks/val contains 1 masks without an image",)


@pytest.mark.parametrize("key, value", [("names", "x.txt"), ("num_classes", 19)])
def test_cityscapes_has_fixed_classes(key, value, tmp_path):
    write_city(tmp_path, *STEMS)
    assert error_message(tmp_path, **{key: value}).startswith(f"data.{key}: is for custom data")


@pytest.mark.parametrize("images, masks", [("images/{}", "masks/{}"), ("{}/images", "{}/masks")])
@pytest.mark.parametrize("extension", [".jpg", ".PNG", ".jpeg"])
def test_custom_data_with_folders_train_and_val(images, masks, extension, tmp_path):
    for split, stems in (("train", ("b", "a", "deep/c.d")), ("val", ("e",))):
        write_custom(tmp_path, *stems, images=images.format(split), masks=masks.format(split), extension=extension)
    (tmp_path / images.format("train") / "notes.txt").write_text("x")
    (tmp_path / "classes.txt").write_text("sky\ngrass\ncow\n")
    train, val = load(tmp_path)
    left, right = images.format("train"), masks.format("train")
    assert path_pairs(train) == [
        [f"{left}/{stem}{extension}", f"{right}/{stem}.png"] for stem in ("a", "b", "deep/c.d")
    ]
    assert names(val) == [f"{images.format('val')}/e{extension}"] and val.classes == ("sky", "grass", "cow")
    assert val.sample(0, None)["label"][0, :5].tolist() == [0, 1, 2, 255, 0]


def number_images(root, count, folder="images"):
    """Give every image contents of its own."""
    for number in range(count):
        write_png(root, f"{folder}/{number:02d}.jpg", (number,))


def test_flat_custom_data_has_a_fixed_split(tmp_path):
    write_custom(tmp_path, *(f"{number:02d}" for number in range(23)))
    number_images(tmp_path, 23)
    train, val = load(tmp_path, num_classes=3)
    assert len(train) == 21 and len(val) == 2 and "no validation split: 2 of 23 samples are held out" in train.notes[0]
    assert train.classes == ("class 0", "class 1", "class 2")
    assert val.protocol.name.endswith("-held_out0.1") and names(load(tmp_path, num_classes=3)[1]) == names(val)
    train, val = load(tmp_path, num_classes=3, val_fraction=0.25)
    assert len(val) == 6 and not set(names(train)) & set(names(val)) and len(train) + len(val) == 23


def test_a_part_of_the_folder_train_is_held_out_where_there_is_no_other(tmp_path):
    write_custom(tmp_path, *(f"train/{number:02d}" for number in range(10)))
    number_images(tmp_path, 10, "images/train")
    train, val = load(tmp_path, num_classes=3, val_fraction=0.2)
    assert (len(train), len(val)) == (8, 2)
    write_custom(tmp_path, "valid/a")
    assert names(load(tmp_path, num_classes=3)[1]) == ["images/valid/a.jpg"]


def test_a_part_of_a_list_is_held_out_where_there_is_nothing_else(tmp_path):
    write_custom(tmp_path, *(f"{number:02d}" for number in range(10)), images="photos", masks="labels")
    number_images(tmp_path, 10, "photos")
    lines = [f"photos/{number:02d}.jpg labels/{number:02d}.png\n" for number in range(10)]
    (tmp_path / "train.txt").write_text("".join(lines))
    train, val = load(tmp_path, num_classes=3, val_fraction=0.2)
    assert (len(train), len(val)) == (8, 2) and len(train.notes) == 1


def test_class_names_from_any_file(tmp_path):
    write_custom(tmp_path, "train/a", "val/b")
    (tmp_path / "n.txt").write_text("0 sky\n2 cow\n1 grass\n")
    assert load(tmp_path, names=str(tmp_path / "n.txt"))[0].classes == ("sky", "grass", "cow")
    assert load(tmp_path, names=str(tmp_path / "n.txt"), num_classes=3)[0].classes == ("sky", "grass", "cow")
    message = error_message(tmp_path, names=str(tmp_path / "n.txt"), num_classes=4)
    assert message == f"data.num_classes: is 4, but {tmp_path / 'n.txt'} names 3; leave it out"
    assert error_message(tmp_path, names="m.txt").startswith(
        "data.names: there is no file m.txt, neither in the current"
    )
    (tmp_path / "n.txt").write_text("sky\n")
    assert "1 class names, but 8-bit masks hold 2 to 255" in error_message(tmp_path, names=str(tmp_path / "n.txt"))
    (tmp_path / "n.txt").write_text("\n".join(f"name {number}" for number in range(256)))
    assert "256 class names" in error_message(tmp_path, names=str(tmp_path / "n.txt"))


def test_an_unknown_number_of_classes(tmp_path):
    write_custom(tmp_path, "train/a", "val/b", values=(0, 1, 4, 255))
    message = error_message(tmp_path)
    assert "contain the values 0, 1, 4;" in message and str(tmp_path / "classes.txt") in message
    assert "-o data.num_classes=K" in message


@pytest.mark.parametrize("split", ["train", "val"])
def test_masks_of_both_splits_are_checked(split, tmp_path):
    write_custom(tmp_path, "train/a", "val/b")
    stem = {"train": "train/a", "val": "val/b"}[split]
    write_png(tmp_path, f"masks/{stem}.png", (0, 1), mode="RGB")
    assert f"masks/{stem}.png: holds colors (mode RGB)" in error_message(tmp_path, num_classes=3)
    write_png(tmp_path, f"masks/{stem}.png", (0, 1), size=(6, 8))
    assert f"masks/{stem}.png: the image has 16 x 12 pixels, its mask 8 x 6" in error_message(tmp_path, num_classes=3)
    write_png(tmp_path, f"masks/{stem}.png", (0, 9))
    assert f"masks/{stem}.png: holds the value 9" in error_message(tmp_path, num_classes=3)


def test_the_number_of_checked_masks_is_a_setting(tmp_path):
    write_custom(tmp_path, *(f"train/{number}" for number in range(9)), "val/b")
    write_png(tmp_path, "masks/train/4.png", (9,))
    assert len(load(tmp_path, num_classes=3, checked_masks=2)[0]) == 9
    assert "masks/train/4.png" in error_message(tmp_path, num_classes=3, checked_masks=3)


def test_folders_that_are_missing_or_empty(tmp_path):
    write_custom(tmp_path, "train/a")
    assert "none of the 1 samples can be held out for validation" in error_message(tmp_path, num_classes=3)
    write_png(tmp_path, "images/val/b.jpg")
    assert "masks/val: no such folder; masks are PNG files" in error_message(tmp_path, num_classes=3)
    write_png(tmp_path, "masks/val/b.jpg", (0,))
    assert "masks/val: there is no mask *.png in this folder" in error_message(tmp_path, num_classes=3)
    (tmp_path / "x/images").mkdir(parents=True)
    assert "images: there is no image in this folder; it should contain files ending in .jpeg, .jpg" in error_message(
        tmp_path / "x"
    )


def test_folders_without_a_known_layout(tmp_path):
    message = error_message(tmp_path)
    assert "neither Cityscapes nor custom images" in message and "leftImg8bit/{train,val}" in message
    message = error_message(tmp_path / "none")
    assert str(tmp_path / "none") in message and "-o data.root=FOLDER" in message
    assert "python train.py -c configs/deeplabv3plus_demo.yaml --amp" in message and "masks/{train,val}" in message


def test_paths_in_any_language_and_not_in_utf_8(tmp_path):
    strange = os.fsdecode(b"train/caf\xe9")
    write_custom(tmp_path, "train/straße 1", strange, "val/ü")
    train, val = load(tmp_path, num_classes=3)
    assert set(names(train)) == {"images/train/straße 1.jpg", f"images/{strange}.jpg"}
    assert train.sample(0, np.random.default_rng(0)) and train.sample(1, np.random.default_rng(0))
    assert len(cityscapes.describe(train, val).checksum) == 32


def test_folders_of_voc_need_no_lists(tmp_path):
    write_custom(tmp_path, "x", "yy", images="JPEGImages", masks="SegmentationClass")
    train, val = load(tmp_path, num_classes=3)
    assert {*names(train), *names(val)} == {"JPEGImages/x.jpg", "JPEGImages/yy.jpg"} and len(val) == 1


@pytest.mark.parametrize("name", ["{}.txt", "{}_list.txt", "ImageSets/Segmentation/{}.txt"])
@pytest.mark.parametrize("line", ["{0}/{2}.jpg {1}/{2}.png", "{2}", "{2}.jpg"])
@pytest.mark.parametrize("folders", [("images", "masks"), ("JPEGImages", "SegmentationClass")])
def test_lists_give_the_split(name, line, folders, tmp_path):
    write_custom(tmp_path, *"abcde", images=folders[0], masks=folders[1])
    for split, stems in {"train": "dab", "val": "ec"}.items():
        path = tmp_path / name.format(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line.format(*folders, stem) + "\n" for stem in stems))
    train, val = load(tmp_path, num_classes=3)
    assert path_pairs(train) == [[f"{folders[0]}/{stem}.jpg", f"{folders[1]}/{stem}.png"] for stem in "dab"]
    assert [Path(path).stem for path in names(val)] == ["e", "c"]


@pytest.mark.parametrize(
    "line, message",
    [
        ("x", ":2: there is no images/x in"),
        ("images/a.jpg masks/x.png", ":2: there is no masks/x.png in"),
        ("images/a.jpg images/a.jpg masks/a.png", ":2: expected `image mask`"),
        ("../a.jpg masks/a.png", "may lead out of data.root"),
    ],
)
def test_a_line_of_a_list_that_is_wrong_is_named(line, message, tmp_path):
    write_custom(tmp_path, "a", "b")
    (tmp_path / "val.txt").write_text("b\n")
    (tmp_path / "train.txt").write_text(f"a\n{line}\n")
    assert message in error_message(tmp_path, num_classes=3)


def test_lines_with_tabs_and_absolute_paths(tmp_path):
    write_custom(tmp_path, "a 1", "b")
    (tmp_path / "val.txt").write_text(f"{tmp_path}/images/b.jpg {tmp_path}/masks/b.png\n")
    (tmp_path / "train.txt").write_text("images/a 1.jpg\t masks/a 1.png\n" * 2)
    assert "data.allow_outside_root=true" in error_message(tmp_path, num_classes=3)
    train, val = load(tmp_path, num_classes=3, allow_outside_root=True)
    assert path_pairs(train) == [["images/a 1.jpg", "masks/a 1.png"]] * 2 and "1 lines repeat" in train.notes[0]
    assert path_pairs(val) == [[f"{tmp_path}/images/b.jpg", f"{tmp_path}/masks/b.png"]]


def test_a_list_of_one_split_is_not_read_and_named(tmp_path):
    write_custom(tmp_path, "a", "bb", "ccc")
    (tmp_path / "train.txt").write_text("a\nbb\n")
    assert "train.txt is not read: the other split has no list" in load(tmp_path, num_classes=3)[0].notes[0]


def test_folders_of_camvid(tmp_path):
    for split, stem in (("train", "a"), ("val", "b")):
        write_custom(tmp_path, stem, images=split, masks=f"{split}annot", extension=".png")
    train, _ = load(tmp_path, num_classes=3)
    assert path_pairs(train) == [["train/a.png", "trainannot/a.png"]]


def test_images_whose_metadata_turn_them_are_named(tmp_path):
    write_custom(tmp_path, *"abc")
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.open(tmp_path / "images/b.jpg").save(tmp_path / "images/b.jpg", exif=exif)
    warning = load(tmp_path, num_classes=3)[0].notes[-1]
    assert "1 of the pairs that were looked at" in warning and "masks/b.png" in warning
    Image.open(tmp_path / "masks/c.png").save(tmp_path / "masks/c.png", exif=exif)
    assert "2 of the pairs that were looked at" in load(tmp_path, num_classes=3)[0].notes[-1]
