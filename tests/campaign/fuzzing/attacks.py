"""Hand-made attacks on readers of files: for each the reader, the files, and what is said of them."""

import io
import json
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from tests.campaign.fuzzing import mutations, seeds
from tests.helpers import clips, packs
from zoo.data.packs import manifest

MIB = 1 << 20
SPECIAL = {"a pipe": None, "a device": "/dev/zero"}


class Attack(NamedTuple):
    """Files in the place of valid ones, those of a folder whose other files are valid.

    Attributes:
        kind: of the reader.
        files: content by path, None for a pipe, text for a link to another path.
        message: pattern of the error; "" if the files are read, but within their budget.
    """

    kind: str
    files: Mapping[str, bytes | str | None]
    message: str


def _each(
    kind: str, path: str, message: str, contents: Mapping[str, bytes | str | None], others: Mapping[str, Any] = {}
) -> Iterator[tuple[str, Attack]]:
    """Yield an attack for each content of a file, beside other files."""
    for name, content in contents.items():
        yield f"{kind}, {path}: {name}", Attack(kind, {**others, path: content}, message)


def _header(tensors: Mapping[str, Any], data: bytes = b"") -> bytes:
    return _text_header(json.dumps(tensors).encode(), data)


def _text_header(text: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text)) + text + data


def _tensor(shape: list[int], end: int = 4, start: int = 0, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def safetensors() -> Iterator[tuple[str, Attack]]:
    content = {
        "a shape that overflows": _header({"a": _tensor([1 << 32, 1 << 32, 4])}, bytes(4)),
        "an empty shape with a huge side": _header({"a": _tensor([0, 1 << 62], 0)}),
        "a million dimensions": _header({"a": _tensor([1] * 1_000_000)}, bytes(4)),
        "a header of exabytes": struct.pack("<Q", 1 << 62) + b"{}",
        "no header": b"\0\0\0",
        "a deep header": _text_header(b'{"a":' * 100_000),
        "a header of empty objects": _text_header(b"{" + b",".join(b'"%d":{}' % n for n in range(800_000)) + b"}"),
        "overlapping offsets": _header({"a": _tensor([1]), "b": _tensor([1])}, bytes(4)),
        "offsets beyond the end": _header({"a": _tensor([1 << 30], 1 << 32)}, bytes(4)),
        "negative offsets": _header({"a": _tensor([1], 4, -4)}, bytes(8)),
        "offsets of floats": _header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0.0, 4.0]}}, bytes(4)),
        "a hole": _header({"a": _tensor([1], 8, 4)}, bytes(8)),
        "bytes that belong to no tensor": _header({"a": _tensor([1])}, bytes(400)),
        "an unknown type": _header({"a": _tensor([1], dtype="C64")}, bytes(4)),
        "a tensor without a shape": _header({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, bytes(4)),
        "a shape of text": _header({"a": {"dtype": "F32", "shape": "1", "data_offsets": [0, 4]}}, bytes(4)),
        "metadata of numbers": _header({"__metadata__": {"arch": 3}}),
        "an arch that is no JSON": _header({"__metadata__": {"arch": "{"}}),
        "a deep arch": _header({"__metadata__": {"arch": "[" * 100_000}}),
    }
    yield from _each("safetensors", "a.safetensors", "a.safetensors", content)
    model = seeds.weights()[0]["a.safetensors"]
    end = 8 + int.from_bytes(model[:8], "little")
    noted = _header({**json.loads(model[8:end]), "__metadata__": {"notes": "3"}}, model[end:])
    yield "notes that are a number", Attack("weights to convert", {"a.safetensors": noted}, "notes")


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return mutations.varint(number << 3) + mutations.varint(value)
    return mutations.varint(number << 3 | 2) + mutations.varint(len(value)) + value


BOOL = _field(2, b"Bool")


def _value(dims: list[int], content: bytes = b"", dtype: bytes = b"Float32", name: bytes = b"a") -> bytes:
    tensor = b"".join(_field(1, size) for size in dims) + _field(2, dtype) + _field(3, content)
    return _field(1, _field(1, name) + _field(2, tensor))


def protobuf() -> Iterator[tuple[str, Attack]]:
    content = {
        "dimensions whose product has 4 million bits": _value([(1 << 64) - 1] * 65_000),
        "packed dimensions": _field(1, _field(1, b"a") + _field(2, _field(1, b"\x01" * 1_000_000) + BOOL)),
        "a dimension of 2 to the 63": _value([1 << 63], bytes(4)),
        "no elements, a huge side": _value([0, 1 << 62]),
        "a length beyond the end": b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        "an endless number": b"\xff" * 1000,
        "groups": b"\x0b" * 1000,
        "an unknown type": _value([1], bytes(4), b"Object"),
        "a million empty values": _field(1, b"") * 1_000_000,
        "200,000 tensors": b"".join(_value([1], b"a", b"Bool", b"%d" % number) for number in range(200_000)),
    }
    yield from _each(".ckpt", "a.ckpt", "a.ckpt", content)

    def variable(message: bytes, levels: int = 0, data: bytes = bytes(4), size: int | None = None) -> bytes:
        head = struct.pack("<IQIi", 0, levels, 0, len(message) if size is None else size)
        return head + message + data

    variables = {
        "2 to the 63 levels of detail": variable(b"", 1 << 63),
        "levels that end nowhere": struct.pack("<IQQ", 0, 1, 1 << 62),
        "a negative size": variable(b"", size=-1),
        "a size beyond the end": variable(b"", size=1 << 30),
        "dimensions whose product has 4 million bits": variable(_field(1, 5) + _field(2, (1 << 64) - 1) * 65_000),
        "100 dimensions": variable(_field(1, 5) + _field(2, 1) * 100),
        "no elements, a huge side": variable(_field(1, 5) + _field(2, 0) + _field(2, 1 << 62), data=b""),
        "an unknown type": variable(_field(1, 99)),
        "a type that is text": variable(_field(1, b"5")),
    }
    yield from _each("Paddle variables", "conv2d_0.w_0", "conv2d_0.w_0", variables)
    ranks = {"deep": b"[" * 100_000, "infinite": b'{"pretrain_nranks": Infinity, "num_classes": 5}'}
    yield from _each("Paddle variables", "meta.json", "meta.json", ranks)


def checkpoints() -> Iterator[tuple[str, Attack]]:
    path = "checkpoints/step-00000010/checkpoint.json"
    record = json.loads(seeds.checkpoint()[0][path])
    changes: dict[str, Any] = {
        "a file outside": {"files": {"../../../secret.safetensors": 3}},
        "an absolute file": {"files": {"/etc/passwd": 3}},
        "files that are a list": {"files": [1]},
        "an infinite step": {"step": float("inf")},
        "a negative step": {"step": -1},
        "a step of 400 digits": {"step": 10**400},
        "classes of numbers": {"classes": [1, 2]},
        "a recipe that is a list": {"recipe": "[1]"},
        "a recipe of repeated anchors": {
            "recipe": "a: &a [x]\n" + "b: &b [*a, *a]\n" * 2 + "".join(f"k{n}: [*b]\n" for n in range(9))
        },
    }
    contents = {name: json.dumps({**record, **change}).encode() for name, change in changes.items()}
    contents |= {"a deep record": b"[" * 100_000, "a record that is a number": b"3", "a record of zeros": bytes(1000)}
    contents["a record of empty objects"] = b"[" + b"{}," * 800_000 + b"{}]"
    yield from _each("checkpoints", path, "step-00000010|best/checkpoint.json", contents)


def faces() -> Iterator[tuple[str, Attack]]:
    pack = seeds.face_pack()[2]
    inner = packs.frames(packs.content(packs.encoded_image(1, 4), 0))
    nested = packs.frames(packs.content(inner, 0))
    huge, only = struct.pack("<II", 0xCED7230A, (1 << 29) - 1), b"0\t0\n"
    endless = struct.pack("<II", 0xCED7230A, 1 << 29) * 9
    labels = packs.frames(struct.pack("<IfQQ", 0xFFFFFFFF, 0.0, 0, 0))
    changes: dict[str, tuple[Mapping[str, bytes | str | None], str]] = {
        "keys that name one record": ({"train.idx": b"".join(b"%d\t0\n" % n for n in range(50_000))}, "train.idx"),
        "records within records": ({"train.rec": nested, "train.idx": b"0\t0\n1\t32\n"}, "train.rec"),
        "offsets beyond the end": ({"train.idx": pack["train.idx"] + b"99\t%d\n" % (1 << 62)}, "train.idx"),
        "an offset of 5000 digits": ({"train.idx": b"0\t" + b"1" * 5000 + b"\n"}, "train.idx"),
        "negative offsets": ({"train.idx": b"0\t-8\n"}, "train.idx"),
        "a record of 512 MiB": ({"train.rec": huge, "train.idx": only}, "train.rec"),
        "a record without an end": (
            {"train.rec": endless, "train.idx": only},
            "train",
        ),
        "4 billion labels": ({"train.rec": labels, "train.idx": only}, "train.rec"),
        "a property of 5000 digits": ({"property": b"1" * 5000}, "property"),
        "a pack that is a pipe": ({"train.rec": None}, "train.rec"),
        "a pack that never ends": ({"train.rec": "/dev/zero"}, "train.rec"),
    }
    for name, (files, message) in changes.items():
        yield f"face pack: {name}", Attack("face packs", {**pack, **files}, message)
    yield from _each("face .bin", "lfw.bin", "lfw.bin", SPECIAL)


def prepared() -> Iterator[tuple[str, Attack]]:
    def changed(change: Callable[[dict[str, Any], dict[str, np.ndarray]], object], form: int = 0) -> bytes:
        from safetensors.numpy import load, save

        content = seeds.prepared()[form][manifest.NAME]
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][manifest.METADATA_KEY])
        tensors = load(content)
        change(metadata, tensors)
        return save(tensors, {manifest.METADATA_KEY: json.dumps(metadata)})

    changes: dict[str, bytes] = {
        "a name of frames of a gigabyte": changed(lambda m, t: m.update(frame_template="{:999999999d}"), 1),
        "a name of frames with attributes": changed(lambda m, t: m.update(frame_template="{0.__class__}"), 1),
        "infinite splits": changed(lambda m, t: m.update(splits={"train": [0, float("inf")]})),
        "an absolute pack": changed(lambda m, t: m.update(shards=["/dev/zero"])),
        "more frames than records": changed(lambda m, t: m and t.update(frames=np.full(3, 1 << 30, np.int32)), 1),
        "pairs without masks": changed(lambda m, t: t.update(records=np.ones(3, np.int32)), 2),
        "negative frames": changed(lambda m, t: t.update(frames=np.full(3, -1, np.int32))),
        "records that overflow": changed(lambda m, t: t.update(first_record=np.full(3, (1 << 63) - 1))),
        "samples partly in packs": changed(lambda m, t: t.update(shard=np.array([0, -1, 0], np.int32))),
    }
    yield from _each("prepared packs", manifest.NAME, manifest.NAME, changes)


def _png(width: int, height: int, data: bytes, color: int = 2) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", data), (b"IEND", b"")]
    return mutations.PNG.join([(b"", b"\x89PNG\r\n\x1a\n"), *chunks])


def _zeros(size: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(size // MIB + 1)) + packer.flush()


def _jpeg(side: int, scans: int, progressive: bool) -> bytes:
    """Return a square JPEG file whose last scan is repeated, or replaced by scans without content."""
    file = io.BytesIO()
    Image.new("RGB", (side, side)).save(file, "JPEG", progressive=progressive, subsampling=0)
    content = file.getvalue()
    last = content.rindex(b"\xff\xda")
    if progressive:
        return content[:-2] + content[last:-2] * scans + content[-2:]
    return content[:last] + (b"\xff\xda" + struct.pack(">HBBB3s", 8, 1, 1, 0, b"\0\x3f\0")) * scans + content[-2:]


def _tiff(width: int, height: int, tile: int = 0) -> bytes:
    """Return a TIFF file of gray levels with one strip, or with one tile that is larger."""
    data = _zeros(tile * tile) if tile else bytes(300)
    tags = [(256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, 8 if tile else 1), (262, 3, 1)]
    if tile:
        tags += [(277, 3, 1), (322, 4, tile), (323, 4, tile), (324, 4, 134), (325, 4, len(data))]
    else:
        tags += [(273, 4, 200), (277, 3, 1), (278, 4, height), (279, 4, 100)]
    entries = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + bytes(4) + data


def _riff(kind: bytes, payload: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(payload) + 12) + b"WEBP" + kind + struct.pack("<I", len(payload)) + payload


def _image(form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, form, **options)
    return file.getvalue()


def _sized(content: bytes, at: int, layout: str, *numbers: int) -> bytes:
    return content[:at] + struct.pack(layout, *numbers) + content[at + struct.calcsize(layout) :]


def images() -> Iterator[tuple[str, Attack]]:
    jpeg, gif = _image("JPEG"), _image("GIF")
    frame = jpeg.index(b"\xff\xc0") + 5
    contents = {
        "a PNG of 60000 x 60000": _png(60_000, 60_000, _zeros(MIB)),
        "a PNG of 9400 x 9400 zeros": _png(9400, 9400, _zeros(3 * 9400 * 9400)),
        "an indexed PNG of 9000 x 9000": _png(9000, 9000, _zeros(9000 * 9001), color=0),
        "a PNG with alpha of 5000 x 5000": _png(5000, 5000, _zeros(4 * 5000 * 5001), color=6),
        "a PNG that promises 2 GiB": _png(16, 16, b"")[:33] + struct.pack(">I", (1 << 31) - 1) + b"eXIf" + bytes(100),
        "a PNG without pixels, twice": _png(16, 16, b"", 6)[:33] + _png(16, 16, b"", 6),
        "a PNG of one column": _png(1, 16_000_000, _zeros(2 * 16_000_000), color=0),
        "a JPEG of 65500 x 65500": _sized(jpeg, frame, ">HH", 65_500, 65_500),
        "a progressive JPEG of 3000 scans": _jpeg(4000, 3000, True),
        "a progressive JPEG of 7000 scans": _jpeg(1000, 7000, True),
        "a baseline JPEG of 12000 scans": _jpeg(4700, 12_000, False),
        "a TIFF with a tile of 17000 x 17000": _tiff(3300, 3300, 17_000),
        "a GIF of 65535 x 65535": _sized(gif, 6, "<HH", 65_535, 65_535),
        "a BMP of 2 billion columns": _sized(_image("BMP"), 18, "<i", (1 << 31) - 1),
        "a PPM of 9000 x 9000": b"P6 9000 9000 255\n" + bytes(100),
        "a PPM with 1.5 million comments": b"P3 3300 3300 255\n" + b"#a\n" * 1_500_000,
        "a PPM with 10000 digits": b"P6 " + b"1" * 10_000 + b" 1 255\n",
        "a TIFF of 4 billion columns": _tiff((1 << 32) - 1, 2),
        "a WebP of 16383 x 16383": _riff(b"VP8L", b"\x2f\xff\xff\xff\x0f" + bytes(50)),
        "an EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "an SVG": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="/etc/passwd"/></svg>',
        "nothing": b"",
    }
    yield from _each("images", "a.img", "", contents)
    for kind, path in {"images": "a.img", "masks": "a.png", "videos": "a.mp4"}.items():
        yield from _each(kind, path, "not a regular file", SPECIAL)
    squares = {"one column": contents["a PNG of one column"], "9400 x 9400": _png(9400, 9400, _zeros(9400 * 9401), 0)}
    yield from _each("masks", "a.png", "a side is|pixels", {**squares, "60000 x 60000": _png(60_000, 60_000, b"", 0)})
    yield from _each("videos", "a.ts", "pixels|cannot be decoded as video", {"frames that grow": _growing_video()})


def _growing_video() -> bytes:
    """Return a video whose first frames are small, and whose later ones have 10 million pixels."""
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for side in (16, 3200):
            path = Path(folder) / f"{side}.ts"
            clips.encode(path, np.zeros((3, side, side, 3), np.uint8), preset="ultrafast")
            parts.append(path.read_bytes())
    return b"".join(parts)


def lists() -> Iterator[tuple[str, Attack]]:
    valid = seeds.lists()[0]
    contents: dict[str, dict[str, bytes | str | None]] = {
        "labels of 5000 digits": {"train.list": b"a " + b"1" * 5000 + b"\n"},
        "labels beyond 64 bits": {"train.list": b"a 9999999999999999999\n"},
        "a label of 300 million": {"train.list": b"a 300000000\n"},
        "zero bytes": {"train.list": b"a\0b 1\n", "faces.txt": b"a\0b 1\n"},
        "two million short lines": {"train.list": b"a 0\n" * 2_000_000},
        "one long line among many": {"train.list": b"a" * 3 * MIB + b" 0\n" + b"abc 0\n" * 200_000,
                                     "faces.txt": b"a" * 3 * MIB + b" 0\n" + b"abc 0\n" * 200_000},
        "a pipe": {"train.list": None, "faces.txt": None},
        "a device": {"train.list": "/dev/zero", "faces.txt": "/dev/zero"},
        "UTF-16": {"train.list": "a 1\n".encode("utf-16"), "faces.txt": b"a b\n"},
    }  # fmt: skip
    pairs: dict[str, bytes | str | None] = {
        "5000 digits of pairs": b"1" * 5000 + b"\n",
        "numbers of 5000 digits": b"10\t1\nname\t" + b"1" * 5000 + b"\t2\n",
        "a path outside": b"../../etc/passwd name/name_0001.jpg 1\n" * 10,
        "a pipe": None,
    }
    names: dict[str, bytes | str | None] = {
        "deep": b"[" * 100_000,
        "a number of 5000 digits": b'{"a": ' + b"1" * 5000 + b"}",
        "labels of 300 million": b'{"a": 300000000}',
        "a device": "/dev/zero",
    }
    broken = {"train.list": b"x", "faces.txt": b"x", "pairs.txt": b"x", "classes.txt": b""}
    for name, files in contents.items():
        yield f"list: {name}", Attack("lists", {**valid, **broken, **files}, "train.list|a: its label")
    yield from _each("lists", "pairs.txt", "", pairs, {**valid, **broken})
    yield from _each("lists", "classes.json", "", names, broken)


def recipes() -> Iterator[tuple[str, Attack]]:
    aliases = b"k0: &k0 [x]\n" + b"".join(
        b"k%d: &k%d [%s]\n" % (n, n, b", ".join([b"*k%d" % (n - 1)] * 9)) for n in range(1, 9)
    )
    kinetics = b"model: {name: tsm}\ntrain: {steps: 9}\ndata: {name: kinetics, "
    contents: dict[str, bytes | str | None] = {
        "a base that never ends": b"base: /dev/zero\n",
        "a base that is itself": b"base: recipe.yaml\n",
        "a base that is a folder": b"base: .\n",
        "billions of values": aliases,
        "a megabyte of text": b"a: " + b"x" * MIB,
        "an anchor in itself": b"&a a: *a\n",
        "a call": b"seed: !!python/object/apply:os.system ['echo > executed']\n",
        "a key below a value": b"seed.: 1\n" + seeds.RECIPE,
        "a section in place of a value": seeds.RECIPE.replace(b"seed: 1", b"seed: {a: 1}"),
        "a seed of 400 digits": seeds.RECIPE.replace(b"seed: 1", b"seed: 1" + b"0" * 400),
        "names of frames of a gigabyte": kinetics + b"frame_template: '{:999999999d}'}\n",
        "names of frames with attributes": kinetics + b"frame_template: '{0.__class__}'}\n",
        "a device": "/dev/zero",
    }
    yield from _each("recipes", "recipe.yaml", "", contents)


def others() -> Iterator[tuple[str, Attack]]:
    lines = {
        "depth": b"[" * 100_000,
        "an evaluation without a number": b'{"event": "eval", "step": 1, "accuracy": [1]}',
        "an evaluation of 400 digits": b'{"event": "eval", "step": 1, "accuracy": 1' + b"0" * 400 + b"}",
        "facts of other types": b'{"event": "begin", "git": "x", "hosts": 3, "optimizer": []}',
    }
    journals = {name: line + b'\n{"event": "train", "step": 1}\n' for name, line in lines.items()}
    yield from _each("events.jsonl", "events.jsonl", "", journals)
    rows = b"label,youtube_id,time_start,time_end\n"
    videos = {f"{split}/x/0.jpg": b"" for split in ("train", "val")}
    for name, row in {
        "a path outside": b"a,../../../b,1,2\n",
        "an absolute label": b"/etc,b,1,2\n",
        "5000 digits": b"a,b,1," + b"1" * 5000 + b"\n",
        "a long field": b'"' + b"a" * 200_000 + b'",b,1,2\n',
        "zero bytes": b"a\0b,1,2\n",
    }.items():
        files = {"train.csv": rows + row, "val.csv": rows + row, **videos}
        yield f"annotations: {name}", Attack("annotations", files, "csv")


# Each yields names and attacks.
PARTS = (safetensors, protobuf, checkpoints, faces, prepared, images, lists, recipes, others)
