import json
from typing import NamedTuple

from zoo.parity.record import Call


class Tensor(NamedTuple):
    name: str
    shape: tuple[int, ...]
    module: str
    kind: str
    role: str
    is_trained: bool


class Outline(NamedTuple):
    framework: str
    tensors: list[Tensor]
    calls: list[Call]
    shapes: dict[str, tuple[int, ...]]


class Source(NamedTuple):
    names: tuple[str, ...]
    steps: tuple[tuple, ...]
    rule: str


class Match(NamedTuple):
    tensors: dict[str, Source]
    calls: dict[tuple[str, int], tuple[str, int]]
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    ambiguous: dict[str, tuple[str, ...]]


def match(reference, other, given=None):
    names = {t.name for t in reference.tensors}
    return Match(
        {t.name: Source((t.name,), (), "name") for t in other.tensors if t.name in names},
        {(c.name, c.occurrence): (c.name, c.occurrence) for c in other.calls},
        tuple(t.name for t in other.tensors if t.name not in names),
        (),
        {},
    )


def convert(m, arrays):
    return {n: arrays[s.names[0]] for n, s in m.tensors.items() if s.names[0] in arrays}


def revert(m, arrays):
    return {s.names[0]: arrays[n] for n, s in m.tensors.items() if n in arrays}


def save(m, path):
    json.dump(
        [[[n, *s] for n, s in m.tensors.items()], [[list(a), list(b)] for a, b in m.calls.items()]], open(path, "w")
    )


def load(path):
    t, c = json.load(open(path))
    return Match({n: Source(tuple(a), tuple(b), r) for n, a, b, r in t}, {tuple(a): tuple(b) for a, b in c}, (), (), {})
