"""What a pass of a side reports: inputs, outputs and gradients of every module; and what they are replaced by.

A pass can run as it is. Or, in a model that is compared with a reference, each module that has a partner gets the
inputs of its partner, and what follows it gets the partner's outputs; the same in the backward pass with gradients. So
each module, and the code between two of them, is judged by itself, and one fault hides no other.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zoo.parity.layouts import is_merged
from zoo.parity.record import Call, Identity, Record
from zoo.parity.recording import Recorder

# Orders of axes in which another framework may hold an activation: channels at the other end, or the sequence first.
ORDERS = {
    3: ((0, 1, 2), (0, 2, 1), (1, 0, 2)),
    4: ((0, 1, 2, 3), (0, 3, 1, 2), (0, 2, 3, 1)),
    5: ((0, 1, 2, 3, 4), (0, 4, 1, 2, 3), (0, 2, 3, 4, 1)),
}
GRADIENT = {"in": "din", "out": "dout"}
HIDDEN = -100.0  # scores to which so much is added at most do not count


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


class Partner(NamedTuple):
    """The reference's pass of the same title.

    Attributes:
        keys: of its calls in its record, by identity.
        calls: its identity for each call of the model.
        forced: its identities whose tensors replace those of the model.
        examine: is called with a call, its identity, the place of a tensor (in0, out0), and the reference's and the
            model's, both whole, before the one replaces the other.
    """

    archive: Archive
    keys: Mapping[Identity, str]
    calls: Mapping[Identity, Identity]
    forced: Collection[Identity] = ()
    examine: Callable[[Call, Identity, str, np.ndarray, np.ndarray], None] = lambda *_: None


class Probe(Recorder):
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
        super().__init__(modules, title, self._note)
        self.record, self.archive, self.partner = record, archive, partner
        self.orders: dict[str, tuple[int, ...]] = {}

    def gradient(self, number: int, part: str, index: int, array: np.ndarray) -> np.ndarray | None:
        """Note the gradient of an input (`in`) or an output (`out`); return what replaces it, None to leave it."""
        if part == "in" and not self._has_equal_inputs(self.calls[number]):
            return None
        return self._note(f"{self.calls[number].key}/{GRADIENT[part]}{index}", array)

    def close(self) -> None:
        """Add the calls to the record: those of the reference, or those with a partner, by its name."""
        if self.partner is None:
            self.record.passes[self.title] = self.calls
            return
        found = {call: self.partner.calls.get(call.identity) for call in self.calls}
        self.record.passes[self.title] = [
            call._replace(name=partner[0], occurrence=partner[1]) for call, partner in found.items() if partner
        ]

    def _has_equal_inputs(self, call: Call) -> bool:
        """Return whether a call has as many inputs as its partner's; else one gradient may be the sum of others."""
        identity = self.partner and self.partner.calls.get(call.identity)
        if self.partner is None or identity is None or identity not in self.partner.keys:
            return True
        key, archive = self.partner.keys[identity], self.partner.archive
        first_lacking = next(n for n in range(1 << 30) if archive.load(f"{key}/in{n}") is None)
        return first_lacking == call.inputs

    def _note(self, name: str, array: np.ndarray) -> np.ndarray | None:
        """Record a tensor in the reference's order of axes; return what replaces it."""
        key, _, place = name.rpartition("/")
        call = self.calls[int(key.rpartition("/")[2])]
        if self.partner is None:
            self.record.add(name, array)
            if self.archive is not None:
                self.archive.save(name, array)
            return None
        identity = self.partner.calls.get(call.identity)
        if identity is None or identity not in self.partner.keys:
            return None
        reference = self.partner.archive.load(f"{self.partner.keys[identity]}/{place}")
        if reference is None:
            return None
        tensor = f"{key}/{place.removeprefix('d')}"  # a gradient has the axes of its tensor
        order = self.orders.setdefault(tensor, axes(array, reference))
        own = array.transpose(order)
        ordered, unmerged = own.shape, _unmerged(own.shape, reference.shape)
        if own.shape != reference.shape and unmerged is not None:
            own = own.reshape([reference.shape[axis] for axis in unmerged]).transpose(np.argsort(unmerged))
        own = _like_mask(own, reference)
        self.record.add(name, own)
        if identity not in self.partner.forced:
            return None
        if place in ("in0", "out0"):
            self.partner.examine(call, identity, place, reference, own)
        if array.dtype.kind != "f" or reference.dtype == bool or own.shape != reference.shape or unmerged is None:
            return None
        return np.asarray(reference).transpose(unmerged).reshape(ordered).transpose(np.argsort(order))


def _unmerged(shape: tuple[int, ...], reference: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the order of a reference's axes in which neighboring ones merge to another shape; None if none does.

    Such as the heads of an attention; or the samples and positions of (N, C, L), which become (N * L, C).
    """
    natural = tuple(range(len(reference)))
    orders = (natural, *ORDERS.get(len(reference), ()))
    if shape == reference:
        return natural
    return next((each for each in orders if is_merged(shape, tuple(reference[axis] for axis in each))), None)


def _like_mask(array: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return the reference for a mask that hides the same, where one is bool and the other one is added to scores.

    Whether True hides or shows is a convention of its module, which is judged by its output.
    """
    if (array.dtype == bool) == (reference.dtype == bool) or array.shape != reference.shape:
        return array
    mask, added = (array, reference) if array.dtype == bool else (reference, array)
    is_added = added.dtype.kind == "f" and bool(((added == 0) | (added <= HIDDEN)).all())
    is_same = (mask == (added == 0)).all() or (mask != (added == 0)).all()
    return np.asarray(reference) if is_added and is_same else array


def axes(array: np.ndarray, reference: np.ndarray) -> tuple[int, ...]:
    """Return the order of an array's axes that makes it most similar to the reference."""
    natural = tuple(range(array.ndim))
    orders = [order for order in ORDERS.get(array.ndim, ()) if array.transpose(order).shape == reference.shape]
    if len(orders) < 2:
        return orders[0] if orders else natural
    return min(orders, key=lambda order: float(np.abs(array.transpose(order) - reference).sum(dtype=np.float64)))
