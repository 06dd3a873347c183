"""Mutations of pickles, opcode by opcode, and of the archives of torch.save that hold them."""

import io
import pickletools
import random
import zipfile

from tests.campaign.fuzzing import mutations
from tests.campaign.fuzzing.mutations import Mutation

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


def mutate_pickle(rng: random.Random, content: bytes) -> bytes:
    """Delete, repeat, move or change opcodes, or put others between them."""
    opcodes = _split(content)
    if len(opcodes) < 3:
        return rng.choice(mutations.BYTES)(rng, content)
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
            opcodes[at] = opcodes[at][:1] + rng.choice(mutations.BYTES)(rng, opcodes[at][1:])
    return b"".join(opcodes)


def mutate_archive(rng: random.Random, content: bytes) -> bytes:
    """Change an entry of the archive, most often its pickle, and pack it again with right checksums."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
    except Exception:  # it was mutated before
        return mutate_legacy(rng, content)
    if not entries:
        return rng.choice(mutations.BYTES)(rng, content)
    pickles = [at for at, (name, _) in enumerate(entries) if name.endswith(".pkl")]
    at = rng.choice(pickles) if pickles and rng.random() < 0.75 else rng.randrange(len(entries))
    name, payload = entries[at]
    match rng.randrange(10):
        case 0:
            del entries[at]
        case 1:
            entries.append((name, payload))
        case 2:
            entries[at] = (
                rng.choice(("data.pkl", "../x", "/x", "a/data.pkl", "", "a/byteorder", "a/version")),
                payload,
            )
        case _:
            entries[at] = (
                name,
                (mutate_pickle if name.endswith(".pkl") else rng.choice(mutations.BYTES))(rng, payload),
            )
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
        return rng.choice(mutations.BYTES)(rng, content)
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


PICKLE: tuple[Mutation, ...] = (mutate_pickle,) * 3
ARCHIVE: tuple[Mutation, ...] = (mutate_archive,) * 3
