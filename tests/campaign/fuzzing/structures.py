"""Mutations of JSON, safetensors, YAML, pickles and the archives of torch.save, which know their structure."""

import io
import json
import pickletools
import random
import struct
import zipfile
from typing import Any

from tests.campaign.fuzzing import mutations
from tests.campaign.fuzzing.mutations import Mutation

VALUES: tuple[Any, ...] = (None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**400, 0.5, -1e308,
                           float("nan"), float("inf"), float("-inf"), "", "a", "\0", "\ud800", "../x", "/dev/zero", "1",
                           "a" * 3000, [], {}, [[]], [{}], {"": None}, [0] * 100, [1] * 100, [2**32, 2**32],
                           [2**62, 0], [2**63, 2**63], [1] * 33,
                           "F64", "BF16", "F8_E4M3", "U8", [-1, -1], {"a": {"b": {}}}, [None, None])  # fmt: skip
DEEP = b"[" * 100_000
FRAGMENTS = (b"&a [*a]", b"*a", b"&a {b: *a}", b"!!python/object/apply:os.system ['echo > executed']",
             b"!!python/name:os.system", b"!!binary aGk=", b"!!timestamp 2020-13-45", b"2020-13-45", b"!!int 0x",
             b"!!float .", b"<<: *a", b"? [a, b]\n: c", b"{a: 1", b"[1, 2", b"|\n  text", b"---", b"...",
             b"%YAML 9.9", b"~", b".inf", b".nan", b"1:30:00", b"0o17", b"1e400", b"- - - - 1", b"base: a.yaml",
             b"\t", b"[" * 200, b"null", b"yes", b"[[1], [2]]", b"!!set {a}", b"!!omap [a: 1]", b"!!pairs [a: 1]",
             b"3 epochs", b"-1 steps")  # fmt: skip


def mutate_json(rng: random.Random, content: bytes) -> bytes:
    """Change one value, key or item anywhere in the document."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return mutations.mutate_bytes(rng, content)
    if rng.random() < 0.02:
        return DEEP
    return json.dumps(_changed(rng, document)).encode(errors="surrogatepass")


def mutate_json_lines(rng: random.Random, content: bytes) -> bytes:
    """Change one value of one line."""
    lines = content.splitlines(keepends=True)
    if not lines:
        return mutations.mutate_bytes(rng, content)
    at = rng.randrange(len(lines))
    lines[at] = mutate_json(rng, lines[at]) + b"\n"
    return b"".join(lines)


def mutate_safetensors(rng: random.Random, content: bytes) -> bytes:
    """Change the header, or its length."""
    length = int.from_bytes(content[:8], "little")
    if not 2 <= length <= len(content) - 8:
        return mutations.mutate_bytes(rng, content)
    header, rest = content[8 : 8 + length], content[8 + length :]
    draw = rng.randrange(5)
    if draw == 0:
        return mutations.set_integer(rng, content[:8])[:8] + header + rest
    header = (mutations.mutate_text if draw == 1 else mutate_json)(rng, header)
    return struct.pack("<Q", len(header)) + header + rest


def mutate_yaml(rng: random.Random, content: bytes) -> bytes:
    """Put a fragment in the place of a value, or between lines."""
    lines = content.splitlines(keepends=True) or [b""]
    at, fragment = rng.randrange(len(lines)), rng.choice(FRAGMENTS)
    head, colon, _ = lines[at].partition(b": ")
    lines[at] = head + colon + fragment + b"\n" if colon and rng.random() < 0.7 else lines[at] + fragment + b"\n"
    return b"".join(lines)


def _changed(rng: random.Random, value: Any) -> Any:
    if rng.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return rng.choice(VALUES)
    if isinstance(value, dict):
        key = rng.choice(list(value))
        match rng.randrange(8):
            case 0:
                return {name: item for name, item in value.items() if name != key}
            case 1:
                return {**value, rng.choice(("", "\0", "__class__", "../x", "a" * 1000)): value[key]}
            case 2:
                return {(rng.choice(list(value)) if name == key else name): item for name, item in value.items()}
            case _:
                return {**value, key: _changed(rng, value[key])}
    at = rng.randrange(len(value))
    match rng.randrange(8):
        case 0:
            return value[:at] + value[at + 1 :]
        case 1:
            return value[:at] + [value[at]] * rng.choice((2, 40, 200)) + value[at:]
        case _:
            return [*value[:at], _changed(rng, value[at]), *value[at + 1 :]]


CANARY = "executed"  # file that an attack creates in the current folder


def _text(word: str) -> bytes:
    return b"\x8c" + bytes([len(word)]) + word.encode()


def _call(module: str, name: str, *words: str) -> bytes:
    """Return opcodes that call module.name(*words)."""
    return _text(module) + _text(name) + b"\x93(" + b"".join(map(_text, words)) + b"tR"


# Opcodes that run code or ask for much where they are followed.
ATTACKS = (
    _call("os", "system", f"echo > {CANARY}"),
    b"cos\nsystem\n(S'echo > " + CANARY.encode() + b"'\ntR",
    b"cposix\nsystem\n(X\x0f\x00\x00\x00echo > executedtR",
    _call("builtins", "eval", f"open('{CANARY}','w')"),
    _call("builtins", "open", CANARY, "w"),
    _call("subprocess", "call", "touch", CANARY),
    _call("importlib", "import_module", "antigravity"),
    _call("torch", "load", CANARY),
    _call("builtins", "getattr", "os", "system"),
    b"c__builtin__\nbytearray\nJ\x00\x00\x00\x40\x85R",
    b"(S'echo > " + CANARY.encode() + b"'\nios\nsystem\n",
    b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R",
)
PIECES = (b"]", b"}", b")", b"(", b"t", b"e", b"a", b"s", b"u", b"0", b"2", b"1", b"N", b"\x88", b"K\xff", b"R", b"b",
          b"\x81", b"\x92", b"\x93", b"Q", b"q\x00", b"h\x00", b"r\xff\xff\xff\x7f", b"j\xff\xff\xff\xff", b"\x94",
          b"\x8f", b"\x90", b"\x91", b"\x85", b"\x86", b"\x87", b"J\xff\xff\xff\x7f", b"\x8a\x09" + b"\xff" * 9,
          b"\x8b\xff\xff\xff\x7f", b"\x95" + b"\xff" * 8, b"\x8e" + b"\xff" * 7 + b"\x7f", b"X\xff\xff\xff\x7f",
          b"B\xff\xff\xff\x7f", b"\x97", b"\x98", b"\x82\x01", b"P0\n", b"I01\n", b"L1L\n", b"F1e999\n", b"Vx\n",
          b"p0\n", b"g0\n", b".")  # fmt: skip
NAMES = ("data.pkl", "../x", "/x", "a/data.pkl", "", "a/byteorder", "a/version")  # of entries of an archive


def mutate_pickle(rng: random.Random, content: bytes) -> bytes:
    """Delete, repeat, move or change opcodes, or put others between them."""
    opcodes = _split(content)
    if len(opcodes) < 3:
        return mutations.mutate_bytes(rng, content)
    at = rng.randrange(1, len(opcodes))
    match rng.randrange(8):
        case 0:
            del opcodes[at]
        case 1:
            opcodes[at:at] = [opcodes[at]] * rng.choice((1, 3, 300))
        case 2:
            opcodes.insert(at, opcodes.pop(rng.randrange(1, len(opcodes))))
        case 3:
            opcodes.insert(at, rng.choice(ATTACKS))
        case 4 | 5:
            opcodes[at : at + rng.randrange(2)] = [rng.choice(PIECES) for _ in range(rng.choice((1, 1, 2, 5)))]
        case 6:
            opcodes[at : at + 1] = [rng.choice(PIECES)] * rng.choice((10, 1000))
        case _:
            opcodes[at] = opcodes[at][:1] + mutations.mutate_bytes(rng, opcodes[at][1:])
    return b"".join(opcodes)


def mutate_archive(rng: random.Random, content: bytes) -> bytes:
    """Change an entry of the archive, most often its pickle, and pack it again with right checksums."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
    except Exception:  # it was mutated before
        return mutate_legacy(rng, content)
    if not entries:
        return mutations.mutate_bytes(rng, content)
    pickles = [at for at, (name, _) in enumerate(entries) if name.endswith(".pkl")]
    at = rng.choice(pickles) if pickles and rng.random() < 0.75 else rng.randrange(len(entries))
    name, payload = entries[at]
    match rng.randrange(10):
        case 0:
            del entries[at]
        case 1:
            entries.append((name, payload))
        case 2:
            entries[at] = (rng.choice(NAMES), payload)
        case _:
            entries[at] = (name, (mutate_pickle if name.endswith(".pkl") else mutations.mutate_bytes)(rng, payload))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", rng.choice((0, 0, 0, 0, zipfile.ZIP_DEFLATED))) as archive:
        for name, payload in entries:
            archive.writestr(zipfile.ZipInfo(name), payload)
    return file.getvalue()


def mutate_legacy(rng: random.Random, content: bytes) -> bytes:
    """Change one of the pickles that follow one another in a file of PyTorch before 1.6."""
    ends, file = [0], io.BytesIO(content)
    try:
        while True:
            for _ in pickletools.genops(file):
                pass
            ends.append(file.tell())
    except Exception:  # the last one has ended
        pass
    if len(ends) < 2:
        return mutations.mutate_bytes(rng, content)
    at = rng.randrange(len(ends) - 1)
    return content[: ends[at]] + mutate_pickle(rng, content[ends[at] : ends[at + 1]]) + content[ends[at + 1] :]


def _split(content: bytes) -> list[bytes]:
    """Return the opcodes with their arguments, and what follows them."""
    starts: list[int] = []
    try:
        starts += [position or 0 for _, _, position in pickletools.genops(content)]
    except Exception:  # a damaged pickle raises almost anything
        return []
    return [content[start:end] for start, end in zip(starts, [*starts[1:], len(content)])]


STRUCTURE: dict[str, tuple[Mutation, ...]] = {  # by extension
    ".pth": (mutate_archive,),
    ".pdparams": (mutate_pickle,),
    ".bin": (mutate_pickle,),
    ".ckpt": (mutations.mutation(mutations.PROTOBUF),),
    ".safetensors": (mutate_safetensors,),
    ".json": (mutate_json, mutate_json, mutations.mutate_text),
    ".jsonl": (mutate_json_lines, mutations.mutate_text),
    ".yaml": (mutate_yaml, mutate_yaml, mutations.mutate_text),
    ".png": (mutations.mutation(mutations.PNG),),
    ".jpeg": (mutations.mutation(mutations.JPEG),),
    ".mp4": (mutations.mutation(mutations.MP4),),
    **dict.fromkeys((".avi", ".webp"), (mutations.mutation(mutations.RIFF),)),
    ".rec": (mutations.mutation(mutations.RECORDIO),),
    **dict.fromkeys((".idx", ".txt", ".list", ".log", ".csv", ""), (mutations.mutate_text,)),
}
