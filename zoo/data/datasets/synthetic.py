"""Random pixels with random labels in place of images, clips, scenes or faces: to time a run, without any files.

The model's input is N(0, 1) in steps of 1/32, clipped to [-4, 4], because images are stored as bytes. Samples are
windows of one array of noise, so that reading one costs nothing but its copy into the batch; a sample depends on its
index alone. This module needs numpy only: no OpenCV, no Pillow, no video decoder.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

import numpy as np

from zoo.data import mixing
from zoo.data.batch import IGNORE_INDEX, LABEL, Field
from zoo.data.dataset import LoaderSettings
from zoo.data.datasets.common import Protocol
from zoo.data.fields import Classes, Count, Doc, SettingError, Sides
from zoo.data.record import DataRecord, without_items

SEED = 2026
STEPS = 32  # byte values per standard deviation
MIDDLE = 127.5
MEAN, STD = (MIDDLE / 255,) * 3, (STEPS / 255,) * 3
WINDOWS, SHIFT = 4096, 64  # number of different windows, and bytes from one to the next
RUN = 64  # neighboring pixels of a scene with the same label
MIN_PAIRS = 10  # of verification, one for each fold
KEYS = {"image": ("size",), "clip": ("size", "segments"), "scene": ("crop", "base_size"), "face": ("size",)}


class Defaults(NamedTuple):
    """Numbers of the data set that a kind stands for."""

    num_classes: int
    train_samples: int
    size: int = 224


DEFAULTS = {
    "image": Defaults(1000, 1281167),  # ImageNet
    "clip": Defaults(400, 234619),  # Kinetics-400
    "scene": Defaults(19, 2975),  # Cityscapes
    "face": Defaults(85742, 5822653, 112),  # MS1MV2
}


@dataclass(frozen=True)
class Settings(LoaderSettings):
    """The `data:` section of a recipe on synthetic data. Sizes are in pixels."""

    kind: Annotated[
        Literal["image", "clip", "scene", "face"],
        Doc("What the samples are: images or clips to classify, scenes to segment, faces."),
    ] = "image"
    size: Annotated[
        Count | None, Doc("Side of square images, clips and faces, in pixels; null: 224, of faces 112.")
    ] = None
    segments: Annotated[Count | None, Doc("Frames of a clip; null: 8.")] = None
    crop: Annotated[Sides | None, Doc("Height and width of scenes in training, in pixels; null: 512 x 1024.")] = None
    base_size: Annotated[
        Sides | None, Doc("Height and width of scenes in an evaluation, in pixels; null: 1024 x 2048.")
    ] = None
    num_classes: Annotated[
        Classes | None,
        Doc("Number of classes; null: ImageNet's 1000, Kinetics' 400, Cityscapes' 19 or MS1MV2's 85742."),
    ] = None
    train_samples: Annotated[
        Count | None, Doc("Training samples; null: as many as ImageNet, Kinetics-400, Cityscapes or MS1MV2 has.")
    ] = None
    val_samples: Annotated[Count, Doc("Validation samples; of faces, pairs.")] = 100

    def __post_init__(self):
        super().__post_init__()
        for key in ("size", "segments", "crop", "base_size"):
            value = getattr(self, key)
            if value is not None and key not in KEYS[self.kind]:
                raise SettingError(
                    key, f"data.kind={self.kind} has {' and '.join(KEYS[self.kind])}; choose another kind"
                )
        if self.kind == "scene" and (self.num_classes or 0) > IGNORE_INDEX:
            raise SettingError("num_classes", f"must be at most {IGNORE_INDEX} in scenes")
        if self.kind == "face" and self.val_samples < MIN_PAIRS:
            raise SettingError("val_samples", f"must be at least {MIN_PAIRS} pairs")
        if self.kind in ("scene", "face"):
            mixing.refuse(self, f"data.kind={self.kind} cannot be mixed")
        given = {"cache": self.cache, "allow_missing_classes": self.allow_missing_classes}
        given |= {"checksum": self.checksum == "full", "loader": self.loader == "dali"}
        for key, is_given in given.items():
            if is_given:
                raise SettingError(key, "synthetic data have no files; leave it out")

    def shape(self, training: bool) -> tuple[int, ...]:
        if self.kind == "scene":
            height, width = (self.crop or (512, 1024)) if training else (self.base_size or (1024, 2048))
            return height, width, 3
        size = self.size or DEFAULTS[self.kind].size
        leading: tuple[int, ...] = (self.segments or 8,) if self.kind == "clip" else ()
        if self.kind == "face" and not training:
            leading = (2,)
        return *leading, size, size, 3


class SyntheticSplit:
    """One split. It keeps no state between samples, so threads and processes may share or copy it.

    Fields: `image`, or `video` of a clip, uint8; `label` int64 (), of a scene uint8 (H, W) with 255 for ignored pixels;
    of faces in an evaluation, every other pair is one of the same person; `soft_label` float32 (classes,) of images and
    clips in training with data.mixup or data.cutmix, which the stream carries out.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, settings: Settings, training: bool):
        self.settings, self.training = settings, training
        defaults, shape = DEFAULTS[settings.kind], settings.shape(training)
        self.classes = range(settings.num_classes or defaults.num_classes)
        self.length = (settings.train_samples or defaults.train_samples) if training else settings.val_samples
        self.image = Field("video" if settings.kind == "clip" else "image", shape, "uint8", MEAN, STD)
        self.views, label = 1, LABEL
        if settings.kind == "scene":
            label = Field("label", shape[:2], "uint8", missing=IGNORE_INDEX)
        elif settings.kind == "face" and not training:
            self.views, self.sets = 2, (("noise", 0, self.length),)
        others = mixing.fields(settings, len(self.classes)) if training else ()
        self.fields: tuple[Field, ...] = (self.image, label, *others)

    def __len__(self) -> int:
        return self.length

    @property
    def protocol(self) -> Protocol:
        """The evaluation, which says nothing about a model."""
        *leading, height, width, _ = self.settings.shape(training=False)
        views = {
            "image": str(width),
            "clip": f"{leading[0] if leading else 1}x1x1@{width}",
            "scene": f"{height}x{width}",
            "face": f"@{width}",
        }
        return Protocol("synthetic", views[self.settings.kind])

    def name(self, index: int) -> str:
        return f"noise {index}"

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return the pixels and the label of an index; read-only, since others share them."""
        pixels, classes = {self.image.name: _window(_noise, index, self.image.shape)}, len(self.classes)
        if self.settings.kind == "scene":
            return {**pixels, "label": _window(_labels, index, self.image.shape[:2], classes)}
        if self.views == 2:
            return {**pixels, "label": np.asarray(1 - index % 2, np.int64)}
        return {**pixels, "label": np.asarray(index % classes, np.int64)}

    plan = sample  # nothing is left to a loader

    def for_evaluation(self) -> "SyntheticSplit | None":
        """Return the same samples as an evaluation shows them; None of faces, which are no pairs."""
        if self.settings.kind == "face":
            return None
        split = SyntheticSplit(self.settings, training=False)
        split.length = self.length
        return split


def load(settings: Settings) -> tuple[SyntheticSplit, SyntheticSplit]:
    """Return the training and the validation split; time and memory do not depend on their lengths."""
    return SyntheticSplit(settings, True), SyntheticSplit(settings, False)


def describe(train: SyntheticSplit, val: SyntheticSplit, method: str | None = None) -> DataRecord:
    """Return the record of the settings that the samples depend on. method: without files there is one alone."""
    numbers = [(split.length, len(split.classes), *split.image.shape) for split in (train, val)]
    checksum = hashlib.md5(f"noise {train.settings.kind} {numbers}".encode()).hexdigest()
    splits = [without_items(split.length, len(split.classes)) for split in (train, val)]
    return DataRecord(checksum, "sampled", *splits)


def _window(make: Callable[..., np.ndarray], index: int, shape: tuple[int, ...], *arguments: int) -> np.ndarray:
    """Return the window of an index in the array of bytes that `make` returns for a length."""
    begin, size = index % WINDOWS * SHIFT, math.prod(shape)
    return make(size + WINDOWS * SHIFT, *arguments)[begin : begin + size].reshape(shape)


@lru_cache(maxsize=2)  # of the two splits
def _noise(length: int) -> np.ndarray:
    """Draw pixels: uint8 (length,)."""
    rng = np.random.default_rng(SEED)
    values = rng.standard_normal(length, dtype=np.float32) * STEPS + (MIDDLE + 0.5)
    pixels = np.clip(values, 0, 255).astype(np.uint8)  # + 0.5, because the conversion truncates
    pixels.flags.writeable = False
    return pixels


@lru_cache(maxsize=2)
def _labels(length: int, classes: int) -> np.ndarray:
    """Draw labels of pixels, in runs of one class or of ignored pixels: uint8 (length,)."""
    rng = np.random.default_rng(SEED)
    values = rng.integers(classes + 1, size=-(-length // RUN)).astype(np.uint8)
    labels = np.repeat(np.where(values == classes, np.uint8(IGNORE_INDEX), values), RUN)
    labels.flags.writeable = False
    return labels
