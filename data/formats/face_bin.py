"""The .bin files of insightface's verification sets: pickles of encoded images and a flag per pair."""

import io
from typing import Any

from zoo.data.errors import UserError
from zoo.data.formats import regular, safe_pickle
from zoo.data.parsing import parsing

MAX_BYTES = 2 << 30  # of a file; the published ones have less than a tenth of it
REMEDY = "download it again, or write the pairs into a text file with lines `path path 0|1`"


def read_bin(path: str) -> tuple[list[bytes], list[bool], bytes]:
    """Read a verification set without running code from its pickle.

    Args:
        path: the .bin file.

    Returns:
        The 2P encoded images, of which 2i and 2i + 1 are pair i; for each of the P pairs, whether both images show
        the same person; and the content of the file.

    Raises:
        UserError: the file cannot be read or is not a verification set; the message names the file and, where one is
            the cause, the image or pair.
    """
    with parsing(f"{path}: cannot read this verification set", REMEDY), regular.open_file(path, MAX_BYTES) as file:
        content = file.read()
    problem = f"{path}: refused: it is damaged, or holds more than images, which would mean running code from it"
    with parsing(problem, REMEDY):  # encoding: strings of Python 2 are bytes
        loaded = safe_pickle.load(io.BytesIO(content), dtypes=("u1",), encoding="bytes")
    if not isinstance(loaded, (tuple, list)) or [type(part) for part in loaded] != [list, list]:
        raise UserError(f"{path}: not a verification set, which is a list of images and a list of flags; {REMEDY}")
    items, flags = loaded
    if len(items) != 2 * len(flags) or not flags:
        raise UserError(f"{path}: {len(items)} images for {len(flags)} pairs; {REMEDY}")
    for pair, flag in enumerate(flags):
        if type(flag) not in (bool, int) or flag not in (0, 1):
            raise UserError(f"{path}: the flag of pair {pair} is neither true nor false; {REMEDY}")
    images = [_encoded(item) for item in items]
    for index, image in enumerate(images):
        if not isinstance(image, bytes) or not image:
            raise UserError(f"{path}: image {index} (of pair {index // 2}) is not an encoded image; {REMEDY}")
    return images, [bool(flag) for flag in flags], content


def _encoded(item: Any) -> Any:
    """Return the bytes of an array; any other item as it is."""
    return item.content if isinstance(item, safe_pickle.Array) else item
