"""What is known of a model before it is compared: its tensors, its calls, and the items that have counterparts."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zoo.parity import nesting, packs
from zoo.parity.alignment import grouped
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
IGNORED = ("identity", DROPOUT)  # classes of calls that change nothing in evaluation


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


def kind_class(kind: str) -> str:
    """Return the class of a layer's kind; its own name, in lower case, if it has none."""
    kind = kind.lower()
    return next((name for name, pattern in KINDS.items() if re.search(pattern, kind)), kind)


def items_of(outline: Outline, tensors: Sequence[Tensor]) -> list[Item]:
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
                shape, source = extent(outline, call, "out0"), extent(outline, call, "in0")
                items.append(Item(call.name, call.occurrence, kind, tuple(own), shape, source, part))
    called, last = {call.name for call in outline.calls}, ""
    for name, tensors in owned.items():
        if name not in called:
            around = next((path for path in ancestors(name) if path in called), "")
            near = last if nesting.is_within(last, around) else around
            place = max((i for i, item in enumerate(items) if nesting.is_within(item.module, near)), default=-1)
            if near == around:  # nothing before it in this module
                place = next((i for i, item in enumerate(items) if nesting.is_within(item.module, near)), 0) - 1
                place += bool(items) and items[place + 1].module == near
            for part, own in reversed(packs.layers(tensors).items()):
                items.insert(place + 1, Item(name, 0, kind_class(own[0].kind), tuple(own), (), (), part))
        last = name
    return items


def extent(outline: Outline, call: Call, place: str) -> tuple[int, ...]:
    return tuple(sorted(length for length in outline.shapes.get(f"{call.key}/{place}", ()) if length != 1))


def ancestors(name: str) -> Iterator[str]:
    while name:
        name = parent(name)
        yield name


def parent(name: str) -> str:
    return name.rpartition(".")[0]


def modules_of(outline: Outline, *kinds: str) -> set[str]:
    return {call.name for call in outline.calls if kind_class(call.kind) in kinds}
