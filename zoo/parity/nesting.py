"""Counterparts of the calls that hold others: blocks and wrappers, whose bounds differ between models."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from zoo.parity.record import Call

Key = tuple[str, int]  # module, occurrence


class Node(NamedTuple):
    """A call, with what is needed to find its counterpart.

    Attributes:
        tensors: those within it that have a counterpart, by name in the reference.
        is_closed: whether nothing without a counterpart is called at its ends, inside or outside: where one model has a
            module and the other a function, a block may end before or behind it.
    """

    key: Key
    shape: tuple[int, ...]
    tensors: frozenset[str]
    is_closed: bool


def align(reference: Sequence[Node], other: Sequence[Node]) -> dict[Key, Key]:
    """Pair the calls that hold the same tensors, as many on both sides, in order: the outer first."""
    pairs, (ours, theirs) = dict[Key, Key](), map(_by_tensors, (reference, other))
    for tensors in ours.keys() & theirs.keys():
        if len(ours[tensors]) == len(theirs[tensors]):
            for a, b in zip(ours[tensors], theirs[tensors], strict=True):
                if a.is_closed and b.is_closed and a.shape == b.shape:
                    pairs[b.key] = a.key
    return pairs


def _by_tensors(nodes: Sequence[Node]) -> Mapping[frozenset[str], list[Node]]:
    groups: dict[frozenset[str], list[Node]] = {}
    for node in nodes:
        if node.tensors:
            groups.setdefault(node.tensors, []).append(node)
    return groups


def nodes(
    calls: Sequence[Call],
    shapes: Sequence[tuple[int, ...]],
    tensors: Mapping[str, frozenset[str]],
    paired: Collection[Key],
    ignored: Collection[str],
) -> list[Node]:
    """Return the nodes of the calls that have no counterpart yet.

    Args:
        shapes: of their outputs.
        tensors: by module, those of its own that have a counterpart.
        ignored: names of modules that change nothing.
    """
    has_leaves = list(with_leaves(calls))
    leaves = [(call.span[0], call) for call, is_leaf in has_leaves if is_leaf and call.name not in ignored]
    closed = [(call.name, call.occurrence) in paired or bool(tensors.get(call.name)) for _, call in leaves]
    found = []
    for (call, is_leaf), shape in zip(has_leaves, shapes, strict=True):
        key = call.name, call.occurrence
        if key not in paired and (not is_leaf or call.name in tensors):
            inside = [i for i, (start, _) in enumerate(leaves) if call.span[0] <= start < call.span[1]]
            ends = {inside[0] - 1, inside[0], inside[-1], inside[-1] + 1} if inside else set()
            held = (names for name, names in tensors.items() if is_within(name, call.name))
            is_closed = all(closed[i] for i in ends if 0 <= i < len(leaves))
            found.append(Node(key, shape, frozenset[str]().union(*held), is_closed))
    return found


def with_leaves(calls: Sequence[Call]) -> Iterator[tuple[Call, bool]]:
    """Yield each call and whether no other module is called within it."""
    for i, call in enumerate(calls):
        yield call, i + 1 == len(calls) or calls[i + 1].span[0] > call.span[1]


def is_within(name: str, module: str) -> bool:
    return not module or name == module or name.startswith(module + ".")
