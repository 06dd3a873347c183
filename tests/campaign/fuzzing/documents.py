"""Mutations of JSON, of safetensors files, whose header is JSON, of YAML and of lists."""

import json
import random
import struct
from typing import Any

from tests.campaign.fuzzing import mutations
from tests.campaign.fuzzing.mutations import Mutation

VALUES: tuple[Any, ...] = (None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**400, 0.5, -1e308,
                           float("nan"), float("inf"), float("-inf"), "", "a", "\0", "\ud800", "../x", "/dev/zero", "1",
                           "a" * 3000, [], {}, [[]], [{}], {"": None}, [0] * 100, [1] * 100, [2**32, 2**32],
                           [2**62, 0], [-1, -1], {"a": {"b": {}}}, [None, None])  # fmt: skip
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
        return rng.choice(mutations.BYTES)(rng, content)
    if rng.random() < 0.02:
        return DEEP
    return json.dumps(_changed(rng, document)).encode(errors="surrogatepass")


def mutate_json_lines(rng: random.Random, content: bytes) -> bytes:
    """Change one value of one line."""
    lines = content.splitlines(keepends=True)
    if not lines:
        return rng.choice(mutations.BYTES)(rng, content)
    at = rng.randrange(len(lines))
    lines[at] = mutate_json(rng, lines[at]) + b"\n"
    return b"".join(lines)


def mutate_safetensors(rng: random.Random, content: bytes) -> bytes:
    """Change the header, or its length."""
    length = int.from_bytes(content[:8], "little")
    if not 2 <= length <= len(content) - 8:
        return rng.choice(mutations.BYTES)(rng, content)
    header, rest = content[8 : 8 + length], content[8 + length :]
    match rng.randrange(5):
        case 0:
            return mutations.set_integer(rng, content[:8])[:8] + header + rest
        case 1:
            header = rng.choice(mutations.TEXT)(rng, header)
        case 2:
            header = _change_tensor(rng, header)
        case _:
            header = mutate_json(rng, header)
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


def _change_tensor(rng: random.Random, header: bytes) -> bytes:
    """Give a tensor another shape, type or place."""
    try:
        tensors = json.loads(header)
        name = rng.choice([name for name in tensors if name != "__metadata__"])
        entry = tensors[name]
        first, end = entry["data_offsets"]
        shape = list(entry["shape"])
    except (ValueError, RecursionError, IndexError, KeyError, TypeError):
        return rng.choice(mutations.TEXT)(rng, header)
    match rng.randrange(6):
        case 0:
            entry["shape"] = rng.choice(([1] * 100 + shape, [2**32, 2**32], [2**63, 2], [0, 2**62], [-1], [], [2**64]))
        case 1:
            entry["dtype"] = rng.choice(("F64", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "F4", "C64", "X", ""))
        case 2:
            entry["data_offsets"] = rng.choice(([first, 2**62], [2**63, 2**63], [end, first], [0, end], [-1, 0]))
        case 3:
            tensors[rng.choice(("copy", "", name + ".weight", "optimizer/a/b/c", "ema/", "../x"))] = dict(entry)
        case 4:
            entry["shape"] = shape[::-1] + [1] * rng.randrange(3)
        case _:
            tensors["__metadata__"] = rng.choice(({"a": 1}, {"classes": "["}, {"arch": "[]"}, {"arch": "{"}, [], "x",
                                                  {"notes": "3"}, {"data": "1"}, {"manifest": "{}"}))  # fmt: skip
    return json.dumps(tensors).encode(errors="surrogatepass")


JSON: tuple[Mutation, ...] = (mutate_json,) * 6 + tuple(mutations.TEXT[::2])
JSON_LINES: tuple[Mutation, ...] = (mutate_json_lines,) * 6 + tuple(mutations.TEXT)
SAFETENSORS: tuple[Mutation, ...] = (mutate_safetensors,) * 3
YAML: tuple[Mutation, ...] = (mutate_yaml,) * 4 + tuple(mutations.TEXT)
