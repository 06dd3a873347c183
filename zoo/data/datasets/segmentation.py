"""Images with a class for every pixel: one split of a segmentation data set, and how its samples are read.

Training samples are those of mmsegmentation's Cityscapes recipes (1.2.2): random scale, random crop that is drawn again
while one class dominates it, mirror, photometric distortion, padding. Resizing is OpenCV's.
"""

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, BinaryIO, NamedTuple

import numpy as np

from zoo.data import mixing
from zoo.data.audit import Inventory
from zoo.data.augment import Drawn, Target, steps
from zoo.data.augment.steps import Pipeline, Steps, on_image, on_label, standard
from zoo.data.batch import IGNORE_INDEX, IMAGENET_MEAN, IMAGENET_STD, Field
from zoo.data.contents import Content
from zoo.data.dataset import LoaderSettings, Pending, PlannedSample
from zoo.data.datasets.common import FileSplit, Levels, Mean, Protocol, Std, check_levels, levels_text, set_name
from zoo.data.errors import BadSample, UserError
from zoo.data.extras import cv2
from zoo.data.fields import Count, Doc, Factors, FilePath, Range, SettingError, Sides, Word
from zoo.data.formats import images, masks
from zoo.data.transforms import pixels
from zoo.data.transforms.geometry import Geometry

if TYPE_CHECKING:
    from zoo.data.packs.prepared import PreparedSplit

MORE_MASKS = 2_000  # of a training split that are read to find all classes
REDRAWS = 10  # of a crop that one class dominates; the last one is kept


@dataclass(frozen=True)
class SegmentationSettings(LoaderSettings):
    """Settings that all `data:` sections of recipes on images with masks share. Sizes are (height, width)."""

    root: Annotated[FilePath, Doc("Folder of the data set, archives, or an address.")] = "datasets/scenes"
    set: Annotated[
        Word | None, Doc("Name of the set in the protocol id; null: cityscapes for its layout, else that of root.")
    ] = None
    crop: Annotated[Sides, Doc("Height and width of the training crops, in pixels; smaller images are padded.")] = (
        512,
        1024,
    )
    base_size: Annotated[Sides | None, Doc("Height and width at scale 1, in pixels; null: the size of each image.")] = (
        None
    )
    scale: Annotated[
        tuple[float, float], Range(low=0, open_low=True), Doc("Range of the random scale of the training images.")
    ] = (0.5, 2.0)
    max_share: Annotated[
        float,
        Range(low=0, high=1, open_low=True),
        Doc("Fraction of a crop above which one class makes it drawn again; 1: never."),
    ] = 0.75
    flip: Annotated[bool, Doc("Mirror half of the training images.")] = True
    photometric: Annotated[bool, Doc("Change brightness, contrast, saturation and hue in training.")] = True
    augment: Annotated[
        Steps | None, Doc("Augmentations in place of flip and photometric (docs/data.md); null: these.")
    ] = None
    eval_scales: Annotated[Factors, Doc("Scales at which every image is evaluated.")] = (1.0,)
    levels: Levels = None
    mean: Mean = IMAGENET_MEAN
    std: Std = IMAGENET_STD
    checked_masks: Annotated[Count, Doc("Masks of each split that are read before a run starts.")] = 40
    void_masks: Annotated[bool, Doc("Allow masks that contain nothing but 0 and 255.")] = False

    def __post_init__(self):
        super().__post_init__()
        if self.eval_bad != "error":
            raise SettingError("eval_bad", "must be error; an unreadable image cannot count as wrong in a mean IoU")
        if not 0 < len({f"{scale:g}" for scale in self.eval_scales}) == len(self.eval_scales):
            raise SettingError("eval_scales", "must be one or more factors, none of them twice")
        steps.check(self.augment, "scene", self.flip, self.crop)
        check_levels(self.levels)
        mixing.refuse(self, "a scene has a label for every pixel, and cannot be mixed")

    @property
    def eval_images(self) -> tuple[str, ...]:
        """Names of the images of an evaluation sample, one for each of eval_scales."""
        return ("image",) + tuple(f"image_{scale:g}" for scale in self.eval_scales[1:])


class SegmentationSplit(FileSplit):
    """One split.

    Training fields: `image` uint8 (*crop, 3), `label` uint8 crop, 255 for ignored pixels. Evaluation fields: one image
    per scale, `image`, `image_0.5` ..., and `label` of the original size; field shapes are those of the first sample,
    other samples may differ.

    Args:
        pixels: of every class and, last, of ignored ones in masks that were looked at, int64 (classes + 1,).
        looked_at: how many masks these are.
    """

    def __init__(
        self,
        settings: SegmentationSettings,
        pairs: Sequence[masks.Pair],
        classes: tuple[str, ...],
        label_map: masks.LabelMap,
        training: bool,
        notes: tuple[str, ...] = (),
        prepared: "PreparedSplit | None" = None,
        pixels: np.ndarray | None = None,
        looked_at: int = 0,
    ):
        self.label_map, self.notes, self.looked_at = label_map, notes, looked_at
        self.pixels = np.zeros(len(classes) + 1, np.int64) if pixels is None else pixels
        # Arrays, because every worker process gets a copy and many small objects are slow to pickle.
        self.images, self.masks = (np.array([os.fsencode(path) for path in paths]) for paths in zip(*pairs))
        super().__init__(settings, classes, standard_steps(settings), training, prepared)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def protocol(self) -> Protocol:
        """The evaluation: the size that images are fitted into, or `full` for their own, and scales other than 1."""
        s = self.settings
        official = {len(masks.TRAIN_CLASSES): "cityscapes"} if self.classes == masks.TRAIN_CLASSES else {}
        size = "full" if s.base_size is None else "x".join(map(str, s.base_size))
        scales = "" if s.eval_scales == (1.0,) else "*" + ",".join(f"{scale:g}" for scale in sorted(s.eval_scales))
        return Protocol(set_name(s, len(self.classes), official) + self.held_out, size + scales + levels_text(s.levels))

    def name(self, index: int) -> str:
        return os.fsdecode(bytes(self.images[index]))

    def item_label(self, index: int) -> str:
        return os.fsdecode(bytes(self.masks[index]))

    def mask_path(self, index: int) -> str:
        return os.path.join(self.settings.root, self.item_label(index))

    def files(self, index: int) -> tuple[Content, ...]:
        return Content(self.path(index)), Content(self.mask_path(index))

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Read one image and its mask, resize and (in training) augment them. Raises BadSample."""
        encoded, mask = self._read(index)
        image, label = images.decode_stored(encoded), self._labels(index, mask)
        masks.check_sizes(image.shape[1::-1], label.shape[::-1])
        if self.training:
            image, label = augment(image, label, self.settings, rng, self.pipeline)
            return {"image": image, "label": label}
        s = self.settings
        scaled = {name: resize_to_fit(image, s.base_size, scale) for name, scale in zip(s.eval_images, s.eval_scales)}
        return {**scaled, "label": label}

    def plan(self, index: int, rng: np.random.Generator) -> PlannedSample:
        """Read and draw one sample as `sample` does, and leave its pixels to the loader. Raises BadSample."""
        s = self.settings
        if not self._is_geometric:
            return {**self.sample(index, rng)}
        encoded, mask = self._read(index)
        if not encoded.is_ordinary:
            return {**self.sample(index, rng)}
        label = self._labels(index, mask)
        masks.check_sizes(encoded.size, label.shape[::-1])
        if self.training:
            plan = plan_training(label, s, rng, self.pipeline)
            return {"image": Pending((encoded.content,), plan.geometry), "label": plan.label}
        height, width = fit_size(label.shape, s.base_size, s.eval_scales[0])
        return {"image": Pending((encoded.content,), Geometry(size=(width, height))), "label": label}

    def inventory(self, deep: bool) -> Inventory:
        """Return what the split holds, for checks; deep: whether all masks are read.

        Otherwise, training masks are read until all classes have been seen, MORE_MASKS of them at most.
        """
        fixed = self.classes == masks.TRAIN_CLASSES
        is_known = fixed or self.settings.allow_missing_classes or bool(self.pixels[:-1].all())
        if deep or (self.training and not is_known and self.looked_at < len(self)):
            self.pixels, self.looked_at = self._count_pixels(deep)
        files = len(self), self.name, self.classes, self.file_size, self.digest
        held = masks.describe_values(self.pixels, self.classes)
        return Inventory(
            *files, pixels=self.pixels, masks=self.looked_at, held=held, may_miss=fixed, remark=self.remark
        )

    def remark(self, index: int, _rng: np.random.Generator | None = None) -> str:
        """Return what of an image is left out or lost; "" for nothing. Raises BadSample."""
        return images.remark(self._read(index)[0])

    def show(self, training: bool) -> None:
        self.fields = self._training_fields() if training else self._evaluation_fields()
        super().show(training)

    def _count_pixels(self, deep: bool) -> tuple[np.ndarray, int]:
        """Count the pixels of classes in masks; return them, int64 (classes + 1,), and the number of these masks."""
        indices = np.random.default_rng(0).permutation(len(self))[: None if deep else MORE_MASKS].tolist()
        seen, looked_at, count = np.zeros(256, bool), 0, len(self.classes)

        def stats() -> Iterator[masks.MaskStats]:
            nonlocal looked_at
            for one in masks.in_threads(self._look, indices):
                looked_at += 1
                if one is not None:
                    yield one
                    seen[self.label_map.table[one.counts > 0]] = True
                if not deep and seen[:count].all():
                    return

        values = masks.check_together(stats(), self.settings.void_masks)
        return masks.by_class(values, self.label_map, count), looked_at

    def _look(self, index: int) -> masks.MaskStats | None:
        """Count the values of a mask; None if it cannot be read."""
        try:
            return masks.look(self._mask(index), self.mask_path(index))
        except BadSample:
            return None

    def _read(self, index: int) -> tuple[images.EncodedImage, str | BinaryIO]:
        if self.prepared:
            return images.parse(self.prepared.content(index)), self._mask(index)
        return images.read(self.local(self.path(index)), self.settings.levels), self._mask(index)

    def _mask(self, index: int) -> str | BinaryIO:
        return io.BytesIO(self.prepared.mask(index)) if self.prepared else self.local(self.mask_path(index))

    def _labels(self, index: int, mask: str | BinaryIO) -> np.ndarray:
        """Return the classes of the pixels of a mask. Raises BadSample, which names the mask."""
        try:
            return masks.read_labels(mask, self.label_map)
        except BadSample as error:
            raise BadSample(f"{self.item_label(index)}: {error}") from None

    @property
    def _is_geometric(self) -> bool:
        """Whether a geometry is all that happens to images, so that any loader can decode them."""
        return self.pipeline.is_geometric if self.training else len(self.settings.eval_scales) == 1

    def _training_fields(self) -> tuple[Field, ...]:
        s = self.settings
        image = Field("image", s.crop + (3,), "uint8", s.mean, s.std)
        return image, Field("label", s.crop, "uint8", missing=IGNORE_INDEX)

    def _evaluation_fields(self) -> tuple[Field, ...]:
        s = self.settings
        try:
            width, height = self._read(0)[0].stored
        except BadSample as error:
            raise UserError(f"{self.path(0)}: {error}; an evaluation needs every image, fix or remove it") from None
        size = height, width
        scaled = [fit_size(size, s.base_size, scale) + (3,) for scale in s.eval_scales]
        fields = tuple(Field(name, shape, "uint8", s.mean, s.std) for name, shape in zip(s.eval_images, scaled))
        return fields + (Field("label", size, "uint8", missing=IGNORE_INDEX),)


def read_image(path: str, levels: images.Levels = None) -> np.ndarray:
    """Read an image as it is stored, uint8 RGB (H, W, 3). Raises BadSample.

    The EXIF orientation is ignored: masks have none, so applying it would rotate the image against its mask.
    """
    return images.decode_stored(images.read(path, levels))


def fit_size(size: Sequence[int], base: tuple[int, int] | None, scale: float) -> tuple[int, int]:
    """Return the largest (height, width) with the aspect ratio of `size` that fits into base * scale.

    The long side is fitted to the long side of base, whichever that is. Without a base it is size * scale.
    """
    factor = scale
    if base is not None:
        long, short = (int(side * scale) for side in (max(base), min(base)))
        factor = min(long / max(size), short / min(size))
    return max(1, int(size[0] * factor + 0.5)), max(1, int(size[1] * factor + 0.5))


def resize_to_fit(image: np.ndarray, base: tuple[int, int] | None, scale: float) -> np.ndarray:
    """Resize an image (H, W, 3) for an evaluation: to fit into base * scale, or to its own size * scale."""
    return _resize(image, fit_size(image.shape[:2], base, scale), cv2.INTER_LINEAR)


def standard_steps(settings: SegmentationSettings) -> Steps:
    return standard(horizontal_flip=settings.flip, photometric_distortion=settings.photometric)


class TrainingPlan(NamedTuple):
    """Everything that is drawn for a training sample. The draws precede the padding of the geometry."""

    geometry: Geometry  # of the image
    drawn: list[Drawn]
    label: np.ndarray  # of the sample, uint8 crop


def plan_training(
    label: np.ndarray,
    settings: SegmentationSettings,
    rng: np.random.Generator,
    augmentations: Pipeline,
) -> TrainingPlan:
    """Draw how an image is augmented, and augment its label (H, W), on which the crop depends."""
    s = settings
    height, width = fit_size(label.shape, s.base_size, rng.uniform(*s.scale))
    label = _resize(label, (height, width), cv2.INTER_NEAREST)
    top, left = random_corner(label, s.crop, s.max_share, rng)
    window = (left, top, min(s.crop[1], width - left), min(s.crop[0], height - top))
    flipped, drawn = augmentations.draw(Target(*window[2:], s.mean, s.std), rng)
    label = pixels.crop(label, window)
    label = pixels.flip(label) if flipped else label
    label = on_label(label, drawn)
    # Upstream pads with 0 after the normalization. Pixels are bytes here, so padding is the byte nearest to the mean.
    fill = tuple(round(255 * mean) for mean in s.mean)
    canvas = (s.crop[1], s.crop[0])
    image_geometry = Geometry(None, (width, height), False, window, flipped, canvas, fill)
    return TrainingPlan(image_geometry, drawn, pixels.pad(label, canvas, (IGNORE_INDEX,)))


def augment(
    image: np.ndarray,
    label: np.ndarray,
    settings: SegmentationSettings,
    rng: np.random.Generator,
    augmentations: Pipeline,
) -> tuple[np.ndarray, np.ndarray]:
    """Turn an image (H, W, 3) and its label (H, W) into a training sample of size `crop`."""
    plan = plan_training(label, settings, rng, augmentations)
    image = pixels.apply(image, plan.geometry._replace(canvas=None))
    image = on_image(image, plan.drawn)
    return pixels.pad(image, settings.crop[::-1], plan.geometry.fill), plan.label


def random_corner(
    label: np.ndarray, crop: tuple[int, int], max_share: float, rng: np.random.Generator
) -> tuple[int, int]:
    """Draw the (top, left) of a crop, again while it has no class or one that covers `max_share` of its pixels."""
    positions = [max(side - crop_side, 0) + 1 for side, crop_side in zip(label.shape, crop)]
    top, left = rng.integers(positions)
    for _ in range(REDRAWS if max_share < 1 else 0):
        cropped = label[top : top + crop[0], left : left + crop[1]]
        pixels = np.bincount(cropped.ravel(), minlength=256)[:IGNORE_INDEX]
        if pixels.max() < max_share * pixels.sum():
            break
        top, left = rng.integers(positions)
    return int(top), int(left)


def _resize(image: np.ndarray, size: tuple[int, int], interpolation: int) -> np.ndarray:
    return cv2.resize(image, size[::-1], interpolation=interpolation)
