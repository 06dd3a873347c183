"""Pictures with a class for every pixel: one split of such a set, and how its samples are made.

A training sample is mmsegmentation's (1.2.2, its Cityscapes recipes): random scale, random crop that is drawn again
while one class fills it, mirror, photometric distortion, padding; resizing is OpenCV's.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from data.batch import IMAGENET_MEAN, IMAGENET_STD, Field
from data.errors import BadSample, UserError
from data.formats import images, masks
from data.formats.palette import IGNORE_INDEX
from data.stream import LoaderSettings
from data.transforms import photometric

REDRAWS = 10  # of a crop that one class fills; the last one is taken as it is

cv2.setNumThreads(1)  # one sample per thread: the stream brings the parallelism


@dataclass(frozen=True)
class SegmentationSettings(LoaderSettings):
    """What the `data:` sections of recipes on pictures with masks have in common. Sizes are (height, width)."""

    root: str = "datasets/scenes"
    crop: tuple[int, int] = (512, 1024)  # of the training pictures, padded where they are smaller
    base_size: tuple[int, int] | None = None  # scales count from it, evaluation fits into it; the picture's own size
    scale: tuple[float, float] = (0.5, 2.0)  # of the training pictures, uniform
    max_share: float = 0.75  # a crop is drawn again while one class has this share of it; 1: never
    flip: bool = True  # mirror half of the training pictures
    photometric: bool = True  # change brightness, contrast, saturation and hue in training
    eval_scales: tuple[float, ...] = (1.0,)  # an evaluation sees every picture at these scales
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    checked_masks: int = 40  # of each split, read before a run starts
    void_masks: bool = False  # whether a mask may hold nothing but 0 and 255

    def __post_init__(self):
        super().__post_init__()
        if self.eval_bad != "error":
            raise ValueError("eval_bad: must be error; an unreadable picture cannot count as wrong in a mean IoU")
        for key in ("crop", "base_size"):
            if getattr(self, key) is not None and min(getattr(self, key)) < 1:
                raise ValueError(f"{key}: height and width, at least 1")
        if not 0 < self.scale[0] <= self.scale[1] < math.inf:
            raise ValueError("scale: two factors above 0, the smaller one first")
        if not 0 < self.max_share <= 1:
            raise ValueError("max_share: a share in (0, 1]")
        if not self.eval_scales or not all(0 < ratio < math.inf for ratio in self.eval_scales):
            raise ValueError("eval_scales: one factor or more, all above 0")
        if len({f"{ratio:g}" for ratio in self.eval_scales}) < len(self.eval_scales):
            raise ValueError("eval_scales: the same factor twice")
        if min(self.std) <= 0:
            raise ValueError("std: must be above 0")
        if self.checked_masks < 1:
            raise ValueError("checked_masks: must be at least 1")

    @property
    def eval_images(self) -> tuple[str, ...]:
        """Names of the pictures of an evaluation's sample, one for each of eval_scales."""
        return ("image",) + tuple(f"image_{ratio:g}" for ratio in self.eval_scales[1:])


class SegmentationSplit:
    """One split. Stateless between samples, so threads and processes may share or copy it.

    Training fields: `image` uint8 (*crop, 3), `label` uint8 crop, 255 where no class is. Evaluation fields: one picture
    per scale, `image`, `image_0.5` ..., and last `label` of the picture's own size; the shapes are the first sample's,
    and others may differ.
    """

    views = 1

    def __init__(
        self,
        settings: SegmentationSettings,
        pairs: Sequence[masks.Pair],
        classes: tuple[str, ...],
        code: masks.LabelMap,
        training: bool,
        notes: tuple[str, ...] = (),
    ):
        self.settings, self.classes, self.code, self.training, self.notes = settings, classes, code, training, notes
        # Arrays: every reader process gets a copy, and many small objects travel slowly.
        self.pictures, self.masks = (np.array([os.fsencode(path) for path in paths]) for paths in zip(*pairs))
        self.fields = self._training_fields() if training else self._evaluation_fields()

    def __len__(self) -> int:
        return len(self.pictures)

    def name(self, index: int) -> str:
        return self._names(index)[0]

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Read one picture and its mask, and scale and (in training) augment them. Raises BadSample."""
        picture, mask = self._paths(index)
        image, label = read_picture(picture), masks.read_labels(mask, self.code)
        masks.check_sizes(image.shape[1::-1], label.shape[::-1])
        if self.training:
            image, label = augment(image, label, self.settings, rng)
            return {"image": image, "label": label}
        s = self.settings
        views = {name: fitted(image, s.base_size, ratio) for name, ratio in zip(s.eval_images, s.eval_scales)}
        return {**views, "label": label}

    def describe_files(self) -> list[str]:
        """One line per sample, `picture mask size size`, the sizes in bytes (-1 if missing)."""
        lines = []
        for index in range(len(self)):
            sizes = [os.stat(path).st_size if os.path.exists(path) else -1 for path in self._paths(index)]
            lines.append(" ".join(self._names(index) + list(map(str, sizes))))
        return lines

    def _names(self, index: int) -> list[str]:
        return [os.fsdecode(bytes(paths[index])) for paths in (self.pictures, self.masks)]

    def _paths(self, index: int) -> list[str]:
        return [os.path.join(self.settings.root, name) for name in self._names(index)]

    def _training_fields(self) -> tuple[Field, ...]:
        s = self.settings
        return (Field("image", s.crop + (3,), "uint8", s.mean, s.std), Field("label", s.crop, "uint8", missing=IGNORE_INDEX))

    def _evaluation_fields(self) -> tuple[Field, ...]:
        s, path = self.settings, self._paths(0)[0]
        try:
            with images.open_image(path) as image:
                own = (image.height, image.width)
        except BadSample as error:
            raise UserError(f"{path}: {error}; an evaluation needs every picture, mend or remove it") from None
        sizes = [fit(own, s.base_size, ratio) for ratio in s.eval_scales]
        return tuple(Field(name, size + (3,), "uint8", s.mean, s.std) for name, size in zip(s.eval_images, sizes)) + (
            Field("label", own, "uint8", missing=IGNORE_INDEX),
        )


def read_picture(path: str) -> np.ndarray:
    """A picture as it is stored, uint8 RGB (H, W, 3). Raises BadSample.

    A mark of rotation is not obeyed: masks carry none, so obeying it would turn the picture against its mask.
    """
    with images.open_image(path) as image:
        return np.asarray(images.to_rgb(image))


def fit(size: tuple[int, int], base: tuple[int, int] | None, ratio: float) -> tuple[int, int]:
    """The largest (height, width) of the same proportions that fits into base * ratio, long side in long side.

    Without a base it is size * ratio.
    """
    factor = ratio
    if base is not None:
        long, short = (int(side * ratio) for side in (max(base), min(base)))
        factor = min(long / max(size), short / min(size))
    return max(1, int(size[0] * factor + 0.5)), max(1, int(size[1] * factor + 0.5))


def fitted(image: np.ndarray, base: tuple[int, int] | None, ratio: float) -> np.ndarray:
    """A picture (H, W, 3) as an evaluation shows it to the net: fitted into base * ratio, or its own size * ratio."""
    return _resized(image, fit(image.shape[:2], base, ratio), cv2.INTER_LINEAR)


def augment(
    image: np.ndarray, label: np.ndarray, s: SegmentationSettings, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A picture and its label, both (H, W), as a training sample of size `crop`."""
    size = fit(label.shape, s.base_size, rng.uniform(*s.scale))
    image, label = _resized(image, size, cv2.INTER_LINEAR), _resized(label, size, cv2.INTER_NEAREST)
    top, left = corner(label, s.crop, s.max_share, rng)
    image, label = (part[top : top + s.crop[0], left : left + s.crop[1]] for part in (image, label))
    if s.flip and rng.random() < 0.5:
        image, label = cv2.flip(image, 1), cv2.flip(label, 1)
    if s.photometric:
        image = photometric.distort(image, photometric.draw_params(rng))
    # Upstream pads with 0 after the normalisation. Pixels travel as bytes, so it is the byte nearest to the mean.
    return _padded(image, s.crop, [round(255 * mean) for mean in s.mean]), _padded(label, s.crop, [IGNORE_INDEX])


def corner(label: np.ndarray, crop: tuple[int, int], max_share: float, rng: np.random.Generator) -> tuple[int, int]:
    """(top, left) of a crop, uniform; drawn again while it shows no class or one that has a share of `max_share`."""
    room = [max(side - kept, 0) + 1 for side, kept in zip(label.shape, crop)]
    top, left = rng.integers(room)
    for _ in range(REDRAWS if max_share < 1 else 0):
        part = label[top : top + crop[0], left : left + crop[1]]
        pixels = np.bincount(part.ravel(), minlength=256)[:IGNORE_INDEX]
        if pixels.max() < max_share * pixels.sum():
            break
        top, left = rng.integers(room)
    return int(top), int(left)


def _resized(image: np.ndarray, size: tuple[int, int], how: int) -> np.ndarray:
    return cv2.resize(image, size[::-1], interpolation=how)


def _padded(image: np.ndarray, size: tuple[int, int], value: Sequence[int]) -> np.ndarray:
    """A copy of at least this size, filled at the bottom and on the right."""
    bottom, right = (max(side - own, 0) for side, own in zip(size, image.shape))
    return cv2.copyMakeBorder(image, 0, bottom, 0, right, cv2.BORDER_CONSTANT, value=value)
