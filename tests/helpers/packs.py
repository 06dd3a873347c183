"""Reference writer of RecordIO packs, from the layout alone, and images to put into them."""

import io
import struct

import numpy as np
from PIL import Image

MAGIC = struct.pack("<I", 0xCED7230A)


def frames(payload):
    """Encode one record: it is split wherever the magic word is at a multiple of 4, and the word is left out there."""
    cuts = [at for at in range(0, len(payload) - 3, 4) if payload[at : at + 4] == MAGIC]
    parts = [payload[start:end] for start, end in zip([0] + [at + 4 for at in cuts], cuts + [len(payload)])]
    flags = [0] if len(parts) == 1 else [1] + [2] * (len(parts) - 2) + [3]
    return b"".join(
        MAGIC + struct.pack("<I", flag << 29 | len(part)) + part + bytes(-len(part) % 4)
        for flag, part in zip(flags, parts)
    )


def content(body, *labels, width=4, flag=None):
    """Encode the payload of an image record. A single label is in the header unless a flag or 64 bits are given."""
    if len(labels) == 1 and width == 4 and flag is None:
        return struct.pack("<IfQQ", 0, labels[0], 0, 0) + body
    floats = struct.pack(f"<{len(labels)}{'f' if width == 4 else 'd'}", *labels)
    return struct.pack("<IfQQ", len(labels), 0.0, 0, 0) + floats + body


def write(folder, payloads, name="train"):
    """Write {key: payload} in this order as <name>.rec and <name>.idx, and return the offset of every key."""
    pack, lines, offsets = bytearray(), [], {}
    for key, payload in payloads.items():
        offsets[key] = len(pack)
        lines.append(f"{key}\t{len(pack)}\n")
        pack += frames(payload)
    (folder / f"{name}.rec").write_bytes(pack)
    (folder / f"{name}.idx").write_text("".join(lines))
    return offsets


def face_pack(identities, width=4, more=()):
    """Return payloads in insightface's order: images of each identity, identity records, key 0 last.

    identities: a list of encoded images for each. more: labels after the identity's own.
    """
    payloads, key, ranges = {}, 1, []
    for identity, images in enumerate(identities):
        ranges.append((key, key + len(images)))
        for image in images:
            payloads[key] = content(image, identity, *more, width=width)
            key += 1
    end = key
    for key_range in ranges:
        payloads[key] = content(b"", *key_range, width=width)
        key += 1
    payloads[0] = content(b"", end, key, width=width)
    return payloads


def encoded_image(value, size=12, form="PNG"):
    return encode(pixels(value, size), form)


def pixels(value, size=12):
    """Return an image that identifies its value: red is the value, green counts columns, blue counts rows."""
    rows, columns = np.mgrid[:size, :size]
    return np.stack([np.full_like(rows, value), columns, rows], -1).astype(np.uint8)


def encode(array, form="PNG"):
    file = io.BytesIO()
    Image.fromarray(array).save(file, form)
    return file.getvalue()
