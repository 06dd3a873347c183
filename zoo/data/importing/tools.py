"""Labels of Label Studio, YOLO's segmentation (also of Roboflow), VIA and Supervisely, read into scenes."""

import base64
import math
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import yaml

from zoo.data.errors import BadSample, UserError, similar_name
from zoo.data.formats import headers, images, regular
from zoo.data.formats.lists import walk
from zoo.data.importing import shapes
from zoo.data.importing.scenes import (
    Labels,
    LeaveOut,
    Scene,
    each,
    load_json,
    name_of,
    polygon,
    slashes,
    split_folders,
)
from zoo.data.importing.shapes import CIRCLE, Region, Shape

BOX = "box without a mask"
OBJECT = "object"  # class of regions of VIA that state none
MAX_SETTINGS = 1 << 20  # bytes of the file that names YOLO's classes
MAX_PACKED = 1 << 26  # bytes of a bitmap of Supervisely, unpacked


# Label Studio: tasks with annotations, whose shapes are in percent of the image


def label_studio(path: str, tasks: list[Any]) -> Labels | None:
    """Open an export as JSON, or as JSON-MIN."""
    entries = [(", ".join(_images_of(task)), task) for task in tasks if isinstance(task, dict)]
    if not entries or not any(_results(task) for _, task in entries):
        return None
    return Labels(os.path.dirname(path), partial(each, entries, _task))


def _images_of(task: Mapping[str, Any]) -> list[str]:
    """Return the paths of the images of a task: of an address that behind its host, of a local file that in `d`."""
    data = task.get("data", task)
    texts = [value for key, value in data.items() if key != "file_upload" and isinstance(value, str)]
    named = [text for text in texts if urlsplit(text).path.lower().endswith((*images.EXTENSIONS, "local-files/"))]
    parts = [urlsplit(text) for text in named or [text for text in texts if "://" in text]]
    paths = [parse_qs(each.query).get("d", [unquote(each.path)])[0] for each in parts]
    return [slashes(path).lstrip("/") for path in paths if path]


def _results(task: Mapping[str, Any]) -> list[list[Any]]:
    """Return the shapes of each annotator of a task."""
    if "annotations" in task or "completions" in task:
        done = task.get("annotations", task.get("completions"))
        return [one["result"] for one in done if not one.get("was_cancelled")]
    shapes_of = [value for value in task.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
    return [[{**one, "value": one} for found in shapes_of for one in found]] if shapes_of else []


def _task(source: str, task: Mapping[str, Any], leave_out: LeaveOut) -> Iterator[Scene]:
    results = _results(task)
    if not source:
        raise BadSample(f"task {task.get('id')}, which has no image")
    if len(_images_of(task)) > 1:
        raise BadSample(f"task {task.get('id')}, which has several images")
    if len(results) > 1:
        leave_out(source, f"labels of other annotators: {len(results) - 1}")
    listed = [one for one in results[0] if "original_width" in one] if results else []
    found = list(each([(source, one) for one in listed], _task_shape, leave_out))
    size = (listed[0]["original_width"], listed[0]["original_height"]) if listed else (None, None)
    yield Scene(source, source, size, found)


def _task_shape(source: str, one: Mapping[str, Any], leave_out: LeaveOut) -> Iterator[Shape]:
    value, size = one["value"], np.array([one["original_width"], one["original_height"]], np.float64)
    if one.get("image_rotation"):
        raise BadSample("image that is turned in Label Studio")
    label = name_of(next((value[key][0] for key in value if key.endswith("labels") and value[key]), None))
    if "points" in value:
        if value.get("closed") is False:
            raise BadSample("polygon that is not closed")
        yield polygon(label, shapes.as_points(value["points"]) * size / 100)
    elif "rle" in value:
        yield Shape(label, partial(_brush, value["rle"]))
    elif "radiusX" in value:
        center, radii = (np.array([value[a], value[b]]) * size / 100 for a, b in (("x", "y"), ("radiusX", "radiusY")))
        corners = shapes.as_points([center - radii, center + radii])
        yield polygon(label, shapes.outline(CIRCLE, corners, value.get("rotation", 0)))
    elif "imageDataURL" in value:
        content = base64.b64decode(value["imageDataURL"].partition(",")[2])
        yield Shape(label, lambda *_: Region(0, 0, _opaque(content)))
    else:
        raise BadSample(BOX if "height" in value else "point or line, which has no area")


def _brush(packed: list[int], height: int, width: int) -> Region:
    """Decode the strokes of a brush: those pixels that are not transparent. Raises BadSample."""
    values = unpack(bytes(packed), 4 * height * width)
    return Region(0, 0, values.reshape(height, width, 4)[:, :, 3] > 0)


def unpack(packed: bytes, count: int) -> np.ndarray:
    """Decode runs of values of thi.ng's rle-pack, uint8 (count,). Raises BadSample.

    A header: the number of values in 32 bits, the bits of a value less 1 in 5, four lengths of counts, each less 1 in 4
    bits. A run: a bit, 1 for one value that is repeated, 0 for different ones; the number of the length of its count in
    2 bits, the count less 1, and the value or values.
    """
    at = 0

    def read(size: int) -> int:
        nonlocal at
        at += size
        if at > 8 * len(packed):
            raise BadSample("strokes of a brush that are damaged")
        window = packed[(at - size) // 8 : -(-at // 8)]
        return int.from_bytes(window) >> -at % 8 & (1 << size) - 1

    if read(32) != count:
        raise BadSample("strokes of a brush of another size than their image")
    word, lengths = read(5) + 1, [read(4) + 1 for _ in range(4)]
    if word != 8:
        raise BadSample("strokes of a brush of other values than bytes")
    found = bytearray()
    while len(found) < count:
        is_run, number = read(1), 0
        number = read(lengths[read(2)]) + 1
        found += bytes([read(word)]) * number if is_run else bytes(read(word) for _ in range(number))
    if len(found) != count:
        raise BadSample("strokes of a brush that are damaged")
    return np.frombuffer(bytes(found), np.uint8)


def _opaque(content: bytes) -> np.ndarray:
    """Return where a PNG file is not transparent; of one without transparency, where it is not black."""
    images.parse(content)  # refuses what is too large
    pixels = np.asarray(headers.open_header(content).convert("RGBA"))
    alpha = pixels[:, :, 3]
    return alpha > 0 if alpha.min() == 0 else pixels[:, :, :3].any(axis=2)


# YOLO: a text file per image, of lines `class x y x y ...`, as parts of the image's sides


def yolo(root: str, settings: Sequence[str]) -> Labels:
    """Open a folder with images/ and labels/, or the two of each split.

    Args:
        settings: YAML files, of which one names the classes.
    """
    names_first = sorted(settings, key=lambda name: not name.startswith("data."))
    read = (yaml.safe_load(regular.read(os.path.join(root, name), limit=MAX_SETTINGS)) for name in names_first)
    content = next((each for each in read if isinstance(each, dict) and "names" in each), {})
    if "kpt_shape" in content:
        raise UserError(f"{root}: holds key points of YOLO, which have no area; export polygons")
    names = content["names"]
    numbered = dict(enumerate(names)) if isinstance(names, list) else names
    declared = {int(n): name_of(name if isinstance(name, str) else str(int(name))) for n, name in numbered.items()}
    pictures, texts = (_files_in(root, *which) for which in (("images", images.EXTENSIONS), ("labels", (".txt",))))
    places, labels = split_folders(os.path.dirname(name) for name in pictures), {_stem(name): name for name in texts}
    entries: list[tuple[str, tuple[str | None, str | None]]] = []
    for name, path in pictures.items():
        source = os.path.join(places[os.path.dirname(name)], os.path.basename(name))
        entries.append((source, (path, texts.get(labels.pop(_stem(name), "")))))
    entries += [(name, (None, texts[name])) for name in labels.values() if os.path.basename(name) != "classes.txt"]
    return Labels(root, partial(each, entries, partial(_yolo_scene, names=declared, root=root)), declared.values())


def _files_in(root: str, kind: str, extensions: tuple[str, ...]) -> dict[str, str]:
    """Return the files in folders of a name, by their paths without this name."""
    found: dict[str, str] = {}
    for folder, files in walk(root):
        parts = os.path.relpath(folder, root).split(os.sep)
        if kind in parts:
            del parts[len(parts) - 1 - parts[::-1].index(kind)]
            found |= {
                os.path.join(*parts, file): os.path.join(folder, file)
                for file in files
                if file.lower().endswith(extensions)
            }
    return found


def _stem(file: str) -> str:
    return os.path.splitext(file)[0]


def _yolo_scene(
    source: str, paths: tuple[str | None, str | None], leave_out: LeaveOut, names: dict[int, str], root: str
) -> Iterator[Scene]:
    image, labels = paths
    if image is None:
        raise BadSample("labels without an image")
    text = regular.read(labels).decode() if labels else ""  # an image without a file has no objects
    lines = [(source, line.split()) for line in text.splitlines() if line.strip()]
    found = list(each(lines, partial(_yolo_shape, names=names), leave_out))
    yield Scene(source, os.path.relpath(image, root), (None, None), found)


def _yolo_shape(source: str, words: list[str], leave_out: LeaveOut, names: dict[int, str]) -> Iterator[Shape]:
    number = int(words[0])
    if number not in names:
        raise BadSample(f"class {number}, which the YAML file does not name")
    if len(words) <= 6:  # with a confidence behind it
        raise BadSample(BOX)
    points = shapes.as_points(words[1:])
    order = -shapes.area(points)
    yield Shape(names[number], lambda height, width: shapes.polygon(points * (width, height), height, width), order)


# VIA, the VGG Image Annotator


def via(path: str, content: Mapping[str, Any], attribute: str | None) -> Labels | None:
    """Open a project, or its annotations as JSON.

    Args:
        attribute: that holds the class; None: the only one. Regions without any are of class OBJECT.
    """
    files = content.get("_via_img_metadata", content)
    entries = [(slashes(one["filename"]), one) for one in files.values() if isinstance(one, dict) and "regions" in one]
    if not entries:
        return None
    filled = sorted({key for _, entry in entries for one in _regions(entry) for key in _choices(one)})
    if attribute is None and len(filled) > 1:
        raise UserError(f"{path}: regions have the attributes {', '.join(filled)}; name that of the class: --attribute")
    if attribute is not None and attribute not in filled:
        raise UserError(f"{path}: no region has the attribute {attribute}{similar_name(attribute, filled)}")
    attribute = attribute or next(iter(filled), None)
    scenes = partial(each, entries, partial(_via_scene, attribute=attribute))
    return Labels(os.path.dirname(path), scenes, attribute=attribute)


def _regions(entry: Mapping[str, Any]) -> list[Any]:
    regions = entry["regions"]
    return list(regions.values()) if isinstance(regions, dict) else regions


def _choices(region: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes of a region that are filled; of check boxes, the first that is checked."""
    attributes = region.get("region_attributes", {}).items()
    chosen = {
        key: next((name for name, on in value.items() if on), "") if isinstance(value, dict) else value
        for key, value in attributes
    }
    return {key: value for key, value in chosen.items() if value}


def _via_scene(source: str, entry: Mapping[str, Any], leave_out: LeaveOut, attribute: str | None) -> Iterator[Scene]:
    found = each([(source, one) for one in _regions(entry)], partial(_via_shape, attribute=attribute), leave_out)
    yield Scene(source, source, (None, None), list(found))


def _via_shape(source: str, one: Mapping[str, Any], leave_out: LeaveOut, attribute: str | None) -> Iterator[Shape]:
    given = one["shape_attributes"]
    label = name_of(_choices(one).get(attribute) if attribute else OBJECT)
    kind, size = given["name"], [given.get(key, given.get("r")) for key in ("rx", "ry")]
    if kind == "polygon":
        yield polygon(label, shapes.as_points(np.stack([given["all_points_x"], given["all_points_y"]], axis=1)))
    elif kind in ("circle", "ellipse"):
        center, radii = shapes.as_points([given["cx"], given["cy"], *size])
        corners = shapes.as_points([center - radii, center + radii])
        yield polygon(label, shapes.outline(CIRCLE, corners, math.degrees(given.get("theta", 0))))
    else:
        raise BadSample(BOX if kind == "rect" else f"{kind}, which has no area")


# Supervisely: a folder with meta.json, in which every data set has img/ and ann/


def supervisely(root: str) -> Labels:
    """Open a project as it is downloaded."""
    declared = [name_of(one["title"]) for one in load_json(os.path.join(root, "meta.json"))["classes"]]
    found: dict[str, list[str]] = {}
    for folder, files in walk(root):
        if os.path.basename(folder) == "ann":
            parent = os.path.relpath(os.path.dirname(folder), root)
            found[parent] = [file.removesuffix(".json") for file in files if file.endswith(".json")]
    entries = [
        (os.path.join("" if parent == "." else place, name), os.path.join(root, parent, "ann", f"{name}.json"))
        for parent, place in split_folders(found).items()
        for name in found[parent]
    ]
    return Labels(root, partial(each, entries, partial(_supervisely_scene, root=root)), declared)


def _supervisely_scene(source: str, path: str, leave_out: LeaveOut, root: str) -> Iterator[Scene]:
    content = load_json(path)
    size = content["size"]["width"], content["size"]["height"]
    found = list(each([(source, one) for one in content["objects"]], _supervisely_shape, leave_out))
    image = os.path.join(os.path.dirname(os.path.dirname(path)), "img", os.path.basename(path)[:-5])
    yield Scene(source, os.path.relpath(image, root), size, found)


def _supervisely_shape(source: str, one: Mapping[str, Any], leave_out: LeaveOut) -> Iterator[Shape]:
    label, kind = name_of(one["classTitle"]), one["geometryType"]
    if kind == "polygon":
        outer, *holes = map(shapes.as_points, (one["points"]["exterior"], *one["points"]["interior"]))
        yield Shape(label, partial(_with_holes, outer, holes))
    elif kind == "bitmap":
        packed, (left, top) = base64.b64decode(one["bitmap"]["data"]), one["bitmap"]["origin"]
        content = zlib.decompressobj().decompress(packed, MAX_PACKED)
        yield Shape(label, lambda *_: Region(int(top), int(left), _opaque(content)))
    else:
        raise BadSample(BOX if kind == "rectangle" else f"{kind}, which has no area")


def _with_holes(outer: np.ndarray, holes: list[np.ndarray], height: int, width: int) -> Region:
    inside = np.zeros((height, width), bool)
    for number, points in enumerate((outer, *holes)):
        top, left, part = shapes.polygon(points, height, width)
        inside[top : top + part.shape[0], left : left + part.shape[1]][part] = number == 0
    return Region(0, 0, inside)
