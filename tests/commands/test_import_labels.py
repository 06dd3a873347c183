"""`zoo data import`: labels of every format become masks, and whatever cannot is named."""

import base64
import csv
import json
import os
import shlex

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.helpers.cli import call_zoo
from zoo.commands import import_labels
from zoo.data import audit
from zoo.data.datasets.segmentation import read_image
from zoo.data.formats import masks
from zoo.data.formats.images import EXIF_ORIENTATION

WIDTH, HEIGHT = 24, 16
FLIPS = Image.Transpose
ORIENTATIONS = {  # what turns a stored image upright
    2: FLIPS.FLIP_LEFT_RIGHT, 3: FLIPS.ROTATE_180, 4: FLIPS.FLIP_TOP_BOTTOM, 5: FLIPS.TRANSPOSE, 6: FLIPS.ROTATE_270,
    7: FLIPS.TRANSVERSE, 8: FLIPS.ROTATE_90,
}  # fmt: skip
BOX = [[2, 3], [10, 3], [10, 9], [2, 9]]  # pixels 3 to 8 of columns 2 to 9


def picture(path, size=(WIDTH, HEIGHT), orientation=None):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    pixels = np.random.default_rng(len(str(path))).integers(0, 256, (size[1], size[0], 3), np.uint8)
    exif = Image.Exif()
    if orientation:
        exif[EXIF_ORIENTATION] = orientation
    Image.fromarray(pixels).save(path, exif=exif)
    return pixels


def labelme(folder, name, *shapes, size=(WIDTH, HEIGHT), with_image=True, **others):
    """Write labels of an image, and the image; a shape is (label, points), and perhaps other keys."""
    if with_image:
        picture(folder / f"{name}.png", size)
    os.makedirs(folder, exist_ok=True)
    entries = [
        {"label": label, "points": points, "shape_type": "polygon", **dict(*more)} for label, points, *more in shapes
    ]
    content = {"imagePath": f"{name}.png", "imageData": None, "imageWidth": size[0], "imageHeight": size[1]}
    (folder / f"{name}.json").write_text(json.dumps({"version": "5.5.0", "shapes": entries, **content, **others}))


def coco(folder, annotations, **others):
    for name in ("a", "b"):
        picture(folder / f"photos/{name}.png")
    images = [{"id": 7, "file_name": "a.png"}, {"id": 9, "file_name": "b.png"}]
    entries = [{**one, "width": WIDTH, "height": HEIGHT} for one in images]
    categories = [{"id": 18, "name": "dog"}, {"id": 3, "name": "car"}, {"id": 44, "name": "never seen"}]
    content = {"images": entries, "annotations": annotations, "categories": categories, **others}
    (folder / "labels.json").write_text(json.dumps(content))
    return folder / "labels.json", "--images", folder / "photos"


def cvat(folder, *shapes, images=(("a.png", "images/a.png", ""),)):
    """Write labels of images: name, file, and what else the labels state."""
    for _, file, _ in images:
        picture(folder / file)
    names = "".join(f"<label><name>{name}</name></label>" for name in ("road", "car"))
    meta = f"<meta><task><labels>{names}</labels></task></meta>"
    size, inner = f'width="{WIDTH}" height="{HEIGHT}"', "".join(shapes)
    listed = "".join(f'<image id="0" name="{name}" {more} {size}>{inner}</image>' for name, _, more in images)
    (folder / "annotations.xml").write_text(f"<?xml version='1.0'?><annotations>{meta}{listed}</annotations>")
    return (folder / "annotations.xml",)


@pytest.fixture
def run(tmp_path, capsys):
    """Return a function that imports labels, and returns the exit code, what was printed, and the folder."""

    def imported(*words):
        code = call_zoo("data", "import", *words, "--out", tmp_path / "out")
        assert not (tmp_path / "out.partial").exists()
        return code, capsys.readouterr(), tmp_path / "out"

    return imported


def mask_of(out, name):
    return masks.read_values(str(out / f"masks/{name}.png"))


def left_out(out):
    with open(out / "left_out.csv", encoding="utf-8") as file:
        return [(row["source"], row["reason"]) for row in csv.DictReader(file)]


def box_mask(value, rest=0, shape=(HEIGHT, WIDTH)):
    mask = np.full(shape, rest, np.uint8)
    mask[3:9, 2:10] = value
    return mask


def test_labelme(tmp_path, run):
    labels = tmp_path / "labels"
    part = cv2.imencode(".png", np.array([[255, 0], [255, 255]], np.uint8))[1].tobytes()
    labelme(labels, "a", ("car", BOX), ("__ignore__", [[0, 0], [2, 1]], {"shape_type": "rectangle"}),
            imagePath="..\\photos\\a.png")  # fmt: skip
    mask = {"shape_type": "mask", "mask": base64.b64encode(part).decode()}
    circle = {"shape_type": "circle", "group_id": 4}
    labelme(labels / "more", "b", ("bike", [[20, 12], [21, 13]], mask), ("car", [[6.5, 6.5], [8, 6.5]], circle))
    embedded = base64.b64encode((labels / "a.png").read_bytes()).decode()
    labelme(labels, "c", ("car", BOX), with_image=False, imageData=embedded, imageWidth=None)
    code, printed, out = run(labels)
    assert code == 0 and printed.err == ""
    assert (out / "classes.txt").read_text() == "background\nbike\ncar\n" and left_out(out) == []
    expected = box_mask(2)
    expected[0, :2] = 255
    np.testing.assert_array_equal(mask_of(out, "a"), expected)
    expected = np.zeros((HEIGHT, WIDTH), np.uint8)
    expected[12, 20] = expected[13, 20:22] = 1
    expected[5:8, 5:8] = 2  # centers within 1.5 of (6.5, 6.5)
    np.testing.assert_array_equal(mask_of(out, "more/b"), expected)
    assert (out / "images/c.png").read_bytes() == (labels / "a.png").read_bytes()
    assert Image.open(out / "masks/a.png").mode == "P"


def test_coco(tmp_path, run):
    flat = [float(one) for point in BOX for one in point]
    golden = {"size": [HEIGHT, WIDTH], "counts": [35] + [6, 10] * 7 + [6, 384 - 35 - 7 * 16 - 6]}
    annotations = [
        {"image_id": 7, "category_id": 18, "segmentation": [[4, 4, 6, 4, 6, 6, 4, 6]], "area": 4},
        {"image_id": 7, "category_id": 3, "segmentation": [flat, [20, 0, 24, 0, 24, 2]], "area": 50},
        {"image_id": 7, "category_id": 18, "segmentation": golden, "area": 1, "iscrowd": 1},
        {"image_id": 9, "category_id": 3, "segmentation": golden},
        {"image_id": 9, "category_id": 3, "segmentation": [], "bbox": [0, 0, 2, 2]},
        {"image_id": 9, "category_id": 3, "segmentation": [[1, 1, 2, 2]]},
    ]
    code, printed, out = run(*coco(tmp_path, annotations))
    assert code == 1 and (out / "classes.txt").read_text() == "background\ncar\ndog\n"
    expected = box_mask(1)
    expected[4:6, 4:6] = 2  # the smaller one lies above, the crowd below all
    expected[0, 21:] = expected[1, 23] = 1
    np.testing.assert_array_equal(mask_of(out, "a"), expected)
    np.testing.assert_array_equal(mask_of(out, "b"), box_mask(1))
    reasons = ["box without a mask", "polygon of fewer than 3 points", "shape covered by others"]
    assert sorted(reason for _, reason in left_out(out)) == reasons
    assert all(reason in printed.out for reason in reasons)


BOX_OF_COCO = {"category_id": 3, "segmentation": [[float(one) for point in BOX for one in point]]}
CVAT_BOX = '<box label="car" xtl="2" ytl="3" xbr="10" ybr="9"/>'
PLACES = {  # of images and of their labels: CVAT, FiftyOne, COCO
    "images/default": ("images/default/{}.png", "annotations/instances_default.json"),
    "data": ("data/{}.png", "labels.json"),
    "beside the labels": ("photos/{}.png", "json/labels.json"),
}


def coco_files(folder, image, labels, names):
    """Write labels of COCO and their images."""
    listed = [{"id": each, "file_name": f"{each}.png", "width": WIDTH, "height": HEIGHT} for each in names]
    for each in names:
        picture(folder / image.format(each))
    os.makedirs((folder / labels).parent, exist_ok=True)
    content = {"images": listed, "categories": [{"id": 3, "name": "car"}]}
    annotations = [{"image_id": each, **BOX_OF_COCO} for each in names]
    (folder / labels).write_text(json.dumps({**content, "annotations": annotations}))


@pytest.mark.parametrize("image, labels", PLACES.values(), ids=PLACES)
def test_images_are_found_near_their_labels(tmp_path, run, image, labels):
    coco_files(tmp_path / "set", image, labels, "ab")
    code, printed, out = run(tmp_path / "set" / labels)
    assert (code, printed.err) == (0, "") and sorted(os.listdir(out / "images")) == ["a.png", "b.png"]
    np.testing.assert_array_equal(mask_of(out, "b"), box_mask(1))


def test_images_in_a_folder_beside_that_of_the_labels_are_not_searched_for(tmp_path, run):
    coco_files(tmp_path, "other/{}.png", "set/labels.json", "a")
    code, printed, _ = run(tmp_path / "set/labels.json")
    assert code == 2 and "image that is not in its folder; --images names another" in printed.err


@pytest.mark.parametrize(
    "image, labels", [("{}/{{}}.png", "{}/_annotations.coco.json"), ("{}2017/{{}}.png", "annotations/all_{}2017.json")]
)
def test_the_files_of_all_splits_keep_them_apart(tmp_path, run, image, labels):
    for split, names in (("train", "abc"), ("valid", "de")):
        coco_files(tmp_path / "set", image.format(split), labels.format(split), names)
    code, printed, out = run(tmp_path / "set")
    assert code == 0 and "data: train 3, val 2, 2 classes" in printed.out
    assert sorted(os.listdir(out / "masks/val")) == ["d.png", "e.png"]


def test_the_masks_of_coco_beside_its_captions(tmp_path, run):
    for split, names in (("train", "abc"), ("val", "de")):
        coco_files(tmp_path / "set", f"{split}2017/{{}}.png", f"annotations/instances_{split}2017.json", names)
        (tmp_path / f"set/annotations/captions_{split}2017.json").write_text("{}")
    code, printed, out = run(tmp_path / "set/annotations")
    assert code == 0 and "data: train 3, val 2, 2 classes" in printed.out
    (tmp_path / "set/annotations/panoptic_val2017.json").write_text("{}")
    out.rename(tmp_path / "first")
    code, printed, _ = run(tmp_path / "set")
    assert code == 2 and "panoptic_val2017.json; name one file" in printed.err


def test_a_smaller_area_lies_above_if_coco_states_none(tmp_path, run):
    whole = {"size": [HEIGHT, WIDTH], "counts": [0, HEIGHT * WIDTH]}
    flat = [float(one) for point in BOX for one in point]
    annotations = [
        {"image_id": 7, "category_id": 18, "segmentation": [flat]},
        {"image_id": 7, "category_id": 3, "segmentation": whole},
    ]
    _, _, out = run(*coco(tmp_path, annotations), "--classes", "car,dog", "--rest", "ignore")
    np.testing.assert_array_equal(mask_of(out, "a"), box_mask(1))


def test_images_of_one_name(tmp_path, run):
    """The folders in the path decide; without them nothing does."""
    images = [("cam1/a.png", "photos/cam1/a.png", ""), ("cam2/a.png", "photos/cam2/a.png", "")]
    (labels,) = cvat(tmp_path / "set", CVAT_BOX, images=images)
    assert run(labels)[0] == 0
    for one in ("cam1", "cam2"):
        copy = (tmp_path / f"out/images/{one}/a.png").read_bytes()
        assert copy == (tmp_path / f"set/photos/{one}/a.png").read_bytes()
    (tmp_path / "out").rename(tmp_path / "first")
    code, _, out = run(labels, "--images", tmp_path / "set/photos/cam1")
    reason = "image that is not in its folder, and another has its name; --images names another"
    assert code == 1 and left_out(out) == [("cam2/a.png", reason)]
    out.rename(tmp_path / "second")
    (labels,) = cvat(tmp_path / "set", CVAT_BOX, images=[("a.png", "thumbs/a.png", "")])
    code, printed, _ = run(labels)
    assert code == 2 and "several: photos/cam1/a.png and photos/cam2/a.png; --images names the folder" in printed.err


def test_images_in_a_folder_that_is_linked(tmp_path, run):
    (labels,) = cvat(tmp_path / "set", CVAT_BOX, images=[("A.png", "../photos/A.png", ""), ("b.png", "b.png", "")])
    picture(tmp_path / "photos/a.png")  # of another case
    (tmp_path / "set/linked").symlink_to(tmp_path / "photos")
    (tmp_path / "photos/again").symlink_to(tmp_path / "set")
    code, _, out = run(labels)
    assert code == 0 and (out / "images/A.png").read_bytes() == (tmp_path / "photos/A.png").read_bytes()


def test_what_the_labels_hold_comes_before_a_file_elsewhere(tmp_path, run):
    labelme(tmp_path / "labels", "a", ("car", BOX))
    content = (tmp_path / "labels/a.png").read_bytes()
    labelme(tmp_path / "labels", "a", ("car", BOX), with_image=False, imageData=base64.b64encode(content).decode())
    (tmp_path / "labels/a.png").unlink()
    picture(tmp_path / "labels/other/a.png")
    code, _, out = run(tmp_path / "labels")
    assert code == 0 and (out / "images/a.png").read_bytes() == content


def test_names_that_other_systems_write_otherwise(tmp_path, run):
    (labels,) = cvat(tmp_path, CVAT_BOX, images=[("A\u0308.JPG", "images/\u00e4.jpg", ""), ("b", "images/b.png", "")])
    code, _, out = run(labels)
    assert code == 0 and sorted(os.listdir(out / "masks")) == ["A\u0308.png", "b.png"]


def test_the_subsets_of_a_project_of_cvat(tmp_path, run):
    subsets = ("Train", "Validation", "Test", "default")
    images = [("0.png", f"images/{subset}/0.png", f'subset="{subset}"') for subset in subsets]
    cvat(tmp_path / "set", CVAT_BOX, images=images)
    code, _, out = run(tmp_path / "set")  # as it is unpacked
    assert code == 0 and sorted(os.listdir(out / "images")) == ["0.png", "test", "train", "val"]
    assert (out / "images/val/0.png").read_bytes() == (tmp_path / "set/images/Validation/0.png").read_bytes()
    out.rename(tmp_path / "first")
    images = [("0.png", f"images/{subset}/0.png", f'subset="{subset}"') for subset in ("train_1", "train_2")]
    cvat(tmp_path / "two", CVAT_BOX, images=images)
    code, _, out = run(tmp_path / "two/annotations.xml")
    assert code == 0 and sorted(os.listdir(out / "images")) == ["train_1", "train_2"]


def test_boxes_with_a_common_edge_leave_no_gap(tmp_path, run):
    """The centers of pixels lie on the edge, which rounding must not move."""
    boxes = [
        f'<box label="car" xtl="0.1" ytl="{low}" xbr="23.9" ybr="{high}"/>' for low, high in ((0.3, 7.5), (7.5, 15.7))
    ]
    _, _, out = run(*cvat(tmp_path, *boxes))
    assert mask_of(out, "a").all()


def test_labelme_apart_from_its_images(tmp_path, run):
    labelme(tmp_path / "labelme", "a", ("car", BOX), with_image=False)
    picture(tmp_path / "photos/a.png")
    assert run(tmp_path / "labelme")[0] == 0


def test_coco_panoptic(tmp_path, run):
    ids = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    ids[3:9, 2:10] = (1, 2, 3)  # 1 + 2 * 256 + 3 * 65536
    (tmp_path / "labels").mkdir()
    Image.fromarray(ids).save(tmp_path / "labels/a.png")
    segments = [{"id": 197121, "category_id": 18}, {"id": 0, "category_id": 3}]
    _, *words = coco(tmp_path, [{"image_id": 7, "file_name": "a.png", "segments_info": segments}])
    code, _, out = run(tmp_path, *words, "--rest", "ignore", "--classes", "dog, car")
    assert code == 1 and left_out(out) == [("b.png", "image without any label")]
    np.testing.assert_array_equal(mask_of(out, "a"), box_mask(0, rest=1))


def test_cvat(tmp_path, run):
    shapes = (
        '<box label="car" xtl="2" ytl="3" xbr="10" ybr="9" z_order="1"/>',
        '<polygon label="road" points="0,0;24,0;24,16;0,16" z_order="0"><attribute name="x">1</attribute></polygon>',
        '<mask label="road" rle="1, 2, 1" left="2" top="3" width="2" height="2" z_order="2"/>',
        '<ellipse label="car" cx="20.5" cy="10.5" rx="1.5" ry="0.5" rotation="90" z_order="1"/>',
        '<polyline label="car" points="0,0;1,1"/>',
    )
    code, _, out = run(*cvat(tmp_path, *shapes))
    assert code == 1 and left_out(out) == [("a.png", "polyline, which has no area")]
    assert (out / "classes.txt").read_text() == "background\nroad\ncar\n"
    expected = box_mask(2, rest=1)
    expected[3, 3] = expected[4, 2] = 1
    expected[9:12, 20] = 2
    np.testing.assert_array_equal(mask_of(out, "a"), expected)


@pytest.mark.parametrize("names", ["labelmap.txt", "class_names.txt", None])
def test_voc(tmp_path, run, names):
    """Colors of a label map, and VOC's palette for other names and its own; 1 is (128, 0, 0), 6 is (0, 128, 128)."""
    folder = tmp_path / "voc"
    picture(folder / "JPEGImages/a.jpg")
    colors = np.zeros((256, 3), np.uint8)
    colors[[1, 6, 255]] = (128, 0, 0), (0, 128, 128), (224, 224, 192)
    values = box_mask(6)
    values[0, :3] = 255, 255, 1
    (folder / "SegmentationClass").mkdir()
    image = Image.fromarray(values)
    image.putpalette(colors.tobytes())
    (image.convert("RGB") if names == "labelmap.txt" else image).save(folder / "SegmentationClass/a.png")
    if names == "labelmap.txt":
        lines = ("# label:color:parts:actions", "background:0,0,0::", "cat:0,128,128::", "dog:128,0,0::")
        (folder / names).write_text("\n".join(lines))
    elif names:
        (folder / names).write_text("__ignore__\n_background_\ndog\nb\nc\nd\ne\ncat\n")
    code, _, out = run(folder)
    classes = {"labelmap.txt": ["cat", "dog"], "class_names.txt": ["dog", "cat"], None: ["aeroplane", "bus"]}[names]
    assert code == 0 and (out / "classes.txt").read_text().split() == ["background", *classes]
    expected = box_mask(1 if names == "labelmap.txt" else 2)
    expected[0, :3] = 255, 255, 2 if names == "labelmap.txt" else 1
    np.testing.assert_array_equal(mask_of(out, "a"), expected)


def test_voc_in_folders_with_colors_that_are_left_to_its_palette(tmp_path, run):
    picture(tmp_path / "voc/JPEGImages/more/a.png")
    (tmp_path / "voc/SegmentationClassPNG/more").mkdir(parents=True)
    (tmp_path / "voc/SegmentationClass").mkdir()
    Image.fromarray(box_mask(1)[..., None] * np.array([128, 0, 0], np.uint8)).save(
        tmp_path / "voc/SegmentationClassPNG/more/a.png"
    )
    (tmp_path / "voc/labelmap.txt").write_text("background:::\ncat:::\n")
    code, _, out = run(tmp_path / "voc")
    assert code == 0
    np.testing.assert_array_equal(mask_of(out, "more/a"), box_mask(1))


@pytest.mark.parametrize(("orientation", "stored"), [*((one, False) for one in ORIENTATIONS), (5, True), (8, True)])
def test_the_mask_matches_the_image_that_was_labeled(tmp_path, run, orientation, stored):
    """LabelMe and CVAT show photos upright; other programs may label them as they are stored, and state that size."""
    pixels = Image.fromarray(picture(tmp_path / "labels/a.png", orientation=orientation))
    labeled = pixels if stored else pixels.transpose(ORIENTATIONS[orientation])
    labelme(tmp_path / "labels", "a", ("car", BOX), size=labeled.size, with_image=False)
    code, _, out = run(tmp_path / "labels")
    assert code == 0
    np.testing.assert_array_equal(mask_of(out, "a"), box_mask(1, shape=labeled.size[::-1]))
    np.testing.assert_array_equal(read_image(str(out / "images/a.png")), np.asarray(labeled))  # as data sets read it


def test_classes_and_the_rest(tmp_path, run):
    labels = tmp_path / "labels"
    labelme(labels, "a", ("ape", BOX), ("background", [[0, 0], [4, 0], [4, 1], [0, 1]]))
    labelme(labels, "b", ("void", [[0, 0], [4, 0], [4, 1], [0, 1]]))
    labelme(labels, "c")
    code, printed, out = run(labels, "--rest", "ignore", "--classes", "bus,_background_,ape")
    assert code == 1 and (out / "classes.txt").read_text().split() == ["bus", "background", "ape"]
    expected = box_mask(2, rest=255)
    expected[0, :4] = 1
    np.testing.assert_array_equal(mask_of(out, "a"), expected)
    assert left_out(out) == [("b.json", "image without any label"), ("c.json", "image without any label")]
    assert "not to be trained yet" in printed.out  # a single image
    out.rename(tmp_path / "first")
    code, _, out = run(labels, "--keep-empty")
    assert code == 0 and (out / "classes.txt").read_text().split() == ["background", "ape"]
    assert not mask_of(out, "c").any() and mask_of(out, "b")[0].tolist() == [255] * 4 + [0] * 20
    out.rename(tmp_path / "second")
    code, printed, out = run(labels, "--rest", "ignore", "--classes", "bus,bike")
    assert code == 2 and "a.json: shape of ape, which --classes leaves out" in printed.err and not out.exists()


@pytest.mark.slow
def test_the_printed_command_trains(tmp_path, run):
    for number in range(12):
        labelme(tmp_path / "labels", f"{number}", ("car", BOX), size=(WIDTH + number, HEIGHT))
    _, printed, _ = run(tmp_path / "labels", "--rest", "ignore", "--classes", "car,bus")
    words = shlex.split(printed.out.splitlines()[-1].removeprefix("next: zoo "))
    assert "data.void_masks=true" in words and f"{audit.KEY}=true" in words
    assert "data: train 10, val 2" in printed.out  # as zoo finetune divides them
    few = ("-o", "train.batch=2", "-o", "train.steps=2", "-o", "model.width=8")
    assert call_zoo(*words, *few, "--out", tmp_path / "run") == 0


def broken(folder, name):
    """Return the labels of a fault, as words of the command line."""
    labels, xml = folder / "labels", folder / "annotations.xml"
    shape = {"image_id": 7, "category_id": 3, "segmentation": [[float(one) for point in BOX for one in point]]}
    (folder / "labels.json").write_text(FILES.get(name, "{}"))
    xml.write_text(XML.get(name, ""))
    if name in FILES:
        return (folder / "labels.json",)
    if name in XML:
        return (xml,)
    if name in RUNS:
        return coco(folder, [{**shape, **RUNS[name]}])
    if name in SHAPES:
        labelme(labels, "a", ("car", *SHAPES[name]))
    elif name in CONTENTS:
        picture(folder / "b.png")  # outside
        labelme(labels, "a", ("car", BOX), **CONTENTS[name])
    elif name == "only boxes of VOC":
        labels.mkdir()
        (labels / "a.xml").write_text("<annotation/>")
    elif name == "color of no class":
        picture(labels / "SegmentationClass/a.png")
    elif name == "image cut off":
        labelme(labels, "a", ("car", BOX))
        (labels / "a.png").write_bytes((labels / "a.png").read_bytes()[:300])
    elif name == "archive":
        (folder / "labels.zip").write_bytes(b"PK")
        return (folder / "labels.zip",)
    elif name == "no such folder":
        return (folder / "label",)
    return (labels,)


FILES = {
    "JSON cut off": '{"images": [', "nested JSON": "[" * 99_999, "other JSON": '{"a": 1}', "list": "[1]", "number": "3",
    "without names": '{"images": [], "annotations": [], "categories": [{"id": 1}]}',
    "no image": '{"images": [], "annotations": [], "categories": [{"id": 1, "name": "a"}]}',
}  # fmt: skip
ENTITIES = "".join(f"<!ENTITY e{n} '{f'&e{n - 1};' * 10}'>" for n in range(1, 12))
XML = {
    "XML cut off": "<annotations><image", "boxes of VOC": "<annotation><object/></annotation>",
    "tracks": "<annotations><track/></annotations>", "other XML": "<a/>",
    "entities": f"<!DOCTYPE a [<!ENTITY e0 'x'>{ENTITIES}]><annotations>&e11;</annotations>",
    "CVAT without size": '<annotations><image name="a.png"><box label="a"/></image></annotations>',
}  # fmt: skip
RUNS = {
    "damaged runs": {"segmentation": {"size": [HEIGHT, WIDTH], "counts": "`"}},
    "too few runs": {"segmentation": {"size": [HEIGHT, WIDTH], "counts": [3, 4]}},
    "endless runs": {"segmentation": {"size": [HEIGHT, WIDTH], "counts": [1 << 62] * 4}},
    "runs of another size": {"segmentation": {"size": [WIDTH, HEIGHT], "counts": [WIDTH * HEIGHT]}},
    "unknown category": {"category_id": 5}, "unknown image": {"image_id": 5},
    "category of another type": {"category_id": []}, "odd numbers": {"segmentation": [[1, 2, 3]]},
}  # fmt: skip
SHAPES = {
    "two points": (BOX[:2],), "texts": ([["a", "b"]] * 3,), "infinite": ([[1e999, 0], [0, 1], [1, 1]],),
    "outside": ([[50, 50], [60, 50], [60, 60]],), "line": (BOX[:2], {"shape_type": "line"}),
    "circle of one point": (BOX[:1], {"shape_type": "circle"}),
    "damaged mask": (BOX, {"shape_type": "mask", "mask": "AAAA"}),
    "label of another type": (BOX, {"label": 5}), "no label": (BOX, {"label": " "}), "points of another type": (5,),
}  # fmt: skip
CONTENTS = {
    "no such image": {"imagePath": "b.png"}, "path that leads out": {"imagePath": "../b.png"},
    "zero byte": {"imagePath": "a\0.png"},
    "another size": {"imageWidth": 25}, "size of another type": {"imageWidth": []},
    "shapes of another type": {"shapes": 7}, "no path": {"imagePath": None},
    "damaged image inside": {"imagePath": "b.png", "imageData": "AAAA"},
    "number inside": {"imagePath": "b.png", "imageData": 5},
}  # fmt: skip
OTHERS = ("archive", "only boxes of VOC", "color of no class", "image cut off", "no such folder")


@pytest.mark.parametrize("name", [*FILES, *XML, *RUNS, *SHAPES, *CONTENTS, *OTHERS])
def test_broken_labels_end_in_one_message_and_write_nothing(tmp_path, run, name):
    code, printed, out = run(*broken(tmp_path, name))
    assert code == 2 and not out.exists() and printed.out == ""
    assert printed.err.startswith(f"error: {tmp_path}")
    assert all(line.startswith("  ") for line in printed.err.splitlines()[1:])  # the formats, where it is none of them


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be", "latin-1"])
def test_a_valid_file_with_a_doctype_is_refused(tmp_path, run, encoding):
    (path,) = cvat(tmp_path, '<box label="&name;" xtl="2" ytl="3" xbr="10" ybr="9"/>')
    text = path.read_text().replace("<annotations>", "<!DOCTYPE a [<!ENTITY name 'car'>]><annotations>")
    path.write_bytes(text.replace("?>", f" encoding='{encoding}'?>", 1).encode(encoding))
    code, printed, _ = run(path)
    assert code == 2 and "DOCTYPE" in printed.err


def test_an_image_that_is_listed_twice(tmp_path, run):
    images = [{"id": key, "file_name": "a.png", "width": WIDTH, "height": HEIGHT} for key in (7, 9)]
    masks_of = [
        {"image_id": one["id"], "category_id": 3, "segmentation": [[2, 3, 10, 3, 10, 9, 2, 9]]} for one in images
    ]
    code, _, out = run(*coco(tmp_path, masks_of, images=images))
    assert code == 1 and left_out(out) == [("a.png", "image of the same name as an earlier one")]


def test_a_good_image_beside_bad_ones(tmp_path, run):
    labels = tmp_path / "labels"
    labelme(labels, "a", ("car", BOX), ("car", [[1, 1], [2, 2]]))
    labelme(labels, "b", ("car", BOX), ("\ud800\x1b", BOX[::-1]), imageHeight=HEIGHT + 1)
    (labels / "c.json").write_text("{")
    (labels / "package.json").write_text("{}")
    code, _, out = run(labels)
    assert (out / "classes.txt").read_text().split() == ["background", r"\ud800\x1b", "car"]
    reasons = dict(left_out(out))
    assert (
        code == 1
        and os.listdir(out / "masks") == ["a.png"]
        and set(reasons) == {f"{one}.json" for one in ("a", "b", "c", "package")}
    )
    assert reasons["b.json"] == "image of another size than its labels state"
    assert reasons["package.json"] == "JSON file that is not LabelMe's"


def test_nothing_is_written_over_and_nothing_half_written(tmp_path, run, monkeypatch):
    labelme(tmp_path / "labels", "a", ("car", BOX))
    (tmp_path / "out").mkdir()
    code, printed, _ = run(tmp_path / "labels")
    assert code == 2 and "exists" in printed.err
    (tmp_path / "out").rmdir()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(import_labels, "write_labels", full)
    code, printed, out = run(tmp_path / "labels")
    assert code == 2 and printed.err == f"error: --out {out}: No space left on device\n" and not out.exists()
    (tmp_path / "out.partial").mkdir()
    assert call_zoo("data", "import", tmp_path / "labels", "--out", out) == 2 and (tmp_path / "out.partial").exists()
