"""Labels of LabelMe, COCO, CVAT and VOC, read into scenes; tools.py has others.

What is invalid or has no area is left out with a reason.
"""

import base64
import math
import os
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, partial
from typing import Any
from xml.etree import ElementTree

import numpy as np

from zoo.data.errors import BadSample, UserError, parsing
from zoo.data.formats import images, regular
from zoo.data.formats.class_names import IGNORED, read_names
from zoo.data.formats.file_names import split_of, unsplit
from zoo.data.formats.lists import read_lines, walk
from zoo.data.importing import shapes, tools
from zoo.data.importing.scenes import (
    Labels,
    LeaveOut,
    Scene,
    below,
    each,
    load_json,
    name_of,
    polygon,
    slashes,
    split_folders,
)
from zoo.data.importing.shapes import CIRCLE, SQUARE, Region, Shape

FORMATS = """\
  LabelMe       a folder of JSON files, one per image, or one such file
  COCO          a JSON file of instances, or of panoptic segments with the folder of their PNG files beside it; or a
                folder with such a file of every split
  CVAT          the XML file of "CVAT for images 1.1"
  Label Studio  its export as JSON or JSON-MIN
  YOLO          a folder with data.yaml, and images/ and labels/ with polygons, also of every split
  VIA           its project, or its annotations as JSON
  Supervisely   a folder with meta.json, and img/ and ann/ of every data set
  VOC           a folder with JPEGImages and SegmentationClass, and perhaps labelmap.txt or class_names.txt"""
BOXES = "holds boxes of VOC, and a box is no mask; VOC's masks are PNG files in SegmentationClass"
ARCHIVES = (".zip", ".tar", ".tgz", ".gz")
VOC_CLASSES = (
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
VOC_MASKS = ("SegmentationClass", "SegmentationClassPNG")  # the latter of older versions of labelme2voc
VOC_BORDER = 0xC0E0E0  # the color (224, 224, 192), as _colors returns it
XML_BYTES, XML_FREE_BYTES, XML_EXPANSION = 256, 128 << 20, 16  # memory of an element; limits as for JSON


def open_labels(path: str, attribute: str | None = None) -> Labels:
    """Find out the format of a file or folder of labels. Raises UserError.

    Args:
        attribute: name of that of VIA's regions which holds the class.
    """
    if not os.path.exists(path):
        raise UserError(f"{path}: no such file or folder; labels are\n{FORMATS}")
    if path.lower().endswith(ARCHIVES):
        raise UserError(f"{path}: an archive; unpack it and name the folder, or the file in it")
    with parsing(f"{path}: cannot be read as labels", "export them anew"):
        if os.path.isdir(path):
            found = _open_folder(path)
        else:
            found = _open_cvat(path) if path.lower().endswith(".xml") else _open_json(path, attribute)
    if found is None:
        raise UserError(f"{path}: holds labels of no format that can be imported; labels are\n{FORMATS}")
    if attribute and attribute != found.attribute:
        raise UserError(f"{path}: only a file of VIA has regions with attributes; leave --attribute out")
    return found


def _open_folder(path: str) -> Labels | None:
    listed = os.listdir(path)
    if "SegmentationClass" in listed:
        return _open_voc(path)
    if "annotations.xml" in listed:
        return _open_cvat(os.path.join(path, "annotations.xml"))
    if "meta.json" in listed and any(os.path.isdir(os.path.join(path, name, "ann")) for name in ("", *listed)):
        return tools.supervisely(path)
    files = [os.path.relpath(os.path.join(folder, name), path) for folder, names in walk(path) for name in names]
    settings = [name for name in listed if name.endswith((".yaml", ".yml"))]
    if settings and any("labels" in file.split(os.sep)[:-1] and file.endswith(".txt") for file in files):
        return tools.yolo(path, settings)
    found = [file for file in files if file.lower().endswith(".json")]
    masks = [file for file in found if os.path.basename(file).startswith(("instances_", "panoptic_"))]
    found = masks or found  # of COCO, which has captions and key points beside them
    if len({unsplit(file) for file in masks}) > 1:
        raise UserError(f"{path}: several kinds of labels, {masks[0]} and {masks[-1]}; name one file")
    if not found and any(file.lower().endswith(".xml") for file in files):
        raise UserError(f"{path}: {BOXES}; labels of CVAT are a file, name that")
    if len(found) > 1 and len({unsplit(file) for file in found}) == 1:
        return _merge(path, found)
    return _labelme(path, found) if len(found) > 1 else _open_json(os.path.join(path, found[0])) if found else None


def _merge(root: str, files: list[str]) -> Labels:
    """Open the files of the splits of one set, whose images get a folder per split."""
    parts = {file: open_labels(os.path.join(root, file)) for file in files}
    folders = {file: split_of(os.path.basename(file)) or os.path.dirname(file) for file in files}
    places, declared = split_folders(folders.values()), [name for part in parts.values() for name in part.declared]

    def scenes(leave_out: LeaveOut) -> Iterator[Scene]:
        for file, labels in parts.items():
            for scene in labels.scenes(leave_out):
                image = below(scene.image)
                source, image = (os.path.join(place, image) for place in (places[folders[file]], folders[file]))
                yield scene._replace(source=source, image=image)

    return Labels(root, scenes, dict.fromkeys(declared))


def _open_json(path: str, attribute: str | None = None) -> Labels | None:
    content, folder = load_json(path), os.path.dirname(path)
    if isinstance(content, list):
        return tools.label_studio(path, content)
    if "shapes" in content:
        return _labelme(folder, [os.path.basename(path)])
    if "images" not in content or "annotations" not in content:
        return tools.via(path, content, attribute)
    names = {one["id"]: name_of(one["name"]) for one in content["categories"]}
    by_image = defaultdict[Any, list[Any]](list)
    for one in content["annotations"]:
        by_image[one["image_id"]].append(one)
    entries = [(slashes(one["file_name"]), (one, by_image.pop(one["id"], []))) for one in content["images"]]
    entries += [(f"image {key}", (None, found)) for key, found in by_image.items()]
    read = partial(_coco_scene, names=names, folder=os.path.splitext(path)[0])
    return Labels(folder, partial(each, entries, read), [names[key] for key in sorted(names)])


def _labelme(folder: str, files: list[str]) -> Labels:
    return Labels(folder, partial(each, [(file, os.path.join(folder, file)) for file in files], _labelme_scene))


def _labelme_scene(source: str, path: str, leave_out: LeaveOut) -> Iterator[Scene]:
    content = load_json(path)
    if not isinstance(content, dict) or "shapes" not in content:
        raise BadSample("JSON file that is not LabelMe's")
    found = list(each([(source, one) for one in content["shapes"]], _labelme_shape, leave_out))
    image = os.path.join(os.path.dirname(source), slashes(content["imagePath"]))
    yield Scene(source, image, (content.get("imageWidth"), content.get("imageHeight")), found, content.get("imageData"))


def _labelme_shape(source: str, entry: Any, leave_out: LeaveOut) -> Iterator[Shape]:
    label, kind, points = (
        name_of(entry["label"]),
        entry.get("shape_type") or "polygon",
        shapes.as_points(entry["points"]),
    )
    if kind == "mask":
        yield Shape(label, partial(_png_region, entry["mask"], points))
    elif kind == "circle":
        radius = math.dist(*points)
        yield polygon(label, shapes.outline(CIRCLE, np.stack([points[0] - radius, points[0] + radius])))
    elif kind == "rectangle" and len(points) == 2:
        yield polygon(label, shapes.outline(SQUARE, points))
    elif kind in ("polygon", "oriented_rectangle", "rectangle"):
        yield polygon(label, points)
    else:
        raise BadSample(f"{kind}, which has no area")


def _png_region(text: str, corners: np.ndarray, height: int, width: int) -> Region:
    """Decode the mask of a box."""
    left, top = corners.min(axis=0).astype(int).tolist()
    return Region(top, left, images.decode_stored(images.parse(base64.b64decode(text))).any(axis=2))


def _coco_scene(source: str, pair: Any, leave_out: LeaveOut, names: dict[Any, str], folder: str) -> Iterator[Scene]:
    entry, annotations = pair
    if entry is None:
        raise BadSample(f"image that is not listed, but has annotations: {len(annotations)}")
    read = partial(_coco_shape, names=names, folder=folder)
    found = list(each([(source, one) for one in annotations], read, leave_out))
    yield Scene(source, source, (entry["width"], entry["height"]), found)


def _coco_shape(source: str, one: Any, leave_out: LeaveOut, names: dict[Any, str], folder: str) -> Iterator[Shape]:
    if "segments_info" in one:
        parent = folder if os.path.isdir(folder) else os.path.dirname(folder)
        map_of_ids = cache(partial(_colors, os.path.join(parent, below(slashes(one["file_name"])))))
        for segment in one["segments_info"]:
            label = name_of(names.get(segment["category_id"]))
            yield Shape(label, partial(shapes.of_value, map_of_ids, segment["id"]))
        return
    label, mask = name_of(names.get(one["category_id"])), one.get("segmentation")
    if not mask:
        raise BadSample("box without a mask")
    is_crowd, area = one.get("iscrowd"), one.get("area")
    if isinstance(mask, dict):
        area = sum(shapes.lengths_of(mask["counts"])[1::2]) if area is None else area
        order = -math.inf if is_crowd else -float(area)
        yield Shape(label, partial(shapes.coco_runs, mask["counts"], mask["size"]), order)
    else:
        parts = [shapes.as_points(part) for part in mask]
        order = -math.inf if is_crowd else -float(sum(map(shapes.area, parts)) if area is None else area)
        yield from (polygon(label, part, order) for part in parts)


def _open_cvat(path: str) -> Labels | None:
    root = _parse_xml(regular.read(path))
    if root.tag == "annotation":
        raise UserError(f"{path}: {BOXES}")
    if root.find("track") is not None:
        raise UserError(f'{path}: holds tracks of a video; export the labels as "CVAT for images 1.1"')
    listed = root.findall("image")
    places = {**split_folders(map(_subset, listed)), "default": ""}
    entries = [(os.path.join(places[_subset(one)], slashes(one.attrib["name"])), one) for one in listed]
    names = dict.fromkeys(name_of(one.text) for one in root.findall("meta//labels/label/name"))
    if not entries:
        return None
    return Labels(os.path.dirname(path), partial(each, entries, _cvat_scene), names)


def _subset(entry: ElementTree.Element) -> str:
    """Return the subset of an image, whose name is that of a folder in exports of projects."""
    name = entry.attrib.get("subset")
    return slashes(name) if name else ""


def _cvat_scene(source: str, entry: ElementTree.Element, leave_out: LeaveOut) -> Iterator[Scene]:
    found = list(each([(source, one) for one in entry], _cvat_shape, leave_out))
    image = os.path.join(_subset(entry), slashes(entry.attrib["name"]))
    yield Scene(source, image, (int(entry.attrib["width"]), int(entry.attrib["height"])), found)


def _cvat_shape(source: str, entry: ElementTree.Element, leave_out: LeaveOut) -> Iterator[Shape]:
    def numbers(keys: str) -> np.ndarray:
        return shapes.as_points([given[key] for key in keys.split()])

    given = entry.attrib
    label, order, degrees = name_of(given["label"]), float(given.get("z_order", 0)), float(given.get("rotation", 0))
    if entry.tag == "polygon":
        yield polygon(label, shapes.as_points([pair.split(",") for pair in given["points"].split(";")]), order)
    elif entry.tag == "box":
        yield polygon(label, shapes.outline(SQUARE, numbers("xtl ytl xbr ybr"), degrees), order)
    elif entry.tag == "ellipse":
        center, radii = numbers("cx cy rx ry")
        yield polygon(label, shapes.outline(CIRCLE, np.stack([center - radii, center + radii]), degrees), order)
    elif entry.tag == "mask":
        left, top, width, height = numbers("left top width height").astype(int).ravel().tolist()
        counts = np.array(given["rle"].split(","), np.int64)
        yield Shape(label, lambda *_: Region(top, left, shapes.runs(counts, (height, width))), order)
    else:
        raise BadSample(f"{entry.tag}, which has no area")


def _parse_xml(content: bytes) -> ElementTree.Element:
    """Parse XML without a DOCTYPE, whose entities may expand to any length. Raises BadSample and SyntaxError.

    Zero bytes would be those of UTF-16, in which a DOCTYPE has other bytes.
    """
    if b"<!DOCTYPE" in content or b"\0" in content:
        raise BadSample("it has a DOCTYPE, which labels do not need, or zero bytes: UTF-16 should be saved as UTF-8")
    size = len(content) * 4 + (content.count(b"<") - content.count(b"</")) * XML_BYTES
    if size > max(XML_FREE_BYTES, XML_EXPANSION * len(content)):
        raise BadSample("it would take more memory than a file of its size should")
    return ElementTree.fromstring(content)


def _open_voc(path: str) -> Labels:
    label_map, list_of_names = (os.path.join(path, name) for name in ("labelmap.txt", "class_names.txt"))
    if os.path.isfile(label_map):
        rows = [line.split(":") for line in read_lines(label_map, "the label map").values() if line[0] != "#"]
        colors = {
            _packed([int(level) for level in row[1].split(",")]) if row[1] else _voc_color(value): name_of(row[0])
            for value, row in enumerate(rows)
        }
    else:
        names = read_names(list_of_names) if os.path.isfile(list_of_names) else VOC_CLASSES
        colors = {_voc_color(value): name for value, name in enumerate(names)}
    found: dict[str, str] = {}
    for masks in VOC_MASKS:
        if not found:
            paths = [os.path.join(folder, name) for folder, names in walk(os.path.join(path, masks)) for name in names]
            found = {os.path.relpath(each, os.path.join(path, masks)): each for each in paths if each.endswith(".png")}
    read = partial(_voc_scene, colors={VOC_BORDER: IGNORED, **colors})
    return Labels(os.path.join(path, "JPEGImages"), partial(each, list(found.items()), read), colors.values())


def _voc_scene(source: str, path: str, leave_out: LeaveOut, colors: dict[int, str]) -> Iterator[Scene]:
    ids = _colors(path)
    (height, width), used = ids.shape, np.unique(ids).tolist()
    for one in used:
        if one not in colors:
            raise BadSample(f"mask with the color {one & 255},{one >> 8 & 255},{one >> 16}, which is no class")
    found = [Shape(colors[one], partial(shapes.of_value, lambda: ids, one)) for one in used]
    yield Scene(source, source.removesuffix(".png"), (width, height), found)  # an image with any extension


def _voc_color(value: int) -> int:
    """Return the color of a value in VOC's palette: its bits in turn, from the highest of red, green and blue down."""
    bits = [(value >> bit & 1) << 7 - bit // 3 for bit in range(8)]
    return _packed([sum(bits[color::3]) for color in range(3)])


def _packed(color: list[int]) -> int:
    red, green, blue = color
    return red | green << 8 | blue << 16


def _colors(path: str) -> np.ndarray:
    """Read the colors of a PNG as numbers, red + 256 green + 65536 blue: int32 (H, W). Raises BadSample."""
    red, green, blue = np.moveaxis(images.decode_stored(images.read(path)).astype(np.int32), -1, 0)
    return red | green << 8 | blue << 16
