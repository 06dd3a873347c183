"""Turn labels of labeling programs into images with masks, which train at once.

The labels stay as they are. What cannot become pixels of a mask is left out and named.
"""

import argparse
import base64
import math
import os
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from zoo import program
from zoo.commands.new_file import new_folder, write_new
from zoo.data import audit
from zoo.data.batch import IGNORE_INDEX
from zoo.data.datasets import cityscapes
from zoo.data.errors import BadSample, UserError, parsing, printable
from zoo.data.extras import cv2
from zoo.data.formats import images, masks, regular
from zoo.data.importing.labels import FORMATS, IGNORED, Labels, LeaveOut, Scene, below, open_labels
from zoo.data.importing.pictures import find_images
from zoo.data.importing.shapes import paint
from zoo.finetune.folder import HELD_OUT
from zoo.predict.overlay import write_labels
from zoo.table import csv_text, table

EPILOG = f"""\
labels
{FORMATS}

examples
  %(prog)s labels --out scenes                               LabelMe's files beside their images
  %(prog)s instances.json --images photos --out scenes       labels of COCO, images elsewhere
  %(prog)s annotations.xml --out scenes --classes road,car   labels of CVAT, two of their classes
  %(prog)s project-1.json --images upload --out scenes       Label Studio's export as JSON

Exit codes: 0 done, 1 done, but something was left out (left_out.csv lists it), 2 an error to fix on your side."""
BACKGROUND = "background"
MEANINGS = {"_background_": BACKGROUND, "ignore": IGNORED, "void": IGNORED}  # of labels
LEFT_OUT, MAX_REASONS = "left_out.csv", 20
PROGRESS = 1000  # images from line to line
JPEG_QUALITY = 95  # of images that are turned, as LabelMe has it


def main(argv: list[str]) -> int:
    """Run the command line and return the exit code."""
    arguments = parser().parse_args(argv)
    left_out: list[dict[str, str]] = []
    with new_folder(arguments.out, "--out") as folder:
        labels = open_labels(arguments.labels, arguments.attribute)
        stated, found = survey(labels, arguments.labels)
        values, classes = number_classes(labels.declared, found, arguments)
        files = find_images(stated, arguments.images or labels.folder)

        def leave_out(source: str, reason: str) -> None:
            left_out.append({"source": printable(source), "reason": printable(reason)})

        pixels = write_scenes(labels, files, values, masks.class_colors(classes), arguments, folder, leave_out)
        if not pixels:
            raise UserError(f"{arguments.labels}: no image can be imported; {': '.join(left_out[0].values())}")
        write_new("".join(f"{name}\n" for name in classes), os.path.join(folder, "classes.txt"), "--out")
        write_new(csv_text(left_out, ("source", "reason")), os.path.join(folder, LEFT_OUT), "--out")
    print(printable("\n".join(report(arguments.out, classes, np.array(list(pixels.values())), left_out))))
    return 1 if left_out else 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add("labels", metavar="LABELS", help="file or folder of labels")
    add("--images", metavar="DIR", help="folder of the images; default that of the labels")
    add("--out", metavar="FOLDER", required=True, help="a new folder for images, masks and classes.txt")
    add("--classes", metavar="A,B,...", help="the classes in their order; all others are left out")
    add("--rest", choices=(BACKGROUND, "ignore"), default=BACKGROUND, help="pixels without a label; default background")
    add("--attribute", metavar="NAME", help="of VIA's regions, which holds the class, where they have several")
    add("--keep-empty", action="store_true", help="keep images without a label")
    return parser


def survey(labels: Labels, path: str) -> tuple[list[str], set[str]]:
    """Return the paths of images that labels state, and the names of shapes. Raises UserError if there are none."""
    reasons, stated, found = ["it has none"], list[str](), set[str]()
    for scene in labels.scenes(lambda *row: reasons.append(": ".join(row))):
        stated.append(scene.image)
        found |= {shape.label for shape in scene.shapes}
    if not found:
        raise UserError(f"{path}: no label can be imported; {reasons[:2][-1]}")
    return stated, found


def number_classes(
    declared: Iterable[str], found: Collection[str], arguments: argparse.Namespace
) -> tuple[dict[str, int], list[str]]:
    """Return the value of every label, and the classes: background, then those declared, then others by name."""
    names = [name for name in (*declared, *sorted(found)) if name in found]
    names.sort(key=lambda name: MEANINGS.get(name, name) != BACKGROUND)
    if arguments.classes:
        names = [name.strip() for name in arguments.classes.split(",") if name.strip()]
    names = [name for name in dict.fromkeys(MEANINGS.get(name, name) for name in names) if name != IGNORED]
    names[:0] = [BACKGROUND] * (arguments.rest == BACKGROUND and BACKGROUND not in names)
    if not 2 <= len(names) <= IGNORE_INDEX:
        listed = ", ".join(names[:9])
        raise UserError(
            f"{len(names)} classes ({listed}), but masks are of 2 to {IGNORE_INDEX}; see --classes and --rest"
        )
    values = {**{name: value for value, name in enumerate(names)}, IGNORED: IGNORE_INDEX}
    return {**values, **{name: values[meaning] for name, meaning in MEANINGS.items() if meaning in values}}, names


def write_scenes(
    labels: Labels,
    files: Mapping[str, str | BadSample],
    values: dict[str, int],
    colors: np.ndarray,
    arguments: argparse.Namespace,
    folder: str,
    leave_out: LeaveOut,
) -> dict[str, np.ndarray]:
    """Write images and masks.

    Args:
        files: of the images, or why there is none.
        values: of the pixels of a label.
        colors: of the classes, which viewers show the masks in.
        leave_out: is called with what is left out, and why.

    Returns:
        The pixels of every value in every mask, int32 (256,), by the name of the image.
    """
    pixels, palette = dict[str, np.ndarray](), np.zeros((256, 3), np.uint8)
    palette[: len(colors)] = colors
    place = arguments.images or labels.folder
    rest = values[BACKGROUND] if arguments.rest == BACKGROUND else IGNORE_INDEX
    for scene in labels.scenes(leave_out):
        name = os.path.splitext(printable(below(scene.source)))[0]
        try:
            if name in pixels:
                raise BadSample("image of the same name as an earlier one")
            with parsing("image that cannot be read", kind=BadSample):
                path = files[below(scene.image)]
                is_there = path == os.path.join(place, below(scene.image))
                content, extension, size = read_image(scene, path if is_there or not scene.embedded else None)
            mask, lost = paint(scene.shapes, size, values, rest)
            for reason in lost:
                leave_out(scene.source, reason)
            counts, is_empty = np.bincount(mask.ravel(), minlength=256), len(lost) == len(scene.shapes)
            if (is_empty and not arguments.keep_empty) or counts[IGNORE_INDEX] == mask.size:
                raise BadSample("image without any label")
        except BadSample as error:
            leave_out(scene.source, str(error))
            continue
        paths = [os.path.join(folder, "images", name + extension), os.path.join(folder, "masks", f"{name}.png")]
        for path in paths:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(paths[0], "xb") as file:
            file.write(content)
        write_labels(paths[1], mask, palette)
        pixels[name] = counts.astype(np.int32)
        if len(pixels) % PROGRESS == 0:
            print(f"{len(pixels):,} images", flush=True)
    return pixels


def read_image(scene: Scene, path: str | BadSample | None) -> tuple[bytes, str, images.Size]:
    """Read the image of a scene as it was labeled: upright, unless its labels state the size that is stored.

    Returns:
        The content of its file, the extension, and the size.

    Raises:
        BadSample: it is missing, cannot be decoded, or has another size.
    """
    if isinstance(path, str):
        encoded, extension = images.read(path), os.path.splitext(path)[1]
    elif path is None or scene.embedded:
        encoded, extension = images.parse(base64.b64decode(scene.embedded or "")), os.path.splitext(scene.image)[1]
    else:
        raise path
    if math.prod(encoded.size) > regular.MASK.free:
        raise BadSample(f"image of more than {regular.MASK.free} pixels")
    pixels, stated = images.decode_stored(encoded), scene.size if None not in scene.size else encoded.size
    usual = ".jpg" if encoded.is_jpeg else ".png"
    if stated == encoded.size and encoded.orientation != images.UPRIGHT:
        upright = np.ascontiguousarray(encoded.upright(pixels)[:, :, ::-1])
        return cv2.imencode(usual, upright, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1].tobytes(), usual, encoded.size
    if stated != encoded.stored:
        raise BadSample("image of another size than its labels state")
    return encoded.content, extension if extension.lower() in images.EXTENSIONS else usual, encoded.stored


def report(out: str, classes: list[str], pixels: np.ndarray, left_out: list[dict[str, str]]) -> Iterator[str]:
    """Yield the lines of the report, with the command that trains.

    Args:
        pixels: of every value in every mask, int32 (images, 256).
        left_out: rows of source and reason.
    """
    share, shown = pixels.sum(axis=0) / pixels.sum(), pixels > 0
    named = [*enumerate(classes), (IGNORE_INDEX, "(ignored)")]
    rows = [(value, name, shown[:, value].sum(), f"{share[value]:.2%}") for value, name in named]
    yield from table(rows, ("value", "class", "images", "pixels"))
    if left_out:
        first = {row["reason"]: row["source"] for row in reversed(left_out)}
        counts = Counter(row["reason"] for row in left_out).most_common(MAX_REASONS)
        yield "left out:"
        yield from table([(count, reason, first[reason]) for reason, count in counts], ("count", "what", "first in"))
        yield f"all {len(left_out)} in {os.path.join(out, LEFT_OUT)}"
    keys = list[str]()
    if (shown[:, IGNORE_INDEX] & ~shown[:, 1:IGNORE_INDEX].any(axis=1)).any():
        keys.append("data.void_masks=true")  # masks of 0 and 255 alone
    try:
        settings = cityscapes.Settings(root=out, void_masks=True, val_fraction=HELD_OUT)  # as zoo finetune
        found = audit.examine(*cityscapes.load(settings))
        if found:
            yield from audit.lines(found, audit.KEY)
            keys += [f"{audit.KEY}=true"] * bool(found.problems)
    except UserError as error:
        yield f"not to be trained yet: {error}"
    yield f"{len(pixels)} images with masks: {out}"
    yield "next: " + shlex.join(["zoo", "finetune", out, *(word for key in keys for word in ("-o", key))])
