"""Minimal DALI pipelines that read training samples as a short script would: DALI's own reader, order and random crops.

There is one for images and one for faces, sets of which DALI decodes everything. They do the work of the recipe (size,
filter, area of the crops, flips) with DALI's default settings; samples are not those of a training run.
"""

import os
import tempfile
from collections.abc import Callable
from typing import Any

from zoo.data.datasets.faces import FaceSplit
from zoo.data.datasets.imagenet import ImageSplit
from zoo.data.formats.face_packs import FacePack

ReadBatch = Callable[[], Any]


def reader(dataset: Any, batch_size: int, threads: int, device_id: int | None) -> ReadBatch | None:
    """Return a function that reads the next batch; None if there is none for this split.

    Args:
        dataset: a training split.
        batch_size: images per batch.
        threads: of DALI.
        device_id: number of the CUDA device; None for a CPU.

    Returns:
        A function without arguments. What it returns is DALI's: uint8 (batch_size, H, W, 3), on the device.
    """
    definitions: dict[type, Callable[[Any, str, str], Any]] = {ImageSplit: _images, FaceSplit: _faces}
    define = definitions.get(type(dataset))
    if define is None or getattr(dataset, "prepared", None):
        return None
    from nvidia.dali.pipeline import Pipeline

    pipeline = Pipeline(batch_size, threads, device_id)
    with tempfile.TemporaryDirectory() as folder, pipeline:
        pipeline.set_outputs(define(dataset, "cpu" if device_id is None else "mixed", folder))
        pipeline.build()

    def read() -> Any:
        (images,) = pipeline.run()
        return images.as_tensor()

    return read


def _images(split: ImageSplit, decoder: str, folder: str) -> Any:
    from nvidia.dali import fn
    from nvidia.dali import types as dali_types

    s = split.settings
    types: Any = dali_types  # whose constants type checkers do not see
    files = [os.path.join(s.root, split.name(index)) for index in range(len(split))]
    encoded, _ = fn.readers.file(files=files, random_shuffle=True)
    images: Any = fn.decoders.image_random_crop(
        encoded, device=decoder, random_area=list(s.scale), random_aspect_ratio=list(s.ratio)
    )
    images = fn.resize(images, size=[s.size, s.size], interp_type=types.INTERP_LINEAR, antialias=s.antialias)
    return fn.flip(images, horizontal=fn.random.coin_flip())


def _faces(split: FaceSplit, decoder: str, folder: str) -> Any:
    from nvidia.dali import fn

    source = split.source
    if isinstance(source, FacePack):
        # An index of the images alone: the pack's own also has the records of its identities.
        index = os.path.join(folder, "images.idx")
        with open(index, "w", encoding="ascii") as file:
            file.writelines(f"{source.keys[row]}\t{source.offsets[row]}\n" for row in split.rows)
        encoded, _ = fn.readers.mxnet(path=source.pack.path, index_path=index, random_shuffle=True)
    else:
        files = [str(source.encoded(row)) for row in split.rows]
        encoded, _ = fn.readers.file(files=files, random_shuffle=True)
    return fn.flip(fn.decoders.image(encoded, device=decoder), horizontal=fn.random.coin_flip())
