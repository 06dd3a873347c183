"""Clips as folders of numbered images, decoded to uint8 RGB arrays (H, W, 3). Failures raise BadSample."""

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zoo.data import cache, stages
from zoo.data.errors import BadSample
from zoo.data.formats import images, regular
from zoo.data.formats.video import FrameSampler, sample_indices
from zoo.data.transforms.geometry import Size


class EncodedFrame(NamedTuple):
    """The file of one frame."""

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
    """Read frames of a folder of numbered images, still encoded.

    Args:
        folder: the folder.
        template: format string of the file names, such as "img_{:05d}.jpg".
        first: number of the first image.
        count: number of images according to the list. If a sampled one is missing, the existing images are counted
            and sampled instead.
        sample_frames: called with the number of images, returns the 0-based indices of the images to read.
        min_frames: number of images that the folder must have.
        local: gives the path to read an image from.

    Returns:
        The files, in the order of the flattened indices.

    Raises:
        BadSample: the folder is missing or too short, or an image cannot be read.
    """
    try:
        try:
            indices = sample_indices(sample_frames, count, min_frames)
            return _read_files([os.path.join(folder, template.format(first + index)) for index in indices], local)
        except FileNotFoundError:
            paths = _numbered_images(folder, template)
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
    header = images.jpeg_header(encoded.content)
    return (header.width, header.height) if header and not header.may_be_rotated else None


def _decode(name: str, content: bytes, count: int) -> np.ndarray:
    """Decode one of `count` images, upright."""
    try:
        encoded = images.parse(content)
        regular.check_pixels(*encoded.size, regular.MAX_FRAME_PIXELS)
        regular.check_clip(*encoded.size, count)
        return encoded.upright(images.decode_stored(encoded))
    except BadSample as error:
        raise BadSample(f"{name}: {error}") from None


def _read_files(paths: Sequence[str], local: cache.LocalPath) -> list[EncodedFrame]:
    return [EncodedFrame(os.path.basename(path), regular.read(local(path))) for path in paths]


def _numbered_images(folder: str, template: str) -> list[str]:
    """Return the paths of the existing images of a template, in the order of their numbers."""
    prefix, suffix = re.split(r"\{[^}]*\}", template, maxsplit=1)
    pattern = re.compile(re.escape(prefix) + r"(\d+)" + re.escape(suffix) + "$")
    try:
        matches = [match for match in map(pattern.match, os.listdir(folder)) if match]
    except FileNotFoundError:
        raise BadSample("no such folder") from None
    return [os.path.join(folder, name) for _, name in sorted((int(match[1]), match.string) for match in matches)]
