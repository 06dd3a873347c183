"""How the tensors of a model are made of those of another one, and back; as a file that a person can edit."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import UserError, parsing
from zoo.weights import files

MAX_MAPPING = 1 << 24  # characters of a file
Steps = Sequence[tuple]  # what makes a tensor of another one, in order


class Source(NamedTuple):
    """Where a tensor comes from.

    Attributes:
        names: of tensors of the reference.
        steps: what makes the tensor of them, in order: ("concat", axis, sizes) or ("sum",), if they are several; then
            ("transpose", axes), ("reshape", from, to), ("blocks", axis, order), ("split", axis, sizes, index) ...
        rule: how it was found: name, order, fused, split, given ...
    """

    names: tuple[str, ...]
    steps: tuple[tuple, ...]
    rule: str


class Match(NamedTuple):
    """How two models correspond.

    Attributes:
        tensors: source of each tensor of the other model, in the reference.
        calls: (module, occurrence) of the reference by that of the other model, where it is certain.
        missing: tensors of the other model without a source.
        unused: tensors of the reference that are no source.
        ambiguous: candidates in the reference by missing tensor.
        kept: tensors without a source that are no parameters, such as an index: the model keeps its own.
    """

    tensors: dict[str, Source]
    calls: dict[tuple[str, int], tuple[str, int]]
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    ambiguous: dict[str, tuple[str, ...]]
    kept: tuple[str, ...] = ()

    @property
    def found(self) -> str:
        """How many tensors were found, and by which rules."""
        rules = Counter(source.rule for source in self.tensors.values()).most_common()
        by = ", ".join(f"{rule} ({count})" for rule, count in rules) or "nothing: it has none"
        return f"{len(self.tensors)} tensors found by {by}"


def names_of(sources: Mapping[str, Source]) -> set[str]:
    """Return the tensors of the reference of which sources are made."""
    return {name for source in sources.values() for name in source.names}


def apply(source: Source, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Make a tensor of those of the reference."""
    values = [arrays[name] for name in source.names]
    return forward(source.steps, values if len(values) > 1 else values[0])


def forward(steps: Steps, value: Any) -> np.ndarray:
    """Make a tensor, of several if the first step joins them."""
    for name, *arguments in steps:
        value = STEPS[name](value, *arguments)
    return value


def backward(steps: Steps, array: np.ndarray) -> np.ndarray:
    """Undo steps that have an inverse."""
    for name, *arguments in reversed(steps):
        array = INVERSE[name](array, *arguments)
    return array


def _blocks(array: np.ndarray, axis: int, order: Sequence[int]) -> np.ndarray:
    return np.concatenate([np.split(array, len(order), axis)[index] for index in order], axis)


STEPS: dict[str, Callable[..., np.ndarray]] = {
    "concat": lambda arrays, axis, _: np.concatenate(arrays, axis),
    "sum": sum,
    "zeros": np.zeros_like,
    "transpose": lambda array, axes: array.transpose(axes),
    "reshape": lambda array, _, shape: array.reshape(shape),
    "split": lambda array, axis, sizes, index: np.split(array, np.cumsum(sizes)[:-1], axis)[index],
    "blocks": _blocks,
    "flip": np.flip,
}
INVERSE: dict[str, Callable[..., np.ndarray]] = {
    "transpose": lambda array, axes: array.transpose(np.argsort(axes)),
    "reshape": lambda array, shape, _: array.reshape(shape),
    "blocks": lambda array, axis, order: _blocks(array, axis, np.argsort(order).tolist()),
    "flip": np.flip,
}


def convert(match: Match, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the other model's tensors, made of those of the reference."""
    return {name: np.ascontiguousarray(apply(source, arrays)) for name, source in match.tensors.items()}


def revert(match: Match, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the reference's tensors that can be made in full of the other model's, which may be their gradients.

    A tensor that is the source of several is left out: its gradient is the sum of theirs.
    """
    found, parts = dict[str, np.ndarray](), dict[str, tuple[Source, tuple, dict[int, np.ndarray]]]()
    for name, source in match.tensors.items():
        if name in arrays:
            array, source = _invert(source, arrays[name])
            if not source.steps or source.steps[-1][0] != "split":
                found |= _to_names(source, array)
                continue
            _, axis, sizes, index = source.steps[-1]
            whole = _whole(source)
            parts.setdefault(repr(whole), (whole, (axis, len(sizes)), {}))[2][index] = array
    for whole, (axis, count), pieces in parts.values():
        if len(pieces) == count:
            array, source = _invert(whole, np.concatenate([pieces[index] for index in range(count)], axis))
            found |= _to_names(source, array)
    wholes = {}
    for name, source in match.tensors.items():
        whole = _whole(source)
        wholes[name if whole.steps == source.steps else repr(whole)] = whole
    uses = Counter(name for whole in wholes.values() if ("zeros",) not in whole.steps for name in whole.names)
    return {name: np.ascontiguousarray(array) for name, array in found.items() if uses[name] == 1}


def _whole(source: Source) -> Source:
    """Return the source of the tensor of which another one is a part; of one that is no part, itself."""
    names = [step[0] for step in source.steps]
    end = names.index("split") if "split" in names else len(names)
    return source._replace(steps=source.steps[:end], rule="")


def _invert(source: Source, array: np.ndarray) -> tuple[np.ndarray, Source]:
    """Undo the last steps, as far as one tensor is made of one; return what is left of the source."""
    steps, count = source.steps, len(source.steps)
    while count and steps[count - 1][0] in INVERSE:
        count -= 1
    return backward(steps[count:], array), source._replace(steps=steps[:count])


def _to_names(source: Source, array: np.ndarray) -> dict[str, np.ndarray]:
    if not source.steps:
        return {source.names[0]: array}
    name, *arguments = source.steps[0]
    if name != "concat" or len(source.steps) > 1:
        return {}
    axis, sizes = arguments
    return dict(zip(source.names, np.split(array, np.cumsum(sizes)[:-1], axis), strict=True))


def parse(name: str, value: Any) -> Source:
    """Return a source as a mapping has it: a name, or {from: names, steps: ...}; raise UserError for anything else."""
    if isinstance(value, Source):
        return value
    if isinstance(value, str):
        return Source((value,), (), "given")
    try:
        names = (value["from"],) if isinstance(value["from"], str) else tuple(value["from"])
        steps = tuple(tuple(step) for step in value.get("steps", ()))
        if set(value) - {"from", "steps"} or any(step[0] not in STEPS for step in steps):
            raise ValueError
    except (TypeError, KeyError, ValueError, AttributeError, IndexError):
        raise UserError(
            f"mapping: {name}: give the name of a tensor of the reference, or "
            "{from: [names], steps: [[transpose, [1, 0]]]}"
        ) from None
    return Source(names, steps, "given")


def save(path: str, match: Match) -> None:
    """Write a mapping as YAML, a line per tensor; candidates for what is ambiguous are comments."""
    with files.atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for name, source in match.tensors.items():
            value: Any = source.names[0]
            if source.steps or len(source.names) > 1:
                value = {"from": list(source.names), "steps": [list(step) for step in source.steps]}
            file.write(f"{json.dumps(name)}: {json.dumps(value)}\n")
        for name, candidates in match.ambiguous.items():
            file.write(f"# {json.dumps(name)}: one of {json.dumps(list(candidates))}\n")


def load(path: str) -> dict[str, Any]:
    """Return a mapping that was written as YAML or JSON."""
    import yaml  # which the environment of a side may lack

    with parsing(path, "write one line per tensor, `other: reference`"):
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_MAPPING)
        mapping = yaml.safe_load(text) or {}
        if not isinstance(mapping, dict) or not all(isinstance(name, str) for name in mapping):
            raise ValueError("no mapping of names")
    return mapping


def to_json(match: Match) -> str:
    """Return tensors and calls as text, for the process of a side."""
    tensors = {name: [source.names, source.steps, source.rule] for name, source in match.tensors.items()}
    return json.dumps({"tensors": tensors, "calls": [[*own, *other] for own, other in match.calls.items()]})


def from_json(text: str) -> Match:
    found = json.loads(text)
    tensors = {
        name: Source(tuple(names), tuple(map(tuple, steps)), rule)
        for name, (names, steps, rule) in found["tensors"].items()
    }
    calls = {(module, count): (other, number) for module, count, other, number in found["calls"]}
    return Match(tensors, calls, (), (), {})
