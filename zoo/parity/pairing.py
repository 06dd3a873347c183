"""Which items of two models are the same layer: an alignment by order, shapes, kinds and, last, names."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import numpy as np

from zoo.parity import alignment, layouts, mapping
from zoo.parity.alignment import grouped
from zoo.parity.outline import NORMALIZATION, POOLING, Item, Tensor

ANCHOR, WEIGHTED, SAME_KIND, SAME_SHAPE, BARE = 1e5, 16.0, 2.0, 2.0, 1.0  # scores of a pair
BEHIND = 8.0  # of normalizations behind layers that can be a pair, too
NAME = 1e-4  # of it; so all names together decide only between alignments that are equally good without them


def equal_names(ours: Sequence[Item], theirs: Sequence[Item]) -> dict[str, str]:
    """Return the modules whose paths are equal, unless a number in the path counts something else on each side."""
    own, found = {item.module: item for item in ours}, {}
    siblings = [_numbered(items) for items in (ours, theirs)]
    for item in theirs:
        same = own.get(item.module)
        if same is None or not _scores([same], [item], {}).any():
            continue
        families = [family for family, _ in _families(item.module) if "#" in family[1]]
        if all(siblings[0].get(family) == siblings[1].get(family) for family in families):
            found[item.module] = item.module
    return found


def _numbered(items: Sequence[Item]) -> dict[tuple[str, str], set[str]]:
    """Return the children that differ by a number only and own tensors, by module and name without numbers."""
    families: dict[tuple[str, str], set[str]] = {}
    for item in items:
        for family, token in _families(item.module) if item.tensors else ():
            families.setdefault(family, set()).add(token)
    return families


def _families(path: str) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield each word of a path, with the path before it and the word without its numbers."""
    tokens = path.split(".")
    for i, token in enumerate(tokens):
        yield (".".join(tokens[:i]), re.sub(r"\d+", "#", token)), token


def pair(
    ours: Sequence[Item], theirs: Sequence[Item], anchors: Mapping[str, str]
) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Align items, then those with tensors that are left among themselves, since branches may be called in any order.

    Returns:
        Indices of ours by index of theirs: the certain ones, and those that are as good as others.
    """
    scores = _scores(ours, theirs, anchors)
    pairs, choices = alignment.align(scores)
    by_key = {(item.module, item.occurrence, item.part): i for i, item in enumerate(ours)}
    for j, item in enumerate(theirs):  # whatever the order
        if (key := (anchors.get(item.module), item.occurrence, item.part)) in by_key:
            pairs[j] = by_key[key]
    _settle(ours, theirs, scores, pairs)
    used = set(pairs.values())
    choices = {j: [i for i in found if i not in used] for j, found in choices.items() if j not in pairs}
    rows = [i for i, item in enumerate(ours) if item.tensors and i not in used]
    tied = {i for candidates in choices.values() for i in candidates}
    columns = [j for j, item in enumerate(theirs) if item.tensors and j not in pairs]
    for j in columns:
        if len(choices.get(j, ())) < 2 and tied & set(candidates := [i for i in rows if scores[i, j]]):
            choices[j] = candidates
    rows, columns = [i for i in rows if i not in tied], [j for j in columns if j not in choices]
    if rows and columns and (part := scores[np.ix_(rows, columns)]).any():
        more = alignment.align(part)
        pairs |= {columns[j]: rows[i] for j, i in more.pairs.items()}
        choices |= {columns[j]: [rows[i] for i in found] for j, found in more.choices.items()}
    return pairs, choices


def _settle(ours: Sequence[Item], theirs: Sequence[Item], scores: np.ndarray, pairs: dict[int, int]) -> None:
    """Pair items with tensors that fit nothing else, and normalizations behind layers whose counterparts are certain.

    Args:
        pairs: indices of ours by index of theirs; more are added.
    """
    found = pairs
    while found:
        free = {i for i, item in enumerate(ours) if item.tensors}.difference(pairs.values())
        open_ = [j for j, item in enumerate(theirs) if item.tensors and j not in pairs]
        found = {}
        for j in open_:
            fits = [i for i in free if scores[i, j]]
            behind = pairs.get(j - 1, -2) + 1
            if len(fits) == 1 and np.count_nonzero(scores[fits[0], open_]) == 1:
                found[j] = fits[0]
            elif theirs[j].kind == NORMALIZATION and behind in fits:
                found[j] = behind
        pairs |= found


def loops(ours: Sequence[Item], theirs: Sequence[Item], choices: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Return pairs of modules of which one is called several times, such as the cell of a loop: no calls of theirs.

    Several loops, such as those of two directions, are paired in the order of their first calls.
    """
    found = {}
    for j, candidates in choices.items():
        rivals = [k for k in sorted(choices) if {*choices[k]} & {*candidates}]
        rest = sorted({i for k in rivals for i in choices[k]})
        others, own = grouped(rivals, lambda k: theirs[k].layer), grouped(rest, lambda i: ours[i].layer)
        if len(others) == len(own) and len(rivals) != len(rest):
            found[j] = list(own.values())[list(others).index(theirs[j].layer)][0]
    return found


def _scores(ours: Sequence[Item], theirs: Sequence[Item], anchors: Mapping[str, str]) -> np.ndarray:
    scores, targets = np.zeros((len(ours), len(theirs))), set(anchors.values())
    rows, columns = _by_description(ours), _by_description(theirs)
    for a, found in rows.items():
        for b, others in columns.items():
            if score := _score_of(*a, *b):
                scores[np.ix_(found, others)] = score
    for i, j in np.argwhere(scores):
        a, b = ours[i], theirs[j]
        if b.module in anchors or a.module in targets:
            same = (anchors.get(b.module), b.occurrence, b.part) == (a.module, a.occurrence, a.part)
            scores[i, j] = ANCHOR * same
        elif a.tensors:
            scores[i, j] += NAME * _likeness(a.module, b.module)
            is_behind = a.kind == b.kind == NORMALIZATION and i and j and ours[i - 1].tensors and scores[i - 1, j - 1]
            scores[i, j] += BEHIND * bool(is_behind)
    return scores


def _by_description(items: Sequence[Item]) -> dict[tuple, list[int]]:
    """Return the indices of the items that are the same but for their names."""

    def described(i: int) -> tuple:
        item = items[i]
        tensors = tuple(t._replace(name=t.role, module="", kind="") for t in item.tensors)
        return item.kind, item.shape, () if tensors else item.source, tensors

    return grouped(range(len(items)), described)


@cache
def _score_of(
    kind: str,
    shape: tuple[int, ...],
    source: tuple[int, ...],
    tensors: tuple[Tensor, ...],
    other_kind: str,
    other_shape: tuple[int, ...],
    other_source: tuple[int, ...],
    other_tensors: tuple[Tensor, ...],
) -> float:
    """Return how well two items fit; 0 if they cannot be a pair."""
    if not tensors or not other_tensors:
        if tensors or other_tensors or kind != other_kind:
            return 0.0
        is_resized = kind == POOLING and bool(source) and source == other_source  # to another size
        return BARE if shape == other_shape else BARE / 2 * is_resized
    paired = layouts.pair(tensors, other_tensors, "")
    if max(other_tensors, key=_weight).name not in paired:
        return 0.0
    if max(tensors, key=_weight).name not in mapping.names_of(paired):
        return 0.0
    return WEIGHTED + SAME_KIND * (kind == other_kind) + SAME_SHAPE * (shape == other_shape) + min(len(paired), 4)


def _weight(tensor: Tensor) -> tuple[bool, int]:
    """Return how much a tensor shows of its module: an index that is no parameter shows less than any."""
    return tensor.is_trained, layouts.size(tensor)


@cache
def _likeness(name: str, other: str) -> float:
    """Return how alike two paths are, from 0 to 1: the words that they share, half of it for the last."""
    words, others = ([word for word in re.split(r"[._]+", path.lower()) if word] for path in (name, other))
    if not words or not others:
        return 0.0
    shared = sum((Counter(words) & Counter(others)).values()) / max(len(words), len(others))
    return (shared + (words[-1] == others[-1])) / 2
