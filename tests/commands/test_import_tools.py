"""`zoo data import` of Label Studio, YOLO, VIA and Supervisely.

Strokes are those that label_studio_sdk 2.1.2 packs (converter.brush.mask2rle), the bitmap that of the example of
sly.Bitmap.base64_2_data in supervisely 6.74.51.
"""

import json

import numpy as np
import pytest

from tests.commands.test_import_labels import BOX, HEIGHT, WIDTH, box_mask, labelme, left_out, mask_of, picture
from tests.helpers.cli import call_zoo
from zoo.data.errors import BadSample
from zoo.data.importing import tools
from zoo.data.importing.labels import open_labels

STROKES = [0, 0, 0, 24, 57, 27, 252, 96, 17, 255, 219, 0, 143, 252]  # of a picture of 3 x 2: column 1, then 2
BITMAP = (
    "eJzrDPBz5+WS4mJgYOD19HAJAtLMIMwIInOeqf8BUmwBPiGuQPr///9Lb86/C2QxlgT5BTM4PLuRBuTwebo4hlTMSa44sKHhISMDuxpTYrr03F6g"
    "DIOnq5/LOqeEJgDM5ht6"
)  # of 3 x 3, all but the middle
PERCENT = np.array([100 / WIDTH, 100 / HEIGHT])


def studio(value, kind, label="car", size=(WIDTH, HEIGHT), **others):
    value = {**value, kind: [label]}
    return {"value": value, "type": kind, "original_width": size[0], "original_height": size[1], **others}


BOX_IN_PERCENT = {"points": (np.array(BOX) * PERCENT).tolist(), "closed": True}


def imported(tmp_path, labels, *words):
    code = call_zoo("data", "import", labels, "--out", tmp_path / "out", *words)
    return code, {reason for _, reason in left_out(tmp_path / "out")}


def test_label_studio(tmp_path, capsys):
    picture(tmp_path / "a" / "1.png")
    picture(tmp_path / "a" / "tiny%41.png", (3, 2))
    rectangle = {"x": 10, "y": 10, "width": 20, "height": 20, "rotation": 0}
    others = [
        studio(rectangle, "rectanglelabels"),
        studio({"x": 10, "y": 10, "width": 0.3}, "keypointlabels"),
        studio({**BOX_IN_PERCENT, "closed": False}, "polygonlabels"),
        studio(BOX_IN_PERCENT, "polygonlabels", image_rotation=90),
    ]
    ellipse = {"x": 50, "y": 50, "radiusX": 25, "radiusY": 37.5, "rotation": 0}
    tasks = [
        {
            "id": 1,
            "data": {"image": "/data/upload/3/1.png", "text": "x.png y"},
            "annotations": [
                {"result": [studio(BOX_IN_PERCENT, "polygonlabels"), *others]},
                {"result": []},
                {"result": [], "was_cancelled": True},
            ],
        },
        {
            "id": 2,
            "data": {"image": "/data/local-files/?d=photos%5Ctiny%2541.png"},
            "annotations": [{"result": [studio({"format": "rle", "rle": STROKES}, "brushlabels", "dog", (3, 2))]}],
        },
        {"id": 3, "data": {"text": "nothing"}, "annotations": [{"result": []}]},
    ]
    (tmp_path / "a" / "project.json").write_text(json.dumps(tasks))
    code, reasons = imported(tmp_path, tmp_path / "a" / "project.json")
    assert code == 1
    of_shapes = {tools.BOX, "point or line, which has no area", "polygon that is not closed"}
    of_shapes |= {"image that is turned in Label Studio"}
    assert reasons == of_shapes | {"labels of other annotators: 1", "task 3, which has no image"}
    out = tmp_path / "out"
    assert (out / "classes.txt").read_text() == "background\ncar\ndog\n"
    assert (mask_of(out, "data/upload/3/1") == box_mask(1)).all()
    assert (mask_of(out, "photos/tiny%41") == [[0, 2, 0], [0, 0, 2]]).all()
    short = [
        {
            "image": "s3://bucket/1.png",
            "label": [studio(ellipse, "ellipselabels")["value"] | {"original_width": WIDTH, "original_height": HEIGHT}],
            "id": 7,
        }
    ]
    (tmp_path / "a" / "short.json").write_text(json.dumps(short))
    (scene,) = open_labels(str(tmp_path / "a" / "short.json")).scenes(lambda *_: None)
    _, _, inside = scene.shapes[0].draw(HEIGHT, WIDTH)
    assert scene.image == "1.png" and inside.shape == (12, 12) and abs(inside.sum() - np.pi * 36) < 3


@pytest.mark.parametrize(
    "packed", [STROKES[:8], STROKES[:3], [*STROKES[:4], 255, *STROKES[5:]], [0, 0, 0, 25, *STROKES[4:]]]
)
def test_strokes_that_are_damaged(packed):
    with pytest.raises(BadSample, match="strokes of a brush"):
        tools.unpack(bytes(packed), 24)


def test_yolo_with_the_splits_of_roboflow(tmp_path):
    for split, name in (("train", "a"), ("train", "empty"), ("valid", "b")):
        picture(tmp_path / "set" / split / "images" / f"{name}.png")
        (tmp_path / "set" / split / "labels").mkdir(exist_ok=True)
    corners = ([*BOX], [(4, 4), (6, 4), (6, 6), (4, 6)])
    points, small = (" ".join(f"{x / WIDTH:.9f} {y / HEIGHT:.9f}" for x, y in each) for each in corners)
    (tmp_path / "set/train/labels/a.txt").write_text(
        f"0 {small}\n1 {points}\n0 0.5 0.5 0.2 0.2\n7 {points}\n1 0.1 oops 0.2 0.3 0.4 0.5\n"
    )
    (tmp_path / "set/valid/labels/b.txt").write_text(f"0 {points}\n")
    (tmp_path / "set/valid/labels/lost.txt").write_text(f"0 {points}\n")
    (tmp_path / "set/valid/labels/classes.txt").write_text("cat\ndog\n")  # of LabelImg
    (tmp_path / "set/data.yaml").write_text("train: ../train/images\nnc: 2\nnames: ['cat', 'dog']\n")
    (tmp_path / "set/args.yaml").write_text("epochs: 3\n")
    code, reasons = imported(tmp_path, tmp_path / "set")
    assert code == 1 and tools.BOX in reasons and "class 7, which the YAML file does not name" in reasons
    assert {"image without any label", "labels without an image"} < reasons and len(reasons) == 5
    expected = box_mask(2)
    expected[4:6, 4:6] = 1  # the smaller one lies above
    assert (mask_of(tmp_path / "out", "train/a") == expected).all()
    assert (mask_of(tmp_path / "out", "val/b") == box_mask(1)).all()
    labelme(tmp_path / "labelme", "x", ("car", BOX))
    (tmp_path / "labelme/settings.yaml").write_text("a: 1\n")  # a YAML file alone makes no set of YOLO
    assert next(open_labels(str(tmp_path / "labelme")).scenes(lambda *_: None)).source == "x.json"
    for text in ("names: {0: cat, 1: [a]}\n", "names: [cat]\nkpt_shape: [17, 3]\n"):
        (tmp_path / "set/data.yaml").write_text(text)
        assert call_zoo("data", "import", tmp_path / "set", "--out", tmp_path / "other") == 2


def test_via(tmp_path):
    picture(tmp_path / "a" / "1.png")
    xs, ys = map(list, zip(*BOX))
    regions = {
        "0": {
            "shape_attributes": {"name": "polygon", "all_points_x": xs, "all_points_y": ys},
            "region_attributes": {"n": "", "k": "car"},
        },
        "1": {
            "shape_attributes": {"name": "rect", "x": 1, "y": 1, "width": 2, "height": 2},
            "region_attributes": {"k": "car"},
        },
        "2": {
            "shape_attributes": {"name": "circle", "cx": 18, "cy": 8, "r": 4},
            "region_attributes": {"k": {"tree": True}},
        },
        "3": {"shape_attributes": {"name": "point", "cx": 1, "cy": 1}, "region_attributes": {"k": "car"}},
    }
    content = {"1.png99": {"filename": "1.png", "size": 99, "regions": regions, "file_attributes": {}}}
    (tmp_path / "a" / "via.json").write_text(json.dumps({"_via_settings": {}, "_via_img_metadata": content}))
    code, reasons = imported(tmp_path, tmp_path / "a" / "via.json")
    assert code == 1 and reasons == {tools.BOX, "point, which has no area"}
    mask = mask_of(tmp_path / "out", "1")
    assert (mask[:, :12] == box_mask(1)[:, :12]).all() and abs((mask == 2).sum() - np.pi * 16) < 3
    (tmp_path / "a" / "via.json").write_text(json.dumps(content))
    assert len(list(open_labels(str(tmp_path / "a" / "via.json")).scenes(lambda *_: None))) == 1


def test_the_attribute_of_via_that_holds_the_class(tmp_path, capsys):
    picture(tmp_path / "a" / "1.png")
    shape = {"name": "polygon", "all_points_x": [x for x, _ in BOX], "all_points_y": [y for _, y in BOX]}
    labels = tmp_path / "a" / "via.json"

    def write(attributes):
        region = {"shape_attributes": shape, "region_attributes": attributes}
        labels.write_text(json.dumps({"1": {"filename": "1.png", "regions": [region]}}))

    write({"hidden": "no", "kind": "car"})
    assert call_zoo("data", "import", labels, "--out", tmp_path / "out") == 2
    assert "attributes hidden, kind; name that of the class: --attribute" in capsys.readouterr().err
    assert call_zoo("data", "import", labels, "--out", tmp_path / "out", "--attribute", "kint") == 2
    assert "no region has the attribute kint; did you mean kind?" in capsys.readouterr().err
    assert imported(tmp_path, labels, "--attribute", "kind") == (0, set())
    assert (tmp_path / "out/classes.txt").read_text() == "background\ncar\n"
    (tmp_path / "out").rename(tmp_path / "first")
    write({})
    assert imported(tmp_path, labels) == (0, set())
    assert (tmp_path / "out/classes.txt").read_text() == "background\nobject\n"
    labelme(tmp_path / "labelme", "x", ("car", BOX))
    assert call_zoo("data", "import", tmp_path / "labelme", "--out", tmp_path / "o", "--attribute", "kind") == 2


def test_a_task_with_two_images(tmp_path, capsys):
    result = [studio(BOX_IN_PERCENT, "polygonlabels", to_name="second")]
    images = {"one": "https://a.org/1.png", "two": "https://a.org/2.png"}
    (tmp_path / "p.json").write_text(json.dumps([{"id": 4, "data": images, "annotations": [{"result": result}]}]))
    assert call_zoo("data", "import", tmp_path / "p.json", "--out", tmp_path / "out") == 2
    assert "task 4, which has several images" in capsys.readouterr().err


def test_supervisely(tmp_path):
    root = tmp_path / "project"
    picture(root / "ds" / "img" / "1.png")
    (root / "ds" / "ann").mkdir()
    (root / "meta.json").write_text(json.dumps({"classes": [{"title": "tree"}, {"title": "car"}, {"title": "none"}]}))
    hole = [[4, 5], [8, 5], [8, 7], [4, 7]]
    objects = [
        {"classTitle": "car", "geometryType": "polygon", "points": {"exterior": BOX, "interior": [hole]}},
        {"classTitle": "tree", "geometryType": "bitmap", "bitmap": {"data": BITMAP, "origin": [20, 12]}},
        {"classTitle": "car", "geometryType": "rectangle", "points": {"exterior": [[1, 1], [2, 2]], "interior": []}},
        {"classTitle": "car", "geometryType": "line", "points": {"exterior": [[1, 1], [2, 2]], "interior": []}},
    ]
    content = {"size": {"width": WIDTH, "height": HEIGHT}, "objects": objects}
    (root / "ds" / "ann" / "1.png.json").write_text(json.dumps(content))
    code, reasons = imported(tmp_path, root)
    assert code == 1 and reasons == {tools.BOX, "line, which has no area"}
    assert (tmp_path / "out" / "classes.txt").read_text() == "background\ntree\ncar\n"
    expected = box_mask(2)
    expected[5:7, 4:8] = 0
    expected[12:15, 20:23] = 1
    expected[13, 21] = 0
    assert (mask_of(tmp_path / "out", "ds/1") == expected).all()
