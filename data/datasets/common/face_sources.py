"""Training images of faces: which file or folder holds them, and whether it can be used."""

import os
from collections.abc import Sequence

import numpy as np

from zoo.data import cache
from zoo.data.datasets.common.face_settings import Settings
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import face_files, face_packs
from zoo.data.formats.face_files import FaceFiles
from zoo.data.formats.face_packs import FacePack
from zoo.data.formats.lists import check_inside

DEFAULT_FILES = {"rec": "train.rec", "list": "label.txt"}  # by data.format
PROBED_IMAGES = 20  # images that are opened before a run; one readable image is enough


def open_source(settings: Settings) -> tuple[FaceFiles | FacePack, Sequence, bool]:
    """Open the training images.

    Returns:
        The images; their identities, names or a range where they have numbers only; and whether each has a folder.
    """
    file_format, name = _find_source(settings)
    path = os.path.join(settings.root, name)
    if file_format == "folder":
        if settings.num_classes is not None:
            raise UserError(f"data.num_classes: {path} has a folder per identity, which are counted; leave it out")
        local, allow_empty = cache.open_cache(settings), settings.allow_missing_classes
        return *face_files.read_identities(settings.root, name, local, allow_empty), True
    if file_format == "list":
        return *_open_list(settings, path), False
    cache.refuse_packs(settings, [path])
    pack = FacePack(path)
    count = settings.num_classes or face_packs.read_property(path) or pack.identities
    if not count:
        raise UserError(
            f"{path}: neither the pack nor a file `property` beside it states the number of identities; set it with "
            "-o data.num_classes=N"
        )
    if count > face_packs.MAX_FLOAT32_LABEL and not pack.has_exact_labels():
        raise UserError(
            f"{path}: its labels are 32-bit floats, which cannot distinguish more than {face_packs.MAX_FLOAT32_LABEL} "
            f"identities, but there are {count}; write 64-bit labels, or use a list"
        )
    return pack, range(count), False


def _open_list(settings: Settings, path: str) -> tuple[FaceFiles, range]:
    source = face_files.read_list(settings.root, path, cache.open_cache(settings))
    check_inside(path, map(source.name, range(len(source.labels))), settings.allow_outside_root)
    largest = int(source.labels.argmax())
    if settings.num_classes is None and not settings.allow_missing_classes:
        _check_gaps(path, source)
    count = settings.num_classes or int(source.labels[largest]) + 1
    if source.labels[largest] >= count:
        raise UserError(
            f"{path}: {source.name(largest)} has label {source.labels[largest]}, but data.num_classes is "
            f"{count}; labels count from 0"
        )
    return source, range(count)


def _check_gaps(path: str, source: FaceFiles) -> None:
    """Check that every label up to the largest one has an image: a mistyped one would add classes without any."""
    labels, counts = np.unique(source.labels, return_counts=True)
    following = int(np.argmax(labels != np.arange(len(labels))))
    label = int(labels[following])
    if label == following:
        return
    (rows,) = np.nonzero(source.labels == label)
    alone = " alone" if counts[following] == 1 else ""
    raise UserError(
        f"{path}: no image has the label {following}{f' to {label - 1}' if label > following + 1 else ''}, but "
        f"{source.name(int(rows[0]))}{alone} has {label}; correct it, or let this pass with "
        "-o data.allow_missing_classes=true"
    )


def _find_source(settings: Settings) -> tuple[str, str]:
    """Return the format of the training images, and the name of their file or folder in root."""
    file_format: str = settings.format
    name = settings.train
    if name is None:
        if file_format == "auto":
            existing = (key for key, file in DEFAULT_FILES.items() if os.path.isfile(os.path.join(settings.root, file)))
            file_format = next(existing, "folder")
        folder = "train" if os.path.isdir(os.path.join(settings.root, "train")) else ""
        return file_format, DEFAULT_FILES.get(file_format, folder)
    if file_format == "auto":
        is_folder = os.path.isdir(os.path.join(settings.root, name))
        file_format = "folder" if is_folder else "rec" if name.endswith(".rec") else "list"
    return file_format, name


def check_any_readable(source: FaceFiles | FacePack, settings: Settings) -> None:
    """Check that one of the first images can be opened, so that a wrong root or size is found before a run starts."""
    reasons = []
    for index in range(min(PROBED_IMAGES, len(source))):
        try:
            with face_files.open_face(source.encoded(index), settings.size, settings.resize):
                return
        except BadSample as error:
            reasons.append(f"{source.name(index)}: {error}")
    raise UserError(
        f"{settings.root}: none of the first {len(reasons)} images can be used, for example "
        f"{reasons[0]}; paths of a list must be relative to data.root"
    )
