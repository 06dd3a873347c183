"""Decoding of a box of a JPEG image by libjpeg-turbo, through nvImageCodec where that is installed.

The rows below the box are not decoded at all, those above it and the columns beside it only as far as the compression
demands. The pixels are those of the whole image: libjpeg-turbo is the decoder of OpenCV and Pillow, too.
"""

import os
import tempfile
import threading
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np

from zoo.data import stages
from zoo.data.transforms.geometry import Box

CODEC = "nvidia.nvimgcodec"  # module of nvImageCodec
CPU_ONLY = -99999  # its number for no GPU
CODECS = "NVIMGCODEC_EXTENSIONS_PATH"  # variable: the folder of its codecs
VERBOSITY = "PYNVIMGCODEC_VERBOSITY"  # variable: 0 for no output

_of_thread, _loading = threading.local(), threading.Lock()


@stages.stage(stages.DECODE)
def decode_box(content: bytes, box: Box) -> np.ndarray | None:
    """Decode a box of an ordinary JPEG file, in the coordinates of the stored image.

    Returns:
        uint8 RGB (H, W, 3); None if nvImageCodec is not installed or cannot decode it.
    """
    if not hasattr(_of_thread, "codec"):
        _prepare_thread()
    codec = _of_thread.codec
    if codec is None:
        return None
    left, top, width, height = box
    region = codec.Region([top, left], [top + height, left + width])
    stream = codec.CodeStream(content).get_sub_code_stream(region=region)
    image = _of_thread.decoder.decode(stream, params=_of_thread.stored)
    return None if image is None else np.asarray(image)


def _prepare_thread() -> None:
    with _loading:
        codec = _of_thread.codec = _codec()
    if codec is not None:
        cpu = codec.Backend(codec.BackendKind.CPU_ONLY)
        _of_thread.decoder = codec.Decoder(device_id=CPU_ONLY, max_num_cpu_threads=1, backends=[cpu])
        _of_thread.stored = codec.DecodeParams(apply_exif_orientation=False)


@cache
def _codec() -> ModuleType | None:
    """Import nvImageCodec with libjpeg-turbo alone: its other codecs print that there are no CUDA libraries."""
    spec = find_spec(CODEC) if find_spec("nvidia") else None
    if spec is None or not spec.origin:
        return None
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        for library in Path(spec.origin).parent.glob("extensions/libjpeg_turbo_ext.*"):
            (Path(folder) / library.name).symlink_to(library)
        os.environ.update({CODECS: folder, VERBOSITY: "0"})
        try:
            return import_module(CODEC)
        finally:  # DALI reads them, too
            for name in (CODECS, VERBOSITY):
                os.environ.pop(name)
                os.environ.update({name: before[name]} if name in before else {})
