"""Counterparts of the calls that hold others: blocks and wrappers, whose bounds differ between models."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from zoo.parity.alignment import grouped
from zoo.parity.differences import Records, differences
from zoo.parity.record import Call, Identity, Record

EVALUATION = "evaluation"  # title of a pass
ACTIVATION = 0.01  # of the largest value: an epsilon, or the rounding of many layers, changes less
ROUNDING = 1e-5  # of fp32, of the largest value of a tensor


class Node(NamedTuple):
    """A call, with what is needed to find its counterpart.

    Attributes:
        tensors: those within it that have a counterpart, by name in the reference.
        calls: the same of the modules that call no other: a head may begin with the pooling, or behind it.
        is_closed: whether nothing without a counterpart is called at its ends, inside or outside: where one model has a
            module and the other a function, a block may end before or behind it.
    """

    key: Identity
    shape: tuple[int, ...]
    tensors: frozenset[str]
    calls: frozenset[Identity]
    is_closed: bool


def align(reference: Sequence[Node], other: Sequence[Node]) -> dict[Identity, Identity]:
    """Pair the calls that hold the same tensors and calls, as many on both sides, in order: the outer first."""
    pairs = dict[Identity, Identity]()
    ours, theirs = (grouped(nodes, lambda node: (node.tensors, node.calls)) for nodes in (reference, other))
    for held in ours.keys() & theirs.keys():
        if held[0] and len(ours[held]) == len(theirs[held]):
            for a, b in zip(ours[held], theirs[held], strict=True):
                if a.is_closed and b.is_closed and a.shape == b.shape:
                    pairs[b.key] = a.key
    return pairs


def nodes(
    calls: Sequence[Call],
    shapes: Sequence[tuple[int, ...]],
    tensors: Mapping[str, frozenset[str]],
    paired: Mapping[Identity, Identity],
    ignored: Collection[str],
) -> list[Node]:
    """Return the nodes of the calls that have no counterpart yet.

    Args:
        shapes: of their outputs.
        tensors: by module, those of its own that have a counterpart.
        paired: the call in the reference by each that has a counterpart.
        ignored: names of modules that change nothing.
    """
    has_leaves = list(with_leaves(calls))
    leaves = [(call.span[0], call) for call, is_leaf in has_leaves if is_leaf and call.name not in ignored]
    closed = [call.identity in paired or bool(tensors.get(call.name)) for _, call in leaves]
    found = []
    for (call, is_leaf), shape in zip(has_leaves, shapes, strict=True):
        key = call.identity
        if key not in paired and (not is_leaf or call.name in tensors):
            inside = [i for i, (start, _) in enumerate(leaves) if call.span[0] <= start < call.span[1]]
            ends = {inside[0] - 1, inside[0], inside[-1], inside[-1] + 1} if inside else set()
            held = (names for name, names in tensors.items() if is_within(name, call.name))
            is_closed = all(closed[i] for i in ends if 0 <= i < len(leaves))
            within = frozenset(paired[each] for i in inside if (each := leaves[i][1].identity) in paired)
            found.append(Node(key, shape, frozenset[str]().union(*held), within, is_closed))
    return found


def between(
    reference: Sequence[Call],
    other: Sequence[Call],
    pairs: Mapping[Identity, Identity],
    names: Collection[str],
    other_names: Collection[str],
) -> dict[Identity, Identity]:
    """Pair calls of modules of which two paired calls have as many between them on both sides.

    Args:
        names: of the modules, in the reference and in the other model.
    """
    ours = _by_gap(reference, {key: key for key in pairs.values()}, names)
    theirs = _by_gap(other, pairs, other_names)
    return {
        b: a
        for gap in ours.keys() & theirs.keys()
        if len(ours[gap]) == len(theirs[gap])
        for a, b in zip(ours[gap], theirs[gap], strict=True)
    }


def _by_gap(
    calls: Sequence[Call], pairs: Mapping[Identity, Identity], names: Collection[str]
) -> dict[tuple[Identity | None, Identity | None], list[Identity]]:
    """Return the calls of some modules by the paired leaves before and behind them."""
    gaps, waiting, last = dict[tuple[Identity | None, Identity | None], list[Identity]](), list[Identity](), None
    for call, is_leaf in with_leaves(calls):
        key = call.identity
        if is_leaf and call.name in names:
            waiting.append(key)
        elif is_leaf and key in pairs:
            if waiting:
                gaps[last, pairs[key]] = waiting
            last, waiting = pairs[key], []
    return gaps | ({(last, None): waiting} if waiting else {})


def with_leaves(calls: Sequence[Call]) -> Iterator[tuple[Call, bool]]:
    """Yield each call and whether no other module is called within it."""
    for i, call in enumerate(calls):
        yield call, i + 1 == len(calls) or calls[i + 1].span[0] > call.span[1]


def is_within(name: str, module: str) -> bool:
    return not module or name == module or name.startswith(module + ".")


def ending_elsewhere(proofs: Records, rounded: Records) -> set[Identity]:
    """Return the calls whose outputs differ in evaluation mode although those of the model agree.

    One of the two modules ends behind something that follows the other: an activation, the scale of a residual.
    """
    evaluated = {
        title: record._replace(passes={EVALUATION: record.passes[EVALUATION]}, steps=[])
        for title, record in proofs.items()
    }
    found = [each for each in differences(evaluated, rounded) if each.event.part == "output"]
    if any(each.is_beyond for each in found if not each.event.name):
        return set()
    beyond = [each.event.calls for each in found if each.is_beyond and each.relative > ACTIVATION]
    return {call.identity for calls in beyond for call in calls.values()}


def holding_what_follows(reference: Record, other: Record) -> set[Identity]:
    """Return the calls whose outputs are what follows that of the reference, where both have the same inputs."""
    calls, found = reference.passes[EVALUATION], set[Identity]()
    partners = {call.identity: call for call in other.passes[EVALUATION]}
    for i, call in enumerate(calls):
        key = call.identity
        following = next((each for each in calls[i + 1 :] if each.span[0] > call.span[1]), None)
        if call.outputs and key in partners and following and following.inputs:
            own, result = other.get(f"{partners[key].key}/out0"), reference.get(f"{call.key}/out0")
            later = [reference.get(f"{following.key}/in0")]
            later += [reference.get(f"{following.key}/out0")] if following.outputs else []
            if not _is_close(own, result) and any(_is_close(own, tensor) for tensor in later):
                found.add(key)
    return found


def _is_close(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.abs(a - b).max(initial=0.0) <= ROUNDING * np.abs(b).max(initial=0.0))


def only(record: Record, calls: Collection[Identity]) -> Record:
    """Return a record with some calls alone."""
    kept = set(calls)
    passes = {title: [call for call in each if call.identity in kept] for title, each in record.passes.items()}
    return record._replace(passes=passes)
