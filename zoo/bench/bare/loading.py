"""Minimal loops that read training samples with the libraries alone, as a short script would: no checks, no odd files.

They do what the recipe asks for (size, filter, photometric distortion) with random crops of their own, so samples take
the same work and are not the same.
"""

import math
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from zoo.data.augment import colors
from zoo.data.datasets.faces import FaceSplit
from zoo.data.datasets.imagenet import ImageSplit
from zoo.data.datasets.kinetics import ClipSplit
from zoo.data.datasets.segmentation import SegmentationSplit, fit_size
from zoo.data.extras import Image, cv2
from zoo.data.formats.face_packs import FacePack
from zoo.data.formats.recordio import FRAME_HEADER, IMAGE_HEADER

Read = Callable[[int], Any]


def reader(dataset: Any) -> Read | None:
    """Return a function that reads the sample of an index of a training split; None if there is none for this split."""
    readers: dict[type, Any] = {ImageSplit: _images, ClipSplit: _clips, SegmentationSplit: _scenes, FaceSplit: _faces}
    return readers[type(dataset)](dataset) if type(dataset) in readers else None


def _images(split: ImageSplit) -> Read:
    s = split.settings

    def read(index: int) -> np.ndarray:
        image = cv2.imread(os.path.join(s.root, split.name(index)), cv2.IMREAD_COLOR)
        height, width = image.shape[:2]
        area = width * height * random.uniform(*s.scale)
        ratio = math.exp(random.uniform(math.log(s.ratio[0]), math.log(s.ratio[1])))
        w, h = min(width, round(math.sqrt(area * ratio))), min(height, round(math.sqrt(area / ratio)))
        left, top = random.randint(0, width - w), random.randint(0, height - h)
        return _rgb(_flip(_resize(image[top : top + h, left : left + w], s.size, s.size, s.antialias)))

    return read


def _clips(split: ClipSplit) -> Read:
    import decord

    s = split.settings

    def read(index: int) -> np.ndarray:
        clip = split.clips[index]
        path = os.path.join(s.root, clip.path)
        if clip.frames is None:
            video = decord.VideoReader(path, ctx=decord.cpu(0), num_threads=1)
            frames = video.get_batch(_segment_frames(len(video), s.segments)).asnumpy()
        else:
            names = [s.frame_template.format(s.first_frame + at) for at in _segment_frames(clip.frames, s.segments)]
            frames = np.stack([_rgb(cv2.imread(os.path.join(path, name), cv2.IMREAD_COLOR)) for name in names])
        height, width = frames.shape[1:3]
        side = int(min(width, height) * random.choice(s.scales))
        left, top = random.randint(0, width - side), random.randint(0, height - side)
        boxes = frames[:, top : top + side, left : left + side]
        return np.stack([_resize(box, s.size, s.size, s.antialias) for box in boxes])

    return read


def _scenes(split: SegmentationSplit) -> Read:
    s = split.settings

    def read(index: int) -> tuple[np.ndarray, np.ndarray]:
        paths = [os.path.join(s.root, os.fsdecode(bytes(names[index]))) for names in (split.images, split.masks)]
        image, label = cv2.imread(paths[0], cv2.IMREAD_COLOR), cv2.imread(paths[1], cv2.IMREAD_UNCHANGED)
        label = cv2.LUT(label, split.label_map.table)
        height, width = fit_size(label.shape, s.base_size, random.uniform(*s.scale))
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
        label = cv2.resize(label, (width, height), interpolation=cv2.INTER_NEAREST)
        top, left = (random.randint(0, max(side - crop, 0)) for side, crop in zip((height, width), s.crop))
        image, label = (array[top : top + s.crop[0], left : left + s.crop[1]] for array in (image, label))
        image = _rgb(_flip(image))
        if s.photometric:
            image = colors.distort(image, colors.draw_params(np.random.default_rng(index)))
        return image, label

    return read


def _faces(split: FaceSplit) -> Read:
    source = split.source

    def read_pack(index: int) -> np.ndarray:
        assert isinstance(source, FacePack)
        file.seek(int(source.offsets[split.rows[index]]))
        _, length = FRAME_HEADER.unpack(file.read(FRAME_HEADER.size))
        record = np.frombuffer(file.read(length), np.uint8)
        return _rgb(_flip(cv2.imdecode(record[IMAGE_HEADER.size :], cv2.IMREAD_COLOR)))

    def read_file(index: int) -> np.ndarray:
        return _rgb(_flip(cv2.imread(str(source.encoded(split.rows[index])), cv2.IMREAD_COLOR)))

    if not isinstance(source, FacePack):
        return read_file
    file = open(source.pack.path, "rb")  # noqa: SIM115  # read until the program ends
    return read_pack


def _segment_frames(count: int, segments: int) -> list[int]:
    return [int((segment + random.random()) * count / segments) for segment in range(segments)]


def _resize(image: np.ndarray, width: int, height: int, antialias: bool) -> np.ndarray:
    """Resize with the recipe's filter; Pillow's is the only library with the antialiased one in bytes."""
    if not antialias:
        return cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.asarray(Image.fromarray(np.ascontiguousarray(image)).resize((width, height), Image.Resampling.BILINEAR))


def _flip(image: np.ndarray) -> np.ndarray:
    return cv2.flip(image, 1) if random.random() < 0.5 else image


def _rgb(image: np.ndarray) -> np.ndarray:
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
