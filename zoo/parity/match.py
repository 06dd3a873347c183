"""Where each weight and each call of a model is found in another model that is to compute the same."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.data.errors import UserError, parsing, similar_name
from zoo.parity import layouts, mapping, nesting, packs, pairing
from zoo.parity.alignment import grouped
from zoo.parity.mapping import Match, Source
from zoo.parity.outline import (
    DROPOUT,
    IGNORED,
    KINDS,
    Item,
    Outline,
    Tensor,
    extent,
    items_of,
    kind_class,
    modules_of,
    parent,
)
from zoo.parity.record import Identity

PACKED_BIASES = {"q_bias": 0, "v_bias": 2}  # places among those of query, key and value


def match(reference: Outline, other: Outline, given: Mapping[str, Any] | None = None) -> Match:
    """Find the source of every tensor of a model, and the counterparts of its calls.

    Args:
        given: names of tensors of the reference, or sources, by tensor of the other model.
    """
    fixed = _given(reference, other, given or {})
    (packed, our_packs), (other_packed, their_packs) = packs.pack(reference.tensors), packs.pack(other.tensors)
    ours, theirs = items_of(reference, packed), items_of(other, other_packed)
    anchors = pairing.equal_names(ours, theirs) | _given_modules(reference, other, fixed)
    pairs, choices = pairing.pair(ours, theirs, anchors)
    tensors, ambiguous = dict[str, Source](), dict[str, tuple[str, ...]]()
    for j, i in (pairs | pairing.loops(ours, theirs, choices)).items():
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
    tensors |= _lone(reference, other, tensors, asked) | _multiplied(reference, other, tensors)
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


def _pair_rest(
    ours: Sequence[Tensor], theirs: Sequence[Tensor], tensors: dict[str, Source], asked: Collection[str]
) -> None:
    """Pair what is left of modules that do not correspond, such as tokens and scales.

    In order, where both sides have as many of an attribute and shape, or of a shape, of those that are trained or not;
    else where only one fits.

    Args:
        asked: names of tensors that are as good as others.
    """

    def left() -> list[list[Tensor]]:
        used = mapping.names_of(tensors)
        sides = (ours, used | {*asked}), (theirs, tensors.keys() | {*asked})
        return [_loose(side, found) for side, found in sides]

    for describe in (
        lambda tensor: (tensor.role, tensor.shape),
        lambda tensor: (tensor.is_trained, tensor.shape),
        lambda tensor: tensor.shape,
    ):
        groups = [grouped(side, describe) for side in left()]
        for key in groups[0].keys() & groups[1].keys():
            if len(groups[0][key]) == len(groups[1][key]):
                pairs = zip(groups[0][key], groups[1][key], strict=True)
                tensors.update({b.name: Source((a.name,), (), "order") for a, b in pairs})
    a, b = ([tensor for tensor in side if tensor.role not in layouts.ROLES] for side in left())
    tensors.update(layouts.pair(a, b, "order"))


def _loose(tensors: Sequence[Tensor], found: Collection[str]) -> list[Tensor]:
    """Return the tensors without a counterpart that are not all of a layer of a known kind."""
    modules = {parent(part) for tensor in tensors if tensor.name in found for part in tensor.name.split("|")}
    return [
        tensor
        for tensor in tensors
        if tensor.name not in found
        and (tensor.role not in layouts.ROLES or kind_class(tensor.kind) not in KINDS or tensor.module in modules)
    ]


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
            bias, size = f"{parent(weight.names[0])}.bias", tensor.shape[0]
            if shapes.get(bias) == (3 * size,):
                steps = (("split", 0, [size] * 3, PACKED_BIASES[tensor.role]),)
                found[tensor.name] = Source((bias,), steps, "split")
    return found


def _lone(
    reference: Outline, other: Outline, tensors: Mapping[str, Source], asked: Collection[str]
) -> dict[str, Source]:
    """Return the sources of parameters that alone are left of their shape, on both sides."""
    used = mapping.names_of(tensors) | {*asked}
    ours = grouped((t for t in reference.tensors if t.is_trained and t.name not in used), lambda tensor: tensor.shape)
    left = (t for t in other.tensors if t.is_trained and t.name not in tensors and t.name not in asked)
    theirs = grouped(left, lambda tensor: tensor.shape)
    return {
        theirs[shape][0].name: Source((ours[shape][0].name,), (), "order")
        for shape in ours.keys() & theirs.keys()
        if len(ours[shape]) == len(theirs[shape]) == 1
    }


def _multiplied(reference: Outline, other: Outline, tensors: Mapping[str, Source]) -> dict[str, Source]:
    """Return the sources of square matrices of JAX's functions, which are those of dense layers transposed.

    That is how x @ w multiplies, unless a matrix that is not square tells otherwise.
    """
    if "jax" not in (reference.framework, other.framework):
        return {}
    kinds = {tensor.name: tensor.kind for tensor in reference.tensors}
    found = {
        tensor: tensors[tensor.name]
        for tensor in other.tensors
        if tensor.name in tensors and len(tensor.shape) == 2 and len(tensors[tensor.name].names) == 1
    }
    pairs = {
        tensor: source
        for tensor, source in found.items()
        if sorted((kind_class(tensor.kind), kind_class(kinds.get(source.names[0], "?")))) == ["", "dense"]
    }
    transposed = (("transpose", [1, 0]),)
    if not all(source.steps == transposed for tensor, source in pairs.items() if len({*tensor.shape}) > 1):
        return {}
    squares = {tensor: source for tensor, source in pairs.items() if len({*tensor.shape}) == 1 and not source.steps}
    return {tensor.name: source._replace(steps=transposed) for tensor, source in squares.items()}


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
    found |= nesting.between(
        reference.calls, other.calls, found, *(modules_of(side, DROPOUT) for side in (reference, other))
    )
    roots = {("", 0): ("", 0)} if ("", 0) in ours & theirs else {}
    return nodes | found | roots


def _nodes(
    outline: Outline, held: Mapping[str, frozenset[str]], paired: Mapping[Identity, Identity]
) -> list[nesting.Node]:
    by_module: dict[str, frozenset[str]] = {}
    for tensor in outline.tensors:
        by_module[tensor.module] = by_module.get(tensor.module, frozenset()) | held.get(tensor.name, frozenset())
    extents = [extent(outline, call, "out0") for call in outline.calls]
    return nesting.nodes(outline.calls, extents, by_module, paired, modules_of(outline, *IGNORED))


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
