"""Decoding of image files to RGB by OpenCV."""

import cv2
import numpy as np

RGB: int = getattr(cv2, "IMREAD_COLOR_RGB", 0)  # of OpenCV 4.11 and later; older ones decode to BGR alone


def decode(encoded: bytes, flags: int = cv2.IMREAD_COLOR) -> np.ndarray | None:
    """Decode an image file.

    Args:
        encoded: the file.
        flags: of cv2.imdecode, with that for colors.

    Returns:
        uint8 RGB (H, W, 3); None if it cannot be decoded.
    """
    if not encoded:
        return None
    content = np.frombuffer(encoded, np.uint8)
    if RGB:
        return cv2.imdecode(content, flags & ~cv2.IMREAD_COLOR | RGB)  # OpenCV 5 refuses both
    pixels = cv2.imdecode(content, flags)
    return None if pixels is None else cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB, dst=pixels)
