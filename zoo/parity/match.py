"""Where each weight and each call of a model is found in another model that is to compute the same."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import UserError, parsing, similar_name
from zoo.parity import alignment, layouts, mapping, nesting, packs
from zoo.parity.alignment import grouped
from zoo.parity.mapping import Match, Source
from zoo.parity.record import Call, Identity

DROPOUT, NORMALIZATION, POOLING = "dropout", "normalization", "pooling"
KINDS = {  # classes of layers, by what their names hold; the first that fits
    DROPOUT: "drop|stochasticdepth",
    NORMALIZATION: "norm|^bn",
    POOLING: "pool",
    "padding": "pad",
    "convolution": "conv",
    "dense": "linear|dense",
    "embedding": "embed",
    "recurrent": "lstm|gru|rnn",
    "softmax": "softmax",
    "activation": "relu|gelu|elu|silu|swish|mish|sigmoid|tanh|activation|^act",
    "flatten": "flatten",
}
PACKED_BIASES = {"q_bias": 0, "v_bias": 2}  # places among those of query, key and value
IGNORED = ("identity", DROPOUT)  # classes of calls that change nothing in evaluation
ANCHOR, WEIGHTED, SAME_KIND, SAME_SHAPE, BARE = 1e5, 16.0, 2.0, 2.0, 1.0  # scores of a pair
BEHIND = 8.0  # of normalizations behind layers that can be a pair, too
NAME = 1e-4  # of it; so all names together decide only between alignments that are equally good without them


class Tensor(NamedTuple):
    """A parameter or running statistic of a model.

    Attributes:
        shape: canonical where the layer is known: convolutions (out, in/groups, kH, kW), dense layers (out, in).
        module: path of the module that owns it.
        kind: class name of that module.
        role: weight, bias, running_mean, running_var, or the attribute's own name.
    """

    name: str
    shape: tuple[int, ...]
    module: str
    kind: str
    role: str
    is_trained: bool


class Outline(NamedTuple):
    """What is known of a side's model before anything is compared.

    Attributes:
        tensors: in the order of their registration.
        calls: of a forward pass in evaluation mode, in the order in which modules were entered.
        shapes: of the calls' inputs and outputs, by key of the call: <key>/in0, <key>/out0; may be channels last.
    """

    framework: str
    tensors: list[Tensor]
    calls: list[Call]
    shapes: dict[str, tuple[int, ...]]


class Item(NamedTuple):
    """A call of a module that has tensors or calls no other; a module with tensors that is never called counts once.

    Attributes:
        shape: of its first output, sorted and without ones, so that the place of the channels does not matter.
        source: the same of its first input.
        part: layer and direction, _l0_reverse, of a recurrent module with several.
    """

    module: str
    occurrence: int
    kind: str
    tensors: tuple[Tensor, ...]
    shape: tuple[int, ...]
    source: tuple[int, ...] = ()
    part: str = ""

    @property
    def identity(self) -> Identity:
        return self.module, self.occurrence

    @property
    def layer(self) -> tuple[str, str]:
        return self.module, self.part


def match(reference: Outline, other: Outline, given: Mapping[str, Any] | None = None) -> Match:
    """Find the source of every tensor of a model, and the counterparts of its calls.

    Args:
        given: names of tensors of the reference, or sources, by tensor of the other model.
    """
    fixed = _given(reference, other, given or {})
    (packed, our_packs), (other_packed, their_packs) = packs.pack(reference.tensors), packs.pack(other.tensors)
    ours, theirs = _items(reference, packed), _items(other, other_packed)
    anchors = _equal_names(ours, theirs) | _given_modules(reference, other, fixed)
    pairs, choices = _pair(ours, theirs, anchors)
    tensors, ambiguous = dict[str, Source](), dict[str, tuple[str, ...]]()
    for j, i in (pairs | _loops(ours, theirs, choices)).items():
        rule = "name" if anchors.get(theirs[j].module) == ours[i].module else "order"
        for name, source in layouts.pair(ours[i].tensors, theirs[j].tensors, rule).items():
            tensors.setdefault(name, source)
    asked = [
        tensor.name
        for j, found in choices.items()
        for item in (theirs[j], *(ours[i] for i in found))
        for tensor in item.tensors
    ]
    _pair_rest(
        packed, other_packed, tensors, [*asked, *fixed, *(name for each in fixed.values() for name in each.names)]
    )
    _unflatten(reference, other, ours, {i: theirs[j] for j, i in pairs.items()}, tensors)
    tensors = packs.unpack(tensors, our_packs, their_packs) | fixed
    tensors = _tied(reference, other, tensors) | _without_key(reference, other, tensors) | tensors
    used = mapping.names_of(tensors)
    for j, candidates in choices.items():
        for tensor in theirs[j].tensors:
            found = [t.name for i in candidates for t in ours[i].tensors if t.role == tensor.role]
            free = dict.fromkeys(name for names in found for name in names.split("|") if name not in used)
            ambiguous |= {name: tuple(free) for name in tensor.name.split("|") if free and name not in tensors}
    rest = [tensor for tensor in other.tensors if tensor.name not in tensors]
    return Match(
        {tensor.name: tensors[tensor.name] for tensor in other.tensors if tensor.name in tensors},
        _calls(reference, other, tensors, _whole(ours, theirs, pairs)),
        tuple(tensor.name for tensor in rest if tensor.is_trained or tensor.role in layouts.ROLES),
        tuple(tensor.name for tensor in reference.tensors if tensor.name not in used),
        ambiguous,
        tuple(tensor.name for tensor in rest if not tensor.is_trained and tensor.role not in layouts.ROLES),
    )


def require_complete(matched: Match, outlines: tuple[Outline, Outline], title: str, option: str) -> None:
    """Raise UserError if a tensor has no source, or several that are as good.

    Args:
        outlines: of the reference and the side.
        title: of the side that lacks sources.
        option: by which a mapping is given.
    """
    for name, candidates in matched.ambiguous.items():
        raise UserError(
            f"{title}: {name} could be {', '.join(candidates)} of the reference; "
            f"write {name}: NAME to a file and give it as {option}"
        )
    if matched.missing:
        raise UserError(
            f"{title}: {len(matched.missing)} tensors have no counterpart in the reference, such as "
            f"{_with_shapes(matched.missing, outlines[1])}; the reference's {len(matched.unused)} others: "
            f"{_with_shapes(matched.unused, outlines[0])}; write OTHER: NAME to a file and give it as {option}"
        )


def _with_shapes(names: Sequence[str], outline: Outline) -> str:
    """Return the first three tensors with their shapes."""
    shapes = {tensor.name: tensor.shape for tensor in outline.tensors}
    return ", ".join(f"{name} {shapes[name]}" for name in names[:3])


def _whole(ours: Sequence[Item], theirs: Sequence[Item], pairs: Mapping[int, int]) -> dict[Identity, Identity]:
    """Return the calls of paired items that are whole modules on both sides."""
    parts = [
        {key for key, count in Counter(item.identity for item in items).items() if count > 1}
        | {item.identity for item in items if any("|" in tensor.name for tensor in item.tensors)}
        for items in (ours, theirs)
    ]
    keys = {theirs[j].identity: ours[i].identity for j, i in pairs.items()}
    return {b: a for b, a in keys.items() if a not in parts[0] and b not in parts[1]}


def kind_class(kind: str) -> str:
    """Return the class of a layer's kind; its own name, in lower case, if it has none."""
    kind = kind.lower()
    return next((name for name, pattern in KINDS.items() if re.search(pattern, kind)), kind)


def _items(outline: Outline, tensors: Sequence[Tensor]) -> list[Item]:
    """Return the items of a model in the order of its calls.

    A module that is never called comes behind the one that was registered before it, if a call has both within it.

    Args:
        tensors: those of the outline, some of them packed.
    """
    owned = grouped(tensors, lambda tensor: tensor.module)
    in_packs = {tensor.module for tensor in outline.tensors} - owned.keys()
    items = []
    for call, is_leaf in nesting.with_leaves(outline.calls):
        kind = kind_class(call.kind)
        if call.name in owned or (is_leaf and kind not in IGNORED and call.name not in in_packs):
            for part, own in packs.layers(owned.get(call.name, ())).items():
                shape, source = _extent(outline, call, "out0"), _extent(outline, call, "in0")
                items.append(Item(call.name, call.occurrence, kind, tuple(own), shape, source, part))
    called, last = {call.name for call in outline.calls}, ""
    for name, tensors in owned.items():
        if name not in called:
            around = next((path for path in _ancestors(name) if path in called), "")
            near = last if nesting.is_within(last, around) else around
            place = max((i for i, item in enumerate(items) if nesting.is_within(item.module, near)), default=-1)
            if near == around:  # nothing before it in this module
                place = next((i for i, item in enumerate(items) if nesting.is_within(item.module, near)), 0) - 1
                place += bool(items) and items[place + 1].module == near
            for part, own in reversed(packs.layers(tensors).items()):
                items.insert(place + 1, Item(name, 0, kind_class(own[0].kind), tuple(own), (), (), part))
        last = name
    return items


def _extent(outline: Outline, call: Call, place: str) -> tuple[int, ...]:
    return tuple(sorted(length for length in outline.shapes.get(f"{call.key}/{place}", ()) if length != 1))


def _ancestors(name: str) -> Iterator[str]:
    while name:
        name = _parent(name)
        yield name


def _equal_names(ours: Sequence[Item], theirs: Sequence[Item]) -> dict[str, str]:
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


def _pair(
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


def _loops(ours: Sequence[Item], theirs: Sequence[Item], choices: Mapping[int, Sequence[int]]) -> dict[int, int]:
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


def _pair_rest(
    ours: Sequence[Tensor], theirs: Sequence[Tensor], tensors: dict[str, Source], asked: Collection[str]
) -> None:
    """Pair what is left of modules that do not correspond, such as tokens and scales.

    In order, where both sides have as many of an attribute and shape, or of a shape; else where only one fits.

    Args:
        asked: names of tensors that are as good as others.
    """

    def left() -> list[list[Tensor]]:
        used = mapping.names_of(tensors)
        sides = (ours, used | {*asked}), (theirs, tensors.keys() | {*asked})
        return [_loose(side, found) for side, found in sides]

    for describe in (lambda tensor: (tensor.role, tensor.shape), lambda tensor: tensor.shape):
        groups = [grouped(side, describe) for side in left()]
        for key in groups[0].keys() & groups[1].keys():
            if len(groups[0][key]) == len(groups[1][key]):
                pairs = zip(groups[0][key], groups[1][key], strict=True)
                tensors.update({b.name: Source((a.name,), (), "order") for a, b in pairs})
    a, b = ([tensor for tensor in side if tensor.role not in layouts.ROLES] for side in left())
    tensors.update(layouts.pair(a, b, "order"))


def _loose(tensors: Sequence[Tensor], found: Collection[str]) -> list[Tensor]:
    """Return the tensors without a counterpart that are not all of a layer of a known kind."""
    modules = {_parent(part) for tensor in tensors if tensor.name in found for part in tensor.name.split("|")}
    return [
        tensor
        for tensor in tensors
        if tensor.name not in found
        and (tensor.role not in layouts.ROLES or kind_class(tensor.kind) not in KINDS or tensor.module in modules)
    ]


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def _tied(reference: Outline, other: Outline, tensors: Mapping[str, Source]) -> dict[str, Source]:
    """Return the sources of dense layers whose weight is that of an embedding in the reference."""
    used, found = mapping.names_of(tensors), dict[str, Source]()
    for tensor in other.tensors:
        if tensor.name not in tensors and tensor.role == "weight" and kind_class(tensor.kind) == "dense":
            same = [t for t in reference.tensors if t.shape == tensor.shape]
            if len(same) == 1 and kind_class(same[0].kind) == "embedding" and same[0].name in used:
                found[tensor.name] = Source((same[0].name,), (), "tied")
    return found


def _without_key(reference: Outline, other: Outline, tensors: Mapping[str, Source]) -> dict[str, Source]:
    """Return the sources of the biases of query and value, as Swin V2 has them, in one that has the key's, too."""
    shapes, found = {tensor.name: tensor.shape for tensor in reference.tensors}, dict[str, Source]()
    for tensor in other.tensors:
        weight = tensors.get(f"{tensor.module}.qkv.weight")
        if tensor.name not in tensors and tensor.role in PACKED_BIASES and weight is not None:
            bias, size = f"{_parent(weight.names[0])}.bias", tensor.shape[0]
            if shapes.get(bias) == (3 * size,):
                steps = (("split", 0, [size] * 3, PACKED_BIASES[tensor.role]),)
                found[tensor.name] = Source((bias,), steps, "split")
    return found


def _unflatten(
    reference: Outline, other: Outline, ours: Sequence[Item], pairs: Mapping[int, Item], tensors: dict[str, Source]
) -> None:
    """Reorder the features of dense layers behind flattened maps where one model has the channels last.

    Args:
        pairs: items of the other model by index of ours.
    """
    first, last = _is_channels_last(reference), _is_channels_last(other)
    maps: tuple[int, ...] = ()
    for i, item in enumerate(ours):
        if first == last or not item.tensors:
            continue
        largest = max(item.tensors, key=layouts.size)
        if maps and item.kind == "dense" and i in pairs:
            for tensor in pairs[i].tensors:
                if len(tensor.shape) == 2 and tensors[tensor.name].steps == ():
                    steps = layouts.unflattened(tensor.shape, maps[0], last)
                    tensors[tensor.name] = tensors[tensor.name]._replace(steps=steps)
        maps = largest.shape if item.kind in ("convolution", "normalization") else ()


def _is_channels_last(outline: Outline) -> bool:
    channels = {
        t.module: t.shape[0] for t in outline.tensors if len(t.shape) > 2 and kind_class(t.kind) == "convolution"
    }
    shapes = [(outline.shapes.get(f"{call.key}/out0", ()), channels.get(call.name)) for call in outline.calls]
    return any(count and len(shape) > 2 and shape[-1] == count != shape[1] for shape, count in shapes)


def _calls(
    reference: Outline, other: Outline, tensors: Mapping[str, Source], pairs: Mapping[Identity, Identity]
) -> dict[Identity, Identity]:
    """Return the counterparts of calls: of items, of modules with the same tensors, of dropout, of the model itself."""
    ours, theirs = ({call.identity for call in side.calls} for side in (reference, other))
    found = {b: a for b, a in pairs.items() if a in ours and b in theirs}
    held = {name: frozenset(source.names) for name, source in tensors.items()}
    used = {name: frozenset((name,)) for names in held.values() for name in names}
    nodes = nesting.align(_nodes(reference, used, {a: a for a in found.values()}), _nodes(other, held, found))
    found |= nesting.between(reference.calls, other.calls, found, *(_of(side, DROPOUT) for side in (reference, other)))
    roots = {("", 0): ("", 0)} if ("", 0) in ours & theirs else {}
    return nodes | found | roots


def _nodes(
    outline: Outline, held: Mapping[str, frozenset[str]], paired: Mapping[Identity, Identity]
) -> list[nesting.Node]:
    by_module: dict[str, frozenset[str]] = {}
    for tensor in outline.tensors:
        by_module[tensor.module] = by_module.get(tensor.module, frozenset()) | held.get(tensor.name, frozenset())
    extents = [_extent(outline, call, "out0") for call in outline.calls]
    return nesting.nodes(outline.calls, extents, by_module, paired, _of(outline, *IGNORED))


def _of(outline: Outline, *kinds: str) -> set[str]:
    return {call.name for call in outline.calls if kind_class(call.kind) in kinds}


def _given(reference: Outline, other: Outline, given: Mapping[str, Any]) -> dict[str, Source]:
    """Return the sources that are given. Raises UserError if a tensor is unknown or would have another shape."""
    known, wanted = ({tensor.name: tensor.shape for tensor in side.tensors} for side in (reference, other))
    sources = {name: mapping.parse(name, value) for name, value in given.items()}
    for name, source in sources.items():
        if name not in wanted:
            raise UserError(f"mapping: the model in {other.framework} has no tensor {name}{similar_name(name, wanted)}")
        for part in source.names:
            if part not in known:
                raise UserError(f"mapping: {name}: the reference has no tensor {part}{similar_name(part, known)}")
        with parsing(f"mapping: {name}", "correct its steps"):
            shape = mapping.apply(source, {part: np.broadcast_to(0.0, known[part]) for part in source.names}).shape
        if shape != wanted[name]:
            raise UserError(
                f"mapping: {name} would have the shape {list(shape)}, but it has {list(wanted[name])}; "
                "give steps such as [transpose, [1, 0]]"
            )
    return sources


def _given_modules(reference: Outline, other: Outline, fixed: Mapping[str, Source]) -> dict[str, str]:
    ours, theirs = ({tensor.name: tensor.module for tensor in side.tensors} for side in (reference, other))
    return {theirs[name]: ours[source.names[0]] for name, source in fixed.items() if len(source.names) == 1}
