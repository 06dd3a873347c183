"""Aligned faces: insightface's packs, PLSC's lists or a folder per identity, and pairs of pictures to verify."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from data.batch import LABEL, Field
from data.datasets.common import verification
from data.datasets.common.verification import PairSet
from data.errors import BadSample, UserError
from data.formats import face_files, face_packs
from data.formats.face_files import FaceFiles
from data.formats.face_packs import FacePack
from data.stream import LoaderSettings

DEFAULT_FILES = {"rec": "train.rec", "list": "label.txt"}
LOOKED_AT = 20  # pictures of every source that are tried before a run; one that can be used is enough
MEAN = (0.5, 0.5, 0.5)
STD = {"insightface": MEAN, "plsc": (128 / 255,) * 3}  # (x - 127.5) / 127.5 and (x - 127.5) / 128
PAIR = Field("pair", (), "int64", missing=-1)  # number of a pair in the validation split


@dataclass(frozen=True)
class Settings(LoaderSettings):
    """The `data:` section of a recipe on faces."""

    root: str = "datasets/ms1m"
    format: Literal["auto", "rec", "list", "folder"] = "auto"  # auto: a pack, else a list, else folders
    train: str | None = None  # in root: default train.rec, label.txt, or the folder train, else root itself
    num_classes: int | None = None  # default: as the pack tells, or the largest label of the list + 1
    size: int = 112  # pixels, square
    resize: bool = False  # stretch pictures of another size; else they are unreadable
    normalisation: Literal["insightface", "plsc"] = "insightface"
    flip: bool = True  # mirror half of the training pictures
    verification: tuple[str, ...] = ()  # in root: lfw.bin, or lists of pairs such as lfw/pairs.txt
    val_fraction: float = 0.05  # without verification: the last identities, held out of training, make pairs ...
    val_pairs: int = 6000  # ... of this number at most

    def __post_init__(self):
        super().__post_init__()
        if self.size < 1:
            raise ValueError("size: must be at least 1")
        if self.num_classes is not None and self.num_classes < 2:
            raise ValueError("num_classes: must be at least 2")
        if not 0 < self.val_fraction <= 0.5:
            raise ValueError("val_fraction: a share above 0, and at most 0.5")
        if self.val_pairs < verification.FOLDS or self.val_pairs % 2:
            raise ValueError(f"val_pairs: an even number of at least {verification.FOLDS}")

    @property
    def std(self) -> tuple[float, ...]:
        return STD[self.normalisation]


class FaceSplit:
    """The training split: `rows` of a source. Stateless between samples, so threads and processes may share it.

    fields: `image` uint8 (size, size, 3) RGB, `label` int64 ().
    """

    views = 1

    def __init__(
        self,
        settings: Settings,
        source: FaceFiles | FacePack,
        rows: Sequence[int],
        classes: Sequence,
        notes: tuple[str, ...],
    ):
        self.settings, self.source, self.rows, self.classes, self.notes = settings, source, rows, classes, notes
        self.fields = (Field("image", (settings.size, settings.size, 3), "uint8", MEAN, settings.std), LABEL)

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, index: int) -> str:
        return self.source.name(self.rows[index])

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Decode one picture and mirror half of them. Raises BadSample."""
        encoded, label = self.source.encoded_and_label(self.rows[index])
        if label >= len(self.classes):
            raise BadSample(f"label {label} of {len(self.classes)} identities, which count from 0")
        image = face_files.decode(encoded, self.settings.size, self.settings.resize)
        if self.settings.flip and rng.random() < 0.5:
            image = np.ascontiguousarray(image[:, ::-1])
        return {"image": image, "label": np.asarray(label, np.int64)}


class VerificationPairs:
    """The validation split: the pairs of all verification sets, one set behind the other, `sets`: (name, first, count).

    fields: `image` uint8 (2, size, size, 3) RGB, `label` int64 (): 1 one person, 0 two; `pair` int64 (): its number.
    """

    views = 2
    notes = ()

    def __init__(self, settings: Settings, pair_sets: Sequence[PairSet], classes: Sequence):
        self.settings, self.pair_sets, self.classes = settings, pair_sets, classes
        self.ends = np.cumsum([0] + [len(one.same) for one in pair_sets])
        self.sets = tuple((one.name, int(first), len(one.same)) for one, first in zip(pair_sets, self.ends))
        shape = (2, settings.size, settings.size, 3)
        self.fields = (Field("image", shape, "uint8", MEAN, settings.std), LABEL, PAIR)

    def __len__(self) -> int:
        return int(self.ends[-1])

    def name(self, index: int) -> str:
        one, number = self._place(index)
        return f"{one.name} pair {number} ({', '.join(one.source.name(which) for which in one.pairs[number])})"

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Decode both pictures. Raises BadSample."""
        one, number = self._place(index)
        images = [self._image(one, which) for which in one.pairs[number]]
        return {
            "image": np.stack(images),
            "label": np.asarray(one.same[number], np.int64),
            "pair": np.asarray(index, np.int64),
        }

    def _image(self, one: PairSet, which: int) -> np.ndarray:
        try:
            return face_files.decode(one.source.encoded(which), self.settings.size, self.settings.resize)
        except BadSample as error:
            raise BadSample(f"{one.source.name(which)}: {error}") from None

    def _place(self, index: int) -> tuple[PairSet, int]:
        which = int(np.searchsorted(self.ends, index, side="right")) - 1
        return self.pair_sets[which], index - int(self.ends[which])


def load(settings: Settings) -> tuple[FaceSplit, VerificationPairs]:
    """The training split and the pairs. Raises UserError naming the folder, file or line and the remedy."""
    root = settings.root
    if not os.path.isdir(root):
        raise UserError(
            f"no data: there is no folder {root} (looked in {os.path.abspath(root)})\n"
            "  put your faces there or point to them with -o data.root=FOLDER; the folder holds either\n"
            "  train.rec and train.idx (packs of insightface), or label.txt with lines `relative/path label`,\n"
            "  or train/<identity>/*.jpg; and, for -o data.verification=[lfw.bin], such files\n"
            "  no data at hand? the demo makes its own: python train.py -c configs/arcface_demo.yaml --amp"
        )
    source, classes = _source(settings)
    if len(classes) < 2:
        raise UserError(f"{root}: there is one identity alone, {classes[0]}; each needs a label or a folder of its own")
    _look(source, settings)
    rows: Sequence[int] = range(len(source))
    if settings.verification:
        pair_sets, notes = verification.open_sets(root, settings.verification), ()
    else:
        keep = len(classes) - max(2, round(settings.val_fraction * len(classes)))
        if keep < 2:
            raise UserError(
                f"{root}: of {len(classes)} identities none can be held out for validation; name "
                "verification sets with -o data.verification=[lfw.bin]"
            )
        rows, held = source.split_by_label(keep)
        labels = np.array([source.label(index) for index in held])
        pair_sets = (verification.draw(source, held, labels, settings.val_pairs),)
        notes = (
            f"no verification sets: the last {len(classes) - keep} of {len(classes)} identities are held out of "
            f"training and give {len(pair_sets[0].same)} pairs (data.val_fraction, data.verification)",
        )
        classes = classes[:keep]
    if settings.eval_bad == "error":
        for one in pair_sets:
            _look_at_all(one, settings)
    return FaceSplit(settings, source, rows, classes, notes), VerificationPairs(settings, pair_sets, classes)


def checksum(train: FaceSplit, val: VerificationPairs) -> str:
    """md5 over what the training source and the verification sets say of themselves, and over the pairs."""
    lines = train.source.describe() + [f"{len(train)} {len(train.classes)}"]
    for one in val.pair_sets:
        lines += [f"{one.name} {verification.digest(one)}"]
        lines += one.source.describe() if one.source is not train.source else []
    return hashlib.md5("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def _source(settings: Settings) -> tuple[FaceFiles | FacePack, Sequence]:
    """Where the training pictures lie, and their identities: names, or a range where they are numbers."""
    kind, name = _kind(settings)
    path = os.path.join(settings.root, name)
    if kind == "folder":
        if settings.num_classes is not None:
            raise UserError(f"data.num_classes: {path} has a folder per identity, which are counted; leave it out")
        return face_files.read_identities(settings.root, name)
    if kind == "list":
        source = face_files.read_list(settings.root, path)
        top = int(source.labels.argmax())
        count = settings.num_classes or int(source.labels[top]) + 1
        if source.labels[top] >= count:
            raise UserError(
                f"{path}: {source.name(top)} has label {source.labels[top]}, but data.num_classes is "
                f"{count}; labels count from 0"
            )
        return source, range(count)
    records = FacePack(path)
    count = settings.num_classes or face_packs.read_property(path) or records.identities
    if not count:
        raise UserError(
            f"{path}: neither a file `property` beside it nor the pack itself tells how many identities "
            "there are; say so with -o data.num_classes=N"
        )
    if count > face_packs.MAX_FLOAT32_LABEL and not records.has_exact_labels():
        raise UserError(
            f"{path}: its labels are 32-bit floats, which cannot tell more than {face_packs.MAX_FLOAT32_LABEL} "
            f"identities apart, but there are {count}; write labels of 64 bits, or use a list"
        )
    return records, range(count)


def _kind(settings: Settings) -> tuple[str, str]:
    """Which kind of set there is, and the name of its file or folder in root."""
    kind, name = settings.format, settings.train
    if name is None:
        if kind == "auto":
            kind = next(
                (kind for kind in DEFAULT_FILES if os.path.isfile(os.path.join(settings.root, DEFAULT_FILES[kind]))),
                "folder",
            )
        folder = "train" if os.path.isdir(os.path.join(settings.root, "train")) else ""
        return kind, DEFAULT_FILES.get(kind, folder)
    if kind == "auto":
        is_folder = os.path.isdir(os.path.join(settings.root, name))
        kind = "folder" if is_folder else "rec" if name.endswith(".rec") else "list"
    return kind, name


def _look(source: FaceFiles | FacePack, settings: Settings) -> None:
    """Raises UserError if none of the first pictures can be used: a wrong root or size shows before a run starts."""
    reasons = []
    for index in range(min(LOOKED_AT, len(source))):
        try:
            with face_files.open_face(source.encoded(index), settings.size, settings.resize):
                return
        except BadSample as error:
            reasons.append(f"{source.name(index)}: {error}")
    raise UserError(
        f"{settings.root}: not one of the first {len(reasons)} pictures can be used, for example "
        f"{reasons[0]}; paths of a list are relative to data.root"
    )


def _look_at_all(one: PairSet, settings: Settings) -> None:
    """Raises UserError naming the first picture of a verification set whose header cannot be read."""
    for which in np.unique(one.pairs):
        try:
            with face_files.open_face(one.source.encoded(which), settings.size, settings.resize):
                pass
        except BadSample as error:
            raise UserError(
                f"verification set {one.name}: {one.source.name(which)}: {error}; mend it, or count such "
                "pairs as wrong with -o data.eval_bad=wrong"
            ) from None
