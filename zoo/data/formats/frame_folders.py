"""Clips as folders of numbered images, decoded to uint8 RGB arrays (H, W, 3). Failures raise BadSample."""

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zoo.data import cache, sources, stages
from zoo.data.errors import BadSample
from zoo.data.formats import regular
from zoo.data.formats.video import FrameSampler, sample_indices
from zoo.data.transforms.geometry import Size


class EncodedFrame(NamedTuple):
    name: str
    content: bytes


@stages.stage(stages.READ)
def read_images(
    folder: str,
    template: str,
    first: int,
    count: int,
    sample_frames: FrameSampler,
    min_frames: int = 1,
    local: cache.LocalPath = cache.source_path,
) -> list[EncodedFrame]:
    """Read frames of a folder of numbered images, still encoded. Raises BadSample.

    Args:
        template: format string of the file names, such as "img_{:05d}.jpg".
        count: number of images according to the list. If a sampled one is missing, the existing images are counted
            and sampled instead.
        sample_frames: called with the number of images, returns the 0-based indices of the images to read.

    Returns:
        The files, in the order of the flattened indices.
    """
    try:
        try:
            indices = sample_indices(sample_frames, count, min_frames)
            return _read_files([os.path.join(folder, template.format(first + index)) for index in indices], local)
        except FileNotFoundError:
            paths = [path for _, path in sorted(numbered_images(folder, template).items())]
            indices = sample_indices(sample_frames, len(paths), min_frames)
            return _read_files([paths[index] for index in indices], local)
    except OSError as error:
        raise BadSample(f"cannot be read ({error.strerror}: {error.filename})") from None


@stages.stage(stages.DECODE)
def decode_images(encoded: Sequence[EncodedFrame]) -> list[np.ndarray]:
    """Decode images of one size: uint8 RGB (H, W, 3) each. Raises BadSample."""
    frames = [_decode(name, content, len(encoded)) for name, content in encoded]
    if any(frame.shape != frames[0].shape for frame in frames):
        raise BadSample("its images differ in size")
    return frames


def plain_size(encoded: EncodedFrame) -> Size | None:
    """Return width and height of an ordinary JPEG file that is stored upright; None for another file."""
    from zoo.data.formats import headers  # as below, which videos do without

    header = headers.jpeg_header(encoded.content)
    return (header.width, header.height) if header and not header.may_be_rotated else None


def _decode(name: str, content: bytes, count: int) -> np.ndarray:
    """Decode one of `count` images, upright."""
    from zoo.data.formats import images

    try:
        encoded = images.parse(content)
        regular.check_pixels(*encoded.size, regular.MAX_FRAME_PIXELS)
        regular.check_clip(*encoded.size, count)
        return encoded.upright(images.decode_stored(encoded))
    except BadSample as error:
        raise BadSample(f"{name}: {error}") from None


def _read_files(paths: Sequence[str], local: cache.LocalPath) -> list[EncodedFrame]:
    return [EncodedFrame(os.path.basename(path), regular.read(local(path))) for path in paths]


def numbered_images(folder: str, template: str) -> dict[int, str]:
    """Return the paths of the existing images of a template by their numbers. Raises BadSample if there is none."""
    prefix, suffix = re.split(r"\{[^}]*\}", template, maxsplit=1)
    pattern = re.compile(re.escape(prefix) + r"(\d+)" + re.escape(suffix))
    try:
        names = sources.listdir(folder)
    except FileNotFoundError:
        raise BadSample("no such folder") from None
    found = {int(match[1]): os.path.join(folder, match.string) for match in map(pattern.fullmatch, names) if match}
    if not found:
        held = min(filter(re.compile(r"\d").search, names), default="")
        other = f"data.frame_template={_template(held)} names its {held}" if held else "it holds no numbered file"
        raise BadSample(f"no image is named as data.frame_template says, {template} ({template.format(1)}); {other}")
    return found


def difference(folder: str, template: str, first: int, count: int) -> str:
    """Return how a folder differs from the frames that a list says it has; an empty text if it does not."""
    numbers = numbered_images(folder, template)
    lowest, highest = min(numbers), max(numbers)
    if (len(numbers), lowest, highest) == (count, first, first + count - 1):
        return ""
    return (
        f"the list says {count} frames, the folder has {len(numbers)}, with numbers from {lowest} to {highest}; "
        f"data.first_frame is {first}"
    )


def _template(name: str) -> str:
    """Return the template of a file's name: img_{:05d}.jpg for img_00001.jpg."""
    return re.sub(r"\d+(?=\D*$)", lambda match: f"{{:0{len(match[0])}d}}", name, count=1)
