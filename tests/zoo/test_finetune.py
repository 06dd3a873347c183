"""What a folder is, and the rules by which `zoo finetune` chooses a recipe."""

import os

import cv2
import numpy as np
import pytest

from tests.data.datasets.test_cityscapes import write_custom
from tests.helpers.drawn import animation, paths, photo, scenes
from tests.helpers.files import touch
from zoo.config import loader
from zoo.config.loader import Entry
from zoo.data.errors import UserError
from zoo.finetune import folder, recipe
from zoo.run.request import FIND
from zoo.weights import imagenet

RNG = np.random.default_rng(0)


def image(root, *paths, size=(40, 30)):
    for path in paths:
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        cv2.imwrite(os.path.join(root, path), RNG.integers(0, 256, (size[1], size[0], 3), np.uint8))


def text(root, name, content):
    touch(root, name, content=content.encode())


def classes(root, extension, parent=""):
    for name in ("a", "b"):
        touch(root, *(os.path.join(parent, f"{name}/{number}.{extension}") for number in range(3)))


def listed_scenes(root):
    write_custom(root, "x", "yy", images="photos", masks="labels")
    text(root, "train.txt", "photos/x.jpg labels/x.png\nphotos/yy.jpg labels/yy.png\n")


def noted_images(root):
    image(root, "a/1.jpg", "a/2.jpg", "b/3.jpg")
    touch(root, "x.json")


def split(root, train, val):
    photo(root, *paths("{0}/{1}/{2}{3}.jpg", [train], "ab", "t", "123"), *paths("{}/{}/v{}.jpg", [val], "ab", "123"))


def gifs(root, frames):
    animation(root, paths("{}/{}.gif", "ab", "12"), frames)


BELOW_TRAIN = {"images": "train/images", "masks": "train/masks"}
LAYOUTS = {
    "class folders of images": (lambda root: image(root, "a/1.jpg", "b/2.png"), "classify"),
    "train and val of images": (lambda root: image(root, "train/a/1.jpg", "val/a/2.png"), "classify"),
    "a list of images": (lambda root: text(root, "train_list.txt", "x/1.jpg 0\n"), "classify"),
    "class folders of clips": (lambda root: classes(root, "mp4"), "clips"),
    "train alone, of clips": (lambda root: classes(root, "webm", "train"), "clips"),
    "images and a note": (noted_images, "classify"),
    "a list of names with blanks": (lambda root: text(root, "train.txt", "x/a cat 1.jpg 0\n"), "classify"),
    "a list of clips": (lambda root: text(root, "train.list", "x/1.mp4 0\n"), "clips"),
    "a list of frames": (lambda root: text(root, "train.list", "x/1 30 0\n"), "clips"),
    "a list of scenes": (listed_scenes, "segment"),
    "images and masks": (lambda root: write_custom(root, "x", "yy"), "segment"),
    "scenes below train": (lambda root: write_custom(root, "x", "yy", **BELOW_TRAIN), "segment"),
    "splits named otherwise": (lambda root: split(root, "training_set", "test_set"), "classify"),
    "splits in capitals": (lambda root: split(root, "Train", "Val"), "classify"),
    "splits in folders of their names": (lambda root: split(root, "s_train/s_train", "s_test/s_test"), "classify"),
    "classes whose files are numbered": (lambda root: photo(root, *paths("{}/{}.jpg", "ab", "12345")), "classify"),
    "animations": (lambda root: gifs(root, 4), "clips"),
    "GIF files of one frame": (lambda root: gifs(root, 1), "classify"),
    "mmsegmentation's folders": (lambda root: scenes(root, "img_dir/train", "ann_dir/train"), "segment"),
    "scenes of other names": (lambda root: scenes(root, "imgs", "targets"), "segment"),
    "a list with tabs": (lambda root: text(root, "train_list.txt", "x/1.jpg\t0\n"), "classify"),
    "a pack of faces": (lambda root: touch(root, "train.rec"), "faces"),
    "aligned by zoo data align": (lambda root: touch(root, "faces.csv"), "faces"),
}  # fmt: skip


@pytest.mark.parametrize("write, task", LAYOUTS.values(), ids=LAYOUTS)
def test_a_folder_tells_its_task(tmp_path, write, task):
    write(tmp_path)
    found = folder.examine(str(tmp_path))
    assert found.task == task and found.settings["root"] == str(tmp_path)
    assert found.settings["name"] == folder.DATASETS[task]


LABELME = b'{"version": "5.5.0", "shapes": [], "imagePath": "1.jpg"}'
COCO = b'{"info": {}, "categories": [], "images": [{"id": 1}], "annotations": []}'
SUPERVISELY = b'{"objects": [{"classTitle": "car", "geometryType": "polygon"}]}'
IMPORT = r"`zoo data import \S*{}{} --out {}-scenes` makes masks of them; or say with --task"
MISTAKES = {
    "images and videos": (("a/1.jpg", "b/2.mp4"), "1 images and 1 videos .* --task classify or --task clips"),
    "no classes": (
        ("1.jpg", "2.jpg"),
        "2 images and videos are in no folder of a class, but in .*with a line `1.jpg 0`",
    ),
    "a flat split": (
        ("train/cat.0.jpg", "train/dog.1.jpg"),
        "2 images and videos .* but in .*train; .* `train/cat.0.jpg 0`",
    ),
    "a table": (
        ("images/1.jpg", "images/2.jpg", "labels.xlsx"),
        "2 images .* class as a number from 0 .of labels.xlsx.;",
    ),
    "a class named train": (("bus/1.jpg", "train/1.jpg"), "a class named train needs another name"),
    "nothing": (("a/notes.txt", "b/1.xyz"), "there is nothing to train on .files of other kinds: .txt, .xyz.;"),
    "archives": (
        ("train.zip", "test.zip"),
        "nothing to train on .files of other kinds: .zip.; unpack the archives first",
    ),
    "live photos": (("a/1.HEIC", "a/1.MOV", "b/2.HEIC", "b/2.MOV"), "2 photos such as .* are HEIC, which is not read"),
    "a folder too high": (("photos/a/1.jpg", "photos/b/2.jpg"), "photos would be the only class; .* as .*/photos;"),
    "splits of no words": (
        ("x/a/1.jpg", "x/b/2.jpg", "y/a/3.jpg", "y/b/4.jpg"),
        "x and y in .* same names .a, b., as splits",
    ),
    "splits in class names": (("a_train/1.jpg", "a_test/2.jpg"), "a_test, a_train would be a class; splits are named"),
    "splits in classes": (
        ("a/train/1.jpg", "a/test/2.jpg", "b/train/1.jpg", "b/test/2.jpg"),
        "a and b in .* as splits do",
    ),
    "numbered frames": (
        [f"{a}/clip{c}/{n:05}.jpg" for a in "ab" for c in "12" for n in range(4)],
        "`a/clip1 4 0` for each",
    ),
    "frames of one folder": (
        [f"{a}/clip{c}_{n}.jpg" for a in "ab" for c in "123" for n in range(8)],
        "a/clip1_0.jpg and others are numbered in rows.* `a/clip1 8 0` for each",
    ),
    "pairs of images": (
        [f"{a}/{n}.jpg" for a in ("clean", "noisy") for n in ("sea", "sun", "sky")],
        "same names, .* pairs",
    ),
    "a copy": (("a/1.jpg", "a (1)/1.jpg", "b/1.jpg"), "a .1. in .* looks like a copy of a;"),
    "masks of another name": (("images/1.jpg", "other/1.png"), "images would be a class"),
}


@pytest.mark.parametrize("paths, message", MISTAKES.values(), ids=MISTAKES)
def test_a_folder_that_tells_nothing(tmp_path, paths, message):
    touch(tmp_path, *paths)
    with pytest.raises(UserError, match=message):
        folder.examine(str(tmp_path))


PHOTO = {"images/1.jpg": b""}
CVAT, FIFTYONE = "annotations/instances_default.json", "labels.json"
ROBOFLOW = {"train/1.jpg": b"", **dict.fromkeys(paths("{}/_annotations.coco.json", ("train", "valid")), COCO)}
YOLO = {"train/images/1.jpg": b"", "train/labels/1.txt": b"0 .5 .5 .1 1e-1\n"}
EXPORTS = {
    "LabelMe": ({"1.jpg": b"", "1.json": LABELME}, IMPORT.format("set", "", "set")),
    "LabelMe beside the images": ({**PHOTO, "labelme/1.json": LABELME}, IMPORT.format("set/", "labelme", "set")),
    "COCO of CVAT": ({**PHOTO, CVAT: COCO}, IMPORT.format("set/", CVAT, "set")),
    "COCO of FiftyOne": ({"data/1.jpg": b"", FIFTYONE: COCO}, IMPORT.format("set/", FIFTYONE, "set")),
    "COCO of Roboflow": (ROBOFLOW, IMPORT.format("", "set", "set")),
    "CVAT": ({**PHOTO, "a.xml": b"<?xml?><annotations/>"}, IMPORT.format("set/", "a.xml", "set")),
    "VOC's boxes": ({**PHOTO, "xml/1.xml": b"<annotation/>"}, "PASCAL VOC .xml/1.xml., boxes, which no task"),
    "YOLO's boxes": (YOLO, "YOLO .train/labels/1.txt., boxes, which no task"),
    "YOLO's polygons": ({**PHOTO, "labels/1.txt": b"0 .5 .5 .1 .1 .2 .2\n"}, "YOLO .* whose data.yaml is not there"),
    "YOLO's polygons and names": (
        {**PHOTO, "data.yaml": b"names: [a]", "labels/1.txt": b"0 .5 .5 .1 .1 .2 .2\n"},
        IMPORT.format("set", "", "set"),
    ),
    "Supervisely": (
        {"d/img/1.jpg": b"", "d/ann/1.jpg.json": SUPERVISELY, "meta.json": b"{}"},
        IMPORT.format("set", "", "set"),
    ),
    "Label Studio": (
        {"1.jpg": b"", "p.json": b'[{"annotations": [{"result": [{"original_width": 9}]}]}]'},
        IMPORT.format("set/", "p.json", "set"),
    ),
    "VIA": ({"1.jpg": b"", "v.json": b'{"_via_settings": {}}'}, IMPORT.format("set/", "v.json", "set")),
}


@pytest.mark.parametrize("files, message", EXPORTS.values(), ids=EXPORTS)
def test_labels_are_named_with_what_reads_them(tmp_path, files, message):
    for path, content in files.items():
        touch(tmp_path / "set", path, content=content)
    with pytest.raises(UserError, match=message):
        folder.examine(str(tmp_path / "set"))


def test_texts_beside_images_are_no_labels(tmp_path):
    touch(tmp_path, "a/1.jpg", "b/1.jpg", "a/1.txt", "b/1.json", content=b"a photo of 2 cats")
    assert folder.examine(str(tmp_path)).task == "classify"


def test_a_list_with_commas_is_one_of_images(tmp_path):
    text(tmp_path, "train_list.txt", "a/1.jpg,0\n")
    assert folder.examine(str(tmp_path)).task == "classify"  # whose reader names the line, and its format


def test_small_squares_may_be_faces_or_classes(tmp_path):
    image(tmp_path, "ann/1.jpg", "bob/2.jpg", size=(112, 112))
    with pytest.raises(UserError, match="--task faces or --task classify"):
        folder.examine(str(tmp_path))
    assert folder.examine(str(tmp_path), "classify").task == "classify"
    assert folder.examine(str(tmp_path), "faces").settings == {
        "name": "faces",
        "root": str(tmp_path),
        "verification": [],
    }
    image(tmp_path, "bob/3.jpg", size=(112, 100))
    touch(tmp_path, "own.bin")
    assert folder.examine(str(tmp_path)).task == "classify"
    _, layout, settings = folder.examine(str(tmp_path), "faces")
    assert settings["resize"] is True and settings["verification"] == ["own.bin"] and "zoo data align" in layout


def test_folders_beside_the_splits_are_named(tmp_path):
    image(tmp_path, "train/a/1.jpg", "valid/a/1.jpg", "test/a/1.jpg")
    assert (
        folder.examine(str(tmp_path)).layout
        == f"1 classes in {tmp_path}/train, a folder of images each; not read: test"
    )


def test_images_below_class_folders_are_samples(tmp_path):
    image(tmp_path, "a/park/img_00001.jpg", "b/1.jpg")
    assert ", a folder of images each, or of folders of them" in folder.examine(str(tmp_path)).layout


def test_a_folder_that_is_not_there(tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match=f"there is no such folder; did you mean {tmp_path}/photos"):
        folder.examine(str(tmp_path / "fotos"))
    touch(tmp_path, "photos.txt")
    with pytest.raises(UserError, match="photos.txt: is a file; name a folder"):
        folder.examine(str(tmp_path / "photos.txt"))


@pytest.mark.parametrize("values, count", [((0, 1, 4, 255), 5), ((0, 255, 1), 2), ((0, 1), 2)])
def test_classes_of_scenes_are_counted_in_their_masks(tmp_path, values, count):
    write_custom(tmp_path, "x", "yy", values=values)
    assert folder.examine(str(tmp_path)).settings["num_classes"] == count
    (tmp_path / "classes.txt").write_text("a\nb\nc\nd\ne\n")
    assert "num_classes" not in folder.examine(str(tmp_path)).settings


def test_median_size(tmp_path):
    image(tmp_path, "1.jpg", "2.jpg", size=(40, 30))
    image(tmp_path, "3.jpg", size=(400, 10))
    touch(tmp_path, "4.jpg")
    paths = [str(tmp_path / f"{number}.jpg") for number in (1, 2, 3, 4)]
    assert folder.median_size(paths) == (40, 30) and folder.median_size(paths[3:]) is None


BEFORE = {"data.segments": Entry(8, "")}
CPU = recipe.Conditions("classify", 24, ("cat", "dog"), (640, 480), "", 8 << 30, "initial", 18)
GPU = CPU._replace(samples=50_000, accelerator="a GPU", memory=16 << 30, start="imagenet", depth=50)


def chosen(facts, **fixed):
    values = recipe.choose(facts, {key.replace("__", "."): value for key, value in fixed.items()}, BEFORE)
    return {key: entry.value for key, entry in values.items()}


def test_rules_for_few_images_on_a_cpu():
    values = chosen(CPU)
    assert (values["model.depth"], values["model.width"], values["model.pretrained"]) == (18, 32, None)
    assert (values["data.size"], values["train.batch"], values["train.precision"]) == (128, 8, "fp32")
    assert values["train.epochs"] == 134 == -(-400 * 8 // 24)  # 400 updates
    assert (values["train.eval_every"], values["optim.warmup"], values["optim.lr"]) == ("13 epochs", "20 steps", 1e-3)
    assert chosen(CPU._replace(size=(50, 90)))["data.size"] == 48
    assert chosen(CPU._replace(samples=2))["train.batch"] == 2


def test_rules_for_many_images_on_a_gpu():
    values = chosen(GPU)
    assert (values["model.depth"], values["model.width"], values["model.pretrained"]) == (50, 64, "imagenet")
    assert (values["data.size"], values["train.batch"], values["train.precision"]) == (224, 64, "amp")
    assert (values["train.epochs"], values["train.eval_every"], values["optim.lr"]) == (15, "1 epochs", 2e-4)
    assert values["optim.warmup"] == f"{15 * 50_000 // 64 // 20} steps" and "data.scale" not in values


def test_the_batch_fits_half_of_the_memory():
    bytes_per_sample = recipe.BYTES_PER_PIXEL["classify"] * 224**2
    for memory, batch in ((2 * 40 * bytes_per_sample, 32), (2 * 64 * bytes_per_sample, 64), (bytes_per_sample, 2)):
        assert chosen(GPU._replace(memory=memory))["train.batch"] == batch
    clips = chosen(GPU._replace(task="clips", size=None, memory=2 * 8 * 4 * recipe.BYTES_PER_PIXEL["clips"] * 224**2))
    assert clips["train.batch"] == 4


def test_what_is_set_stays_and_the_rules_follow():
    values = chosen(CPU, train__batch=4, train__epochs=10, model__depth=34, data__size=64)
    assert not {"train.batch", "train.epochs", "model.depth", "data.size"} & set(values)
    assert values["train.eval_batch"] == 4 and values["optim.warmup"] == f"{10 * 24 // 4 // 20} steps"
    values = chosen(CPU, train__steps=200)
    assert not {"train.epochs", "train.steps"} & set(values)
    assert (values["train.eval_every"], values["optim.warmup"]) == ("20 steps", "10 steps")


@pytest.mark.parametrize("name, mirrored", [("turn left", False), ("RIGHT_hand", False), ("bright", True)])
def test_classes_that_tell_left_from_right_are_not_mirrored(name, mirrored):
    assert ("data.flip" not in chosen(CPU._replace(classes=(name, "other")))) == mirrored


def test_rules_for_scenes_and_faces():
    values = chosen(CPU._replace(task="segment", size=(1000, 600)))
    assert (values["data.base_size"], values["data.crop"], values["train.eval_batch"]) == ([154, 256], [128, 128], 1)
    assert chosen(CPU._replace(task="segment", size=(100, 60)))["data.crop"] == [48, 48]
    assert chosen(CPU._replace(task="segment", size=(100, 60)), data__base_size=None)["data.crop"] == [48, 48]
    values = chosen(CPU._replace(task="faces", size=None, classes=range(10)))
    assert (values["task.scale"], values["model.width"], values["data.size"]) == (16.0, 16, 112)
    assert "task.scale" not in chosen(GPU._replace(task="faces", size=None, classes=range(1000)))


@pytest.mark.parametrize("task", recipe.BASES)
@pytest.mark.parametrize("facts", [CPU, GPU], ids=["cpu", "gpu"])
def test_every_choice_is_a_key_of_its_recipe(task, facts):
    base = loader.read(loader.find_recipe(recipe.BASES[task]))
    values = recipe.choose(facts._replace(task=task), {}, {**base, **BEFORE})
    _, resolved = loader.build(loader.merge({**base, "train.steps": Entry(None, "")}, values), FIND)
    lost = {key for key in values if key not in resolved}
    assert lost <= ({"model.pretrained"} if task == "faces" else set())
    assert all(resolved[key].origin == values[key].origin for key in values.keys() - lost)


@pytest.mark.parametrize(
    "here, fast, depth", [((), True, 50), ((), False, 18), ((34, 101), False, 34), ((18, 50), True, 50)]
)
def test_weights_at_hand_decide_the_depth(tmp_path, monkeypatch, here, fast, depth):
    for each in here:
        touch(tmp_path, imagenet.published("plain")[each].file)
    assert imagenet.depths_at_hand(str(tmp_path), "plain") == list(here)
    monkeypatch.setattr(imagenet, "find_weights", lambda depth, *_: (f"resnet{depth}", "its origin"))
    cfg, _ = loader.build(loader.read(loader.find_recipe("resnet50_imagenet")), FIND)
    cfg = cfg.__class__(**{**vars(cfg), "weights_dir": str(tmp_path)})
    assert recipe._published(cfg, {}, fast) == ("imagenet", depth, [f"the run starts from resnet{depth} (its origin)"])
    assert recipe._published(cfg, {"model.depth": Entry(152, "-o")}, fast)[1] == 152
    assert recipe._published(cfg, {"model.width": Entry(32, "-o")}, fast)[0] == "initial"
