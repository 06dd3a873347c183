"""The peak memory of a forward and backward pass in PyTorch, found on tensors that have shapes and no content."""

import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from zoo.data.batch import DropoutMask, Field
from zoo.models import load_model_class
from zoo.tasks import Task, face
from zoo.trainer.objectives import OBJECTIVES
from zoo.trainer.torch import ops
from zoo.trainer.torch.model import checkpoint_modules, compute_in_fp32


class Passes(NamedTuple):
    """A forward and backward pass."""

    model: str  # name of the model
    arch: Any  # its complete architecture
    dropout_masks: Sequence[DropoutMask]  # its further inputs in training
    fields: Sequence[Field]  # the model's input, and the label
    batch: int  # number of samples
    is_half: bool  # whether convolutions and products compute in 16 bits
    fp32_norms: bool  # whether normalizations compute in fp32 all the same, between two casts
    fp32_dilated: bool  # whether dilated convolutions do
    checkpointed: Sequence[str]  # names of modules whose activations the backward pass computes again
    task: Task  # the model's task
    settings: Any  # settings of the task


def peak(passes: Passes) -> int:
    """Return the largest number of bytes that live at once beside the weights of passes.

    These are activations, temporary tensors and the gradients so far.
    """
    Model = load_model_class(passes.model, "torch")
    with FakeTensorMode():
        module = Model(passes.arch).train()
        for layer in module.modules():
            is_norm, is_dilated = (
                isinstance(layer, _BatchNorm),
                isinstance(layer, nn.Conv2d) and max(layer.dilation) > 1,
            )
            if (is_norm and passes.fp32_norms) or (is_dilated and passes.fp32_dilated):
                compute_in_fp32(layer)
                layer.register_forward_hook(lambda layer, inputs, output: output.bfloat16())
        checkpoint_modules(module, passes.checkpointed)
        inputs = [torch.empty(passes.batch, *shape) for shape in _input_shapes(passes)]
        shape = {field.name: field.shape for field in passes.fields}["label"]
        labels = torch.zeros(passes.batch, *shape, dtype=torch.uint8 if shape else torch.int64)
        with Live([*module.parameters(), *module.buffers()]) as live:
            images = inputs[0].clone()  # normalized pixels
            with torch.autocast("cpu", torch.bfloat16, enabled=passes.is_half):
                output = module(images, *inputs[1:])
                if passes.task is face:
                    loss = output.float().sum()
                else:
                    settings = passes.settings
                    objective = OBJECTIVES[settings.task](ops, settings, None, torch.float32, torch.float64)
                    loss = objective.total(output, labels)
            loss.backward()
    return live.peak


def _input_shapes(passes: Passes) -> list[tuple[int, ...]]:
    """Return the shapes of a sample's inputs, images with their channels first."""
    field = passes.fields[0]
    shape = field.shape if field.mean is None else (*field.shape[:-3], field.shape[-1], *field.shape[-3:-1])
    return [shape, *(mask.shape for mask in passes.dropout_masks)]


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
