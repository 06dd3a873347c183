"""The peak memory of a forward and backward pass in PyTorch, found on tensors that have shapes and no content."""

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from zoo.data.batch import Field
from zoo.models import load_model_class, load_spec
from zoo.trainer.objectives import OBJECTIVES
from zoo.trainer.torch import ops
from zoo.trainer.torch.model import checkpoint_modules, compute_in_fp32


def peak(
    model: str,
    arch: Any,
    fields: Sequence[Field],
    batch: int,
    settings: Any,
    *,
    is_half: bool = False,
    fp32_norms: bool = False,
    fp32_dilated: bool = False,
    checkpointed: bool = False,
) -> int:
    """Return the largest number of bytes that live at once beside the weights.

    These are activations, temporary tensors and the gradients so far.

    Args:
        fields: the model's input, and the label.
        is_half: convolutions and products compute in 16 bits.
        fp32_norms: normalizations compute in fp32 all the same, between two casts.
        checkpointed: the backward pass computes activations again.
    """
    spec, Model = load_spec(model), load_model_class(model, "torch")
    with FakeTensorMode():
        module = Model(arch).train()
        for layer in module.modules():
            is_norm = isinstance(layer, _BatchNorm)
            is_dilated = isinstance(layer, nn.Conv2d) and max(layer.dilation) > 1
            if (is_norm and fp32_norms) or (is_dilated and fp32_dilated):
                compute_in_fp32(layer)
                layer.register_forward_hook(lambda layer, inputs, output: output.bfloat16())
        checkpoint_modules(module, spec.checkpointed_modules(arch) if checkpointed else ())
        pixels, *_ = fields
        shape = pixels.shape if pixels.mean is None else (*pixels.shape[:-3], pixels.shape[-1], *pixels.shape[-3:-1])
        inputs = [torch.empty(batch, *shape), *(torch.empty(batch, *mask.shape) for mask in spec.dropout_masks(arch))]
        label_shape = {field.name: field.shape for field in fields}["label"]
        labels = torch.zeros(
            batch,
            *label_shape,
            dtype=torch.uint8 if len(label_shape) == 2 else torch.float32 if label_shape else torch.int64,
        )
        with Live([*module.parameters(), *module.buffers()]) as live:
            images = inputs[0].clone()  # normalized pixels
            with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
                output = module(images, *inputs[1:])
                if spec.TASK == "face":
                    loss = output.float().sum()
                else:
                    loss = OBJECTIVES[settings.task](ops, settings, None, torch.float32, torch.float64).total(
                        output, labels
                    )
            loss.backward()
    return live.peak


class Live(TorchDispatchMode):
    """Storages that operators return, until they are released. existing: tensors that do not count."""

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
