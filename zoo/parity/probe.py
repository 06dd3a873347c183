"""What a pass of a side reports: inputs, outputs and gradients of every module; and what they are replaced by.

A pass can run as it is. Or, in a model that is compared with a reference, each module that has a partner gets the
inputs of its partner, and what follows it gets the partner's outputs; the same in the backward pass with gradients. So
each module, and the code between two of them, is judged by itself, and one fault hides no other.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zoo.parity.record import Call, Record
from zoo.parity.recording import call_sites, source_files

Identity = tuple[str, int]  # of a call: module, and how many times it was called before
Values = list[np.ndarray | None]  # that replace tensors; None leaves one as it is
# Orders of axes in which another framework may hold an activation: with channels last, or with the sequence first.
ORDERS = {3: ((0, 1, 2), (0, 2, 1), (1, 0, 2)), 4: ((0, 1, 2, 3), (0, 3, 1, 2)), 5: ((0, 1, 2, 3, 4), (0, 4, 1, 2, 3))}
GRADIENT = {"in": "din", "out": "dout"}


class Archive:
    """Whole tensors of a reference's passes, in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, key: str, array: np.ndarray) -> None:
        np.save(self._path(key), array, allow_pickle=False)

    def load(self, key: str) -> np.ndarray | None:
        path = self._path(key)
        return np.load(path, mmap_mode="r", allow_pickle=False) if path.exists() else None

    def _path(self, key: str) -> Path:
        return self.folder / (key.replace("/", "-").replace(" ", "_") + ".npy")


class Entry(NamedTuple):
    """What a module's tensors are replaced by, and the token by which their gradients are reported."""

    token: int
    values: Values


class Partner(NamedTuple):
    """The reference's pass of the same title.

    Attributes:
        keys: of its calls in its record, by identity.
        calls: its identity for each call of the model.
        forced: its identities whose tensors replace those of the model.
        examine: is called with a call, its identity, and the output that replaces that of the model, both whole.
    """

    archive: Archive
    keys: Mapping[Identity, str]
    calls: Mapping[Identity, Identity]
    forced: Collection[Identity] = ()
    examine: Callable[[Call, Identity, np.ndarray, np.ndarray], None] = lambda *_: None


class Probe:
    """Records one pass.

    Args:
        modules: by attribute path; "" is the model.
        title: of the pass, the first part of the keys of its tensors.
        archive: where a reference keeps whole tensors; None if nobody needs them.
        partner: the reference's pass; None for that of the reference itself.
    """

    def __init__(
        self,
        modules: Mapping[str, Any],
        record: Record,
        title: str,
        archive: Archive | None = None,
        partner: Partner | None = None,
    ):
        self.record, self.title, self.archive, self.partner = record, title, archive, partner
        self.files = {name: source_files(modules, name) for name in modules}
        self.calls: list[Call] = []
        self.seen: dict[str, int] = {}
        self.open: list[int] = []
        self.orders: dict[str, tuple[int, ...]] = {}
        self.position = 0

    def enter(self, name: str, module: Any, inputs: Sequence[np.ndarray]) -> Entry:
        """Note that a module is called."""
        occurrence = self.seen[name] = self.seen.get(name, -1) + 1
        token, kind = len(self.calls), type(module).__name__
        self.open.append(token)
        key = f"{self.title}/{token}"
        sites, span = call_sites(), (self._tick(), -1)
        self.calls.append(Call(key, name, occurrence, kind, self.files[name], sites, len(inputs), 0, span))
        return Entry(token, self._keep(token, "in", inputs))

    def leave(self, outputs: Sequence[np.ndarray]) -> Entry:
        """Note the result of the module entered last."""
        token = self.open.pop()
        call = self.calls[token]
        self.calls[token] = call._replace(outputs=len(outputs), span=(call.span[0], self._tick()))
        return Entry(token, self._keep(token, "out", outputs))

    def gradient(self, token: int, part: str, index: int, array: np.ndarray) -> np.ndarray | None:
        """Note the gradient of an input (`in`) or an output (`out`); return what replaces it, None to leave it."""
        return self._note(token, GRADIENT[part], index, array)

    def close(self) -> None:
        """Add the calls to the record: those of the reference, or those with a partner, by its name."""
        if self.partner is None:
            self.record.passes[self.title] = self.calls
            return
        found = {call: self.partner.calls.get((call.name, call.occurrence)) for call in self.calls}
        self.record.passes[self.title] = [
            call._replace(name=partner[0], occurrence=partner[1]) for call, partner in found.items() if partner
        ]

    def _keep(self, token: int, part: str, arrays: Iterable[np.ndarray]) -> Values:
        return [self._note(token, part, index, array) for index, array in enumerate(arrays)]

    def _note(self, token: int, part: str, index: int, array: np.ndarray) -> np.ndarray | None:
        """Record a tensor in the reference's order of axes; return what replaces it."""
        call = self.calls[token]
        name = f"{call.key}/{part}{index}"
        if self.partner is None:
            self.record.add(name, array)
            if self.archive is not None:
                self.archive.save(name, array)
            return None
        identity = self.partner.calls.get((call.name, call.occurrence))
        if identity is None or identity not in self.partner.keys:
            return None
        reference = self.partner.archive.load(f"{self.partner.keys[identity]}/{part}{index}")
        if reference is None:
            return None
        place = name.replace("/d", "/")  # a gradient has the axes of its tensor
        order = self.orders.setdefault(place, axes(array, reference))
        own = array.transpose(order)
        self.record.add(name, own)
        if identity not in self.partner.forced:
            return None
        if part == "out" and index == 0:
            self.partner.examine(call, identity, reference, own)
        is_replaced = array.dtype.kind == "f" and own.shape == reference.shape
        return np.asarray(reference).transpose(np.argsort(order)) if is_replaced else None

    def _tick(self) -> int:
        self.position += 1
        return self.position


def axes(array: np.ndarray, reference: np.ndarray) -> tuple[int, ...]:
    """Return the order of an array's axes that makes it most similar to the reference."""
    natural = tuple(range(array.ndim))
    orders = [order for order in ORDERS.get(array.ndim, ()) if array.transpose(order).shape == reference.shape]
    if len(orders) < 2:
        return orders[0] if orders else natural
    return min(orders, key=lambda order: float(np.abs(array.transpose(order) - reference).sum(dtype=np.float64)))
