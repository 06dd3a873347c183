"""A reference writer of RecordIO packs, from the layout alone; and pictures to put into them."""

import io
import struct

import numpy as np
from PIL import Image

MAGIC = struct.pack("<I", 0xCED7230A)


def frames(payload):
    """One record: cut wherever the magic word lies at a multiple of 4, which is left out there."""
    cuts = [at for at in range(0, len(payload) - 3, 4) if payload[at : at + 4] == MAGIC]
    parts = [payload[start:end] for start, end in zip([0] + [at + 4 for at in cuts], cuts + [len(payload)])]
    kinds = [0] if len(parts) == 1 else [1] + [2] * (len(parts) - 2) + [3]
    return b"".join(
        MAGIC + struct.pack("<I", kind << 29 | len(part)) + part + bytes(-len(part) % 4)
        for kind, part in zip(kinds, parts)
    )


def content(body, *labels, width=4, flag=None):
    """The payload of an image record. One label goes into the header unless a flag or 64 bits are asked for."""
    if len(labels) == 1 and width == 4 and flag is None:
        return struct.pack("<IfQQ", 0, labels[0], 0, 0) + body
    more = struct.pack(f"<{len(labels)}{'f' if width == 4 else 'd'}", *labels)
    return struct.pack("<IfQQ", len(labels), 0.0, 0, 0) + more + body


def write(folder, payloads, name="train"):
    """Write {key: payload}, in this order, as <name>.rec and <name>.idx; the offsets by key."""
    pack, lines, offsets = bytearray(), [], {}
    for key, payload in payloads.items():
        offsets[key] = len(pack)
        lines.append(f"{key}\t{len(pack)}\n")
        pack += frames(payload)
    (folder / f"{name}.rec").write_bytes(pack)
    (folder / f"{name}.idx").write_text("".join(lines))
    return offsets


def face_pack(people, width=4, more=()):
    """Payloads as insightface writes them: pictures of each person in turn, identity records, key 0 last.

    people: for each, a list of encoded pictures. more: labels behind the person's own.
    """
    found, key, spans = {}, 1, []
    for person, pictures in enumerate(people):
        spans.append((key, key + len(pictures)))
        for picture in pictures:
            found[key] = content(picture, person, *more, width=width)
            key += 1
    end = key
    for span in spans:
        found[key] = content(b"", *span, width=width)
        key += 1
    found[0] = content(b"", end, key, width=width)
    return found


def picture(value, size=12, form="PNG"):
    """An encoded picture whose pixels tell its value: red is value, green counts columns, blue counts rows."""
    return encode(pixels(value, size), form)


def pixels(value, size=12):
    rows, columns = np.mgrid[:size, :size]
    return np.stack([np.full_like(rows, value), columns, rows], -1).astype(np.uint8)


def encode(array, form="PNG"):
    file = io.BytesIO()
    Image.fromarray(array).save(file, form)
    return file.getvalue()
