"""Reading of prepared data sets, by sample number: labels, names, and contents of files or packs."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np

from zoo.data import cache, host, sources
from zoo.data.contents import Content, sampled_frames
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import images
from zoo.data.formats.lists import LabeledPath
from zoo.data.formats.recordio import RecordFile, unpack_image
from zoo.data.packs import manifest


class PreparedSplit:
    """One split of a prepared data set. It keeps no state between samples, so threads and processes may share it.

    Attributes:
        info: What is known of the whole data set.
        labels: int64 (n,), -1 without classes.
        frames: int32 (n,), number of frames of every clip.
        bytes: int64 (n,), size of the source files.

    Args:
        local: Gives the path to read a source file from.
    """

    def __init__(self, folder: str, name: str, local: cache.LocalPath = cache.source_path):
        self.folder, self.split, self.local = folder, name, local
        content = manifest.read(folder)
        self.info = content.info
        if name not in self.info.splits:
            raise UserError(f"{folder}: there is no split {name}, only {', '.join(self.info.splits)}")
        rows = slice(*self.info.splits[name])
        self.labels, self.frames = content.columns["label"][rows], content.columns["frames"][rows]
        self.bytes = content.columns["bytes"][rows]
        self._paths, self._masks = content.paths[rows], content.masks[rows]
        self._shard, self._first = content.columns["shard"][rows], content.columns["first_record"][rows]
        self._counts, self._record = content.columns["records"][rows], content.record
        self._packs = {
            int(number): RecordFile(os.path.join(folder, self.info.shards[number]))
            for number in np.unique(self._shard)
            if number >= 0
        }

    def __reduce__(self):
        return PreparedSplit, (self.folder, self.split, self.local)  # smaller than the contents, and quickly read

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, index: int) -> str:
        """Return the path of a sample in the source data set."""
        return os.fsdecode(self._paths[index])

    def path(self, index: int) -> str:
        """Return the path of the source file of a sample."""
        return os.path.join(self.info.root, self.name(index))

    def mask_name(self, index: int) -> str:
        return os.fsdecode(self._masks[index])

    def mask_path(self, index: int) -> str:
        return os.path.join(self.info.root, self.mask_name(index))

    def labeled_paths(self) -> list[LabeledPath]:
        """Return path, label and, of clips that are stored as frames, number of frames of all samples."""
        frames = self.frames.tolist() if self.info.form in ("frames", "folders") else [None] * len(self)
        labels = self.labels.tolist()
        return [LabeledPath(os.fsdecode(path), label, n) for path, label, n in zip(self._paths, labels, frames)]

    def contents(self) -> Iterator[tuple[Content, ...]]:
        """Return the files or records of each sample; of a clip in frames the first, the middle and the last."""
        of_frames = self.info.form in ("frames", "folders")
        for index in range(len(self)):
            numbers = sampled_frames(int(self.frames[index])) if of_frames else None
            yield tuple(self._records(index, numbers) if self._packs else self._files(index, numbers))

    def first_content(self, index: int) -> Content:
        """Return the first file or record of a sample: its image or video, or the first frame of a clip."""
        if self._packs:
            return next(self._records(index, [0]))
        return next(self._files(index, [0] if self.info.form in ("frames", "folders") else None))

    def _records(self, index: int, numbers: Sequence[int] | None) -> Iterator[Content]:
        first, path = int(self._first[index]), self._packs[int(self._shard[index])].path
        if numbers is None:
            numbers = range(2 if self._masks else 1)
        for number in numbers:
            (offset,) = self._record[first + number : first + number + 1].tolist()
            yield Content(path, offset)

    def _files(self, index: int, numbers: Sequence[int] | None) -> Iterator[Content]:
        if numbers is not None:
            yield from (Content(os.path.join(self.path(index), self._frame_name(number))) for number in numbers)
            return
        yield Content(self.path(index))
        if self._masks:
            yield Content(self.mask_path(index))

    def _frame_name(self, number: int) -> str:
        return self.info.frame_template.format(self.info.first_frame + number)

    def open(self, index: int) -> AbstractContextManager[str]:
        """Give the image or video file of a sample a path, for decoders that read paths: a packed one in memory.

        Raises:
            BadSample: It cannot be read.
        """
        if self._packs:
            return host.readable_path(self._packed(index, 0))
        return sources.local_path(self.local(self.path(index)))

    def content(self, index: int) -> bytes:
        """Return the image or video file of a sample. Raises BadSample."""
        return self._packed(index, 0) if self._packs else images.read_content(self.local(self.path(index)))

    def mask(self, index: int) -> bytes:
        """Return the file of a mask. Raises BadSample."""
        return self._packed(index, 1) if self._packs else images.read_content(self.local(self.mask_path(index)))

    def frame_contents(self, index: int, numbers: Sequence[int]) -> list[bytes]:
        """Return frames of a clip that is stored as frames, each an image file. Raises BadSample."""
        outside = [number for number in numbers if not 0 <= number < self.frames[index]]
        if outside:
            raise BadSample(f"there is no frame {outside[0]} in a clip of {self.frames[index]} frames")
        if self._packs:
            return [self._packed(index, number) for number in numbers]
        names = [self._frame_name(number) for number in numbers]
        return [images.read_content(self.local(os.path.join(self.path(index), name))) for name in names]

    def _packed(self, index: int, number: int) -> bytes:
        """Return a record of a sample without its header."""
        if number >= self._counts[index]:
            raise BadSample(f"there is no record {number} of this sample")
        position = int(self._first[index]) + number
        (offset,) = self._record[position : position + 1].tolist()
        return unpack_image(self._packs[int(self._shard[index])].read(offset)).encoded
