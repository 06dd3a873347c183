"""Bytes of the tensors that live at once, while PyTorch runs; needs PyTorch."""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Live(TorchDispatchMode):
    """Follows the storages that operators return, until they are released.

    Args:
        existing: tensors that do not count.

    Attributes:
        peak: the largest number of bytes so far.
    """

    def __init__(self, existing: Iterable[torch.Tensor] = ()):
        super().__init__()
        self.peak = self._bytes = 0
        self._existing = [tensor.untyped_storage() for tensor in existing]  # alive, so that no other takes its place
        self._known = {id(storage) for storage in self._existing}
        self._references: dict[int, weakref.ref] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if torch.is_tensor(value):
                self._add(value.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._known:
            return

        def release(_: weakref.ref) -> None:
            self._bytes -= size
            self._known.discard(key)
            del self._references[key]

        self._known.add(key)
        self._references[key] = weakref.ref(storage, release)
        self._bytes += size
        self.peak = max(self.peak, self._bytes)
