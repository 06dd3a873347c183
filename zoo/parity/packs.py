"""Tensors that some layers keep whole and others in parts: q, k, v of an attention, the gates of a recurrent cell."""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from zoo.parity.mapping import Source

LETTERS = {"query": "q", "key": "k", "value": "v", "q": "q", "k": "k", "v": "v", "kv": "kv", "qk": "qk"}
FILLERS = {"to", "w", "in", "proj", "projection", "lin", "linear", "layer", "dense"}  # words beside a letter
GATES = ("ifgo", "rzn")  # of LSTM and GRU, in the order in which PyTorch, Paddle, MindSpore and Equinox keep them
CELL = re.compile(r"(?P<input>[ih])(?P<gate>[a-z])_?")  # Flax: ii, if_, hg
HALVES = {"dense_i": "ih", "dense_h": "hh"}  # Flax: all gates at once
LAYER = re.compile(r"_l\d+(_reverse)?$")  # of torch.nn.LSTM and others: weight_ih_l0_reverse
Packs = dict[str, tuple[Any, ...]]  # parts by name of the whole


def pack(tensors: Sequence[Any]) -> tuple[list[Any], Packs]:
    """Return the tensors with parts replaced by the whole that they are along their first axis, and the parts of each.

    That of q, k and v belongs to the module of its first part, those of a cell to the cell, with roles as PyTorch's.

    Args:
        tensors: those of a model, with name, shape, module and role.
    """
    modules: dict[str, dict[str, dict[str, Any]]] = {}  # parent -> module -> role -> tensor
    for tensor in tensors:
        parent = tensor.module.rpartition(".")[0]
        modules.setdefault(parent, {}).setdefault(tensor.module, {})[tensor.role] = tensor
    packs, wholes = Packs(), dict[str, Any]()  # the whole stands at the place of its first part
    for parent, children in modules.items():
        for members, suffix in [*_attention(children), *_cells(children)]:
            for role in {role: None for member in members for role in member}:
                parts = tuple(member[role] for member in members if role in member)
                if len(parts) == len(members) and len({part.shape[1:] for part in parts}) == 1:
                    name = "|".join(part.name for part in parts)
                    shape = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
                    whole = parts[0]._replace(name=name, shape=shape, role=role + suffix)
                    whole = whole._replace(module=parent) if suffix else whole
                    packs[name] = parts
                    wholes |= dict.fromkeys((part.name for part in parts), None) | {parts[0].name: whole}
    return [whole for t in tensors if (whole := wholes.get(t.name, t))], packs


def _attention(children: Mapping[str, Mapping[str, Any]]) -> list[tuple[list[Mapping[str, Any]], str]]:
    """Return the modules of q, k and v among those of one parent, in this order."""
    found = {}
    for path, roles in children.items():
        words = [word for word in path.rpartition(".")[2].lower().split("_") if word and word not in FILLERS]
        if len(words) == 1 and words[0].removeprefix("w") in LETTERS:
            found[LETTERS[words[0].removeprefix("w")]] = roles
    members = [found[letters] for letters in sorted(found, key="qkv".find)]
    return [(members, "")] if sorted("".join(found)) == ["k", "q", "v"] else []


def _cells(children: Mapping[str, Mapping[str, Any]]) -> list[tuple[list[Mapping[str, Any]], str]]:
    """Return the modules of the gates of a cell among those of one parent, for its input and for its state."""
    names = {path.rpartition(".")[2]: roles for path, roles in children.items()}
    if names.keys() >= HALVES.keys():
        return [([names[name]], f"_{half}") for name, half in HALVES.items()]
    by_gate = {(found["input"], found["gate"]): names[name] for name in names if (found := CELL.fullmatch(name))}
    for gates in GATES:
        if all((part, gate) in by_gate for part in "ih" for gate in gates):
            return [([by_gate[part, gate] for gate in gates], f"_{part}h") for part in "ih"]
    return []


def layers(tensors: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the tensors of each layer and direction of a recurrent module, with the roles of a cell."""
    found = [(LAYER.search(tensor.role), tensor) for tensor in tensors]
    if not tensors or not all(layer for layer, _ in found):
        return {"": list(tensors)}
    parts: dict[str, list[Any]] = {}
    for layer, tensor in found:
        if layer:
            parts.setdefault(layer[0], []).append(tensor._replace(role=tensor.role[: layer.start()]))
    return parts


def unpack(tensors: Mapping[str, Source], ours: Packs, theirs: Packs) -> dict[str, Source]:
    """Return the sources of the tensors themselves, made of tensors themselves."""
    found = dict[str, Source]()
    for name, source in tensors.items():
        start = 0
        for part in theirs.get(name, ()):
            found[part.name] = _of_part(source, ours, theirs[name], start, start + part.shape[0])
            start += part.shape[0]
        if name not in theirs:
            parts = tuple(part for whole in source.names for part in ours.get(whole, ()))
            found[name] = _joined(source, parts)
    return found


def _of_part(source: Source, ours: Packs, theirs: Sequence[Any], start: int, end: int) -> Source:
    """Return the source of the part of a whole that is a range of it.

    It is made of as few parts of the reference as possible, those that overlap it.
    """
    parts, spans = ours.get(source.names[0], ()), _ranges(theirs)
    if not source.steps and len(source.names) == 1 and parts:
        ranges = list(zip(parts, _ranges(parts), strict=True))
        ranges = [(part, span) for part, span in ranges if span[0] < end and span[1] > start]
        first, last = ranges[0][1][0], ranges[-1][1][1]
        within = [span for span in spans if first <= span[0] and span[1] <= last]
        if sum(after - before for before, after in within) == last - first:
            parts, spans = tuple(part for part, _ in ranges), within
    joined = _joined(source, parts)
    if len(spans) == 1:
        return joined
    split = ("split", 0, [after - before for before, after in spans], spans.index((start, end)))
    return joined._replace(steps=(*joined.steps, split), rule="split")


def _ranges(parts: Sequence[Any]) -> list[tuple[int, int]]:
    ends = list(accumulate(part.shape[0] for part in parts))
    return list(zip([0, *ends], ends, strict=False))


def _joined(source: Source, parts: Sequence[Any]) -> Source:
    """Return a source of which the names are those of parts, if there are any."""
    if not parts:
        return source
    names = tuple(part.name for part in parts)
    if len(parts) == 1:
        return source._replace(names=names)
    return Source(names, (("concat", 0, [part.shape[0] for part in parts]), *source.steps), "fused")
