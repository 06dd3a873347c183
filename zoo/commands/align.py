"""Cut faces out of photos, a folder per person, turned and scaled as ArcFace's models expect: 112 x 112 pixels.

The photos stay as they are. Of several faces in a photo the largest is taken; photos without a face are left out.
"""

import os
import shlex
from collections import Counter

from zoo import program
from zoo.commands.new_file import new_folder, write_new
from zoo.data.errors import BadSample, UserError, printable, similar_path
from zoo.data.formats import images
from zoo.data.formats.lists import class_folders, read_folders
from zoo.data.importing import faces
from zoo.table import csv_text

EPILOG = """\
The detector is OpenCV's YuNet; its weights, 230 kB, are no part of this package: face_detection_yunet_2023mar.onnx from
github.com/opencv/opencv_zoo, folder models/face_detection_yunet (with git lfs).

  %(prog)s photos --detector face_detection_yunet_2023mar.onnx --out faces      photos/<person>/*.jpg

Exit codes: 0 done, 1 done, but photos were left out (faces.csv lists all), 2 an error to fix on your side."""
REPORT, COLUMNS = "faces.csv", ("photo", "faces", "width", "score", "left_out")
QUALITY = 95  # of the JPEG files


def main(argv: list[str]) -> int:
    """Run the command line and return the exit code."""
    arguments = parser().parse_args(argv)
    root = arguments.photos
    persons = class_folders(root, "")
    notes: list[str] = []
    entries = read_folders(root, "", persons, images.EXTENSIONS, notes)
    if not entries:
        similar = "" if os.path.isdir(root) else similar_path(root)
        raise UserError("; ".join([f"{root}: there is no folder per person with photos in it{similar}", *notes]))
    with new_folder(arguments.out, "--out") as folder:
        detector = faces.Detector(arguments.detector)
        rows = [cut_out(detector, root, os.path.normpath(entry.path), folder) for entry in entries]
        if all(row["left_out"] for row in rows):
            raise UserError(f"{root}: not one face in {len(rows)} photos; {rows[0]['photo']}: {rows[0]['left_out']}")
        write_new(csv_text(rows, COLUMNS), os.path.join(folder, REPORT), "--out")
    kept = Counter(persons[entry.label] for entry, row in zip(entries, rows) if not row["left_out"])
    reasons = Counter(row["left_out"] for row in rows).most_common()
    lines = [*notes, *(f"{reason}: {count}" for reason, count in reasons if reason)]
    lines += [f"person without a face: {person}" for person in persons if person not in kept]
    several = sum(row["faces"] > 1 for row in rows)
    lines += [f"photos with several faces, of which the largest was taken: {several}"] * bool(several)
    lines += [
        f"{kept.total()} faces of {len(kept)} persons from {len(rows)} photos: {arguments.out}; {REPORT} lists all",
        "next: " + shlex.join(["zoo", "finetune", arguments.out]),
    ]
    print(printable("\n".join(lines)))
    return int(kept.total() < len(rows))


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    parser.add_argument("photos", metavar="FOLDER", help="a folder of photos per person")
    parser.add_argument("--detector", metavar="FILE", required=True, help="ONNX file of YuNet")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="a new folder for the faces and faces.csv")
    return parser


def cut_out(detector: faces.Detector, root: str, path: str, folder: str) -> dict:
    """Write the largest face of a photo, and return the row of the report."""
    try:
        encoded = images.read(os.path.join(root, path))
        photo = encoded.upright(images.decode_stored(encoded))
        face = detector.largest(photo)
        aligned = faces.align(photo, face.points)
    except BadSample as error:
        return {"photo": path, "faces": 0, "left_out": str(error)}
    target = os.path.join(folder, os.path.splitext(path)[0] + ".jpg")
    target = os.path.join(folder, f"{path}.jpg") if os.path.exists(target) else target  # a.jpg and a.png
    os.makedirs(os.path.dirname(target), exist_ok=True)
    images.write_jpeg(target, aligned, QUALITY)
    width, score = f"{face.width:.0f}", f"{face.score:.3f}"
    return {"photo": path, "faces": face.total, "width": width, "score": score, "left_out": ""}
