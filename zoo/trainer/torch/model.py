"""The model of a trainer: canonical names of its tensors, and the precision, format and memory that a plan asks for.

Canonical names are PyTorch's own, without the batch counters.

torch.compile may record CUDA graphs. A graph writes its results to the same memory in every update, the gradients of
the parameters included. Autograd would take that memory for `grad`, and the next micro-batch would overwrite the sum
(pytorch/pytorch, issue 169545). So the trainer allocates gradients itself and fills them with zeros, to which autograd
adds.

Activation checkpointing (arXiv:1604.06174): the backward pass computes a module's activations again. The second
computation must be the same as the first, but leave running statistics alone: the trainer runs the backward pass within
`unmoved`.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain, groupby
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from zoo.data.batch import Batch
from zoo.trainer.plan import Mode, Plan
from zoo.trainer.torch import batchnorm, cpu_layers
from zoo.trainer.torch.world import World

GRAPH_MODES = ("reduce-overhead", "max-autotune")  # modes of torch.compile that record CUDA graphs on a GPU
MIXED_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
CAST_LAYERS = (nn.Conv2d, nn.Conv3d, nn.Linear, nn.PReLU)  # in 16 bits under autocast; subclasses may differ
CAST_ELEMENTS = 1 << 22  # of weights that are cast at once; DDP's buckets are larger
Place = tuple[dict[str, Any], str, torch.Tensor]  # parameters of a layer, a name there, its fp32 weight


def mixed_dtype(mode: Mode) -> torch.dtype | None:
    """Return the 16-bit type of a mode; None if it has none."""
    return MIXED_DTYPES.get(mode.compute)


def wide_dtype(mode: Mode) -> torch.dtype:
    """Return the type of parameters, momentum and losses."""
    return torch.float64 if mode.is_fp64 else torch.float32


def named_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return every parameter, then every running statistic, by canonical name; not copied."""
    tensors: dict[str, torch.Tensor] = dict(model.named_parameters())
    buffers = model.named_buffers()
    tensors.update((name, buffer) for name, buffer in buffers if not name.endswith("num_batches_tracked"))
    return tensors


def to_tensors(batch: Batch) -> dict[str, torch.Tensor]:
    """Return the arrays of a batch as tensors on the default device."""
    device = torch.get_default_device()
    return {name: torch.from_numpy(np.require(array, requirements="W")).to(device) for name, array in batch.items()}


@torch.no_grad()
def create(Model: type[nn.Module], arch: Any, tensors: Mapping[str, np.ndarray]) -> nn.Module:
    """Return a model whose tensors have the values of arrays.

    Args:
        tensors: every parameter and running statistic by canonical name, in canonical layout.
    """
    model = Model(arch)
    for name, tensor in named_tensors(model).items():
        tensor.copy_(torch.from_numpy(np.array(tensors[name])))
    return model


def build_model(Model: type[nn.Module], arch: Any, plan: Plan, world: World) -> nn.Module:
    """Build the model in evaluation mode, which a step changes, and apply the plan's memory format and cpu_layers."""
    model = Model(arch).to(world.torch_device, wide_dtype(plan.mode)).eval()
    for module in model.modules():
        if isinstance(module, _BatchNorm):  # no batch is counted, which would be a kernel for each of them
            module.num_batches_tracked = None
    for parameter in model.parameters():  # one by one, because Module.to refuses 3-D convolutions
        if plan.mode.channels_last and parameter.dim() == 4:
            parameter.data = parameter.data.to(memory_format=torch.channels_last)
        if torch.empty_like(parameter, device="meta").stride() != parameter.stride():
            parameter.data = parameter.data.clone()  # with gaps, fused optimizers would take other elements of memory
    is_cpu = world.torch_device.type == "cpu"
    is_eager_fp32 = is_cpu and plan.mode.compute == "fp32" and not plan.mode.compile
    if plan.mode.channels_last and plan.mode.compute != "fp64" and is_cpu:
        cpu_layers.convert_strided(model)
    if plan.mode.compute == "bf16" and is_cpu:
        cpu_layers.emulate_bf16(model, world.has_bf16)
    if is_eager_fp32:
        cpu_layers.convert_dilated(model)
        cpu_layers.convert_prelu(model)
    if plan.sync_bn and (world.size > 1 or is_cpu):
        batchnorm.convert_sync_batchnorm(model, world.size)
    elif is_eager_fp32:
        cpu_layers.convert_batchnorm(model)
    if plan.mode.is_mixed:
        for name in plan.fp32_modules:
            compute_in_fp32(model.get_submodule(name))
    return model


def compute_in_fp32(module: nn.Module) -> None:
    forward = module.forward

    def fp32_forward(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return forward(x.float())

    module.forward = fp32_forward


def cast_groups(model: nn.Module, plan: Plan) -> list[list[Place]]:
    """Return the trained weights that autocast casts, by groups for `cast_weights`; none if a compiler does."""
    fp32_layers = {layer for name in plan.fp32_modules for layer in model.get_submodule(name).modules()}
    places = [
        (layer._parameters, name, weight)
        for layer in model.modules()
        if _is_cast(layer) and layer not in fp32_layers and plan.mode.is_mixed and not plan.mode.compile
        for name, weight in layer.named_parameters(recurse=False)
        if weight.requires_grad
    ]
    ends = accumulate(weight.numel() for _, _, weight in places)
    return [list(group) for _, group in groupby(places, lambda _: next(ends) // CAST_ELEMENTS)]


def _is_cast(layer: nn.Module) -> bool:
    return type(layer) in CAST_LAYERS or isinstance(layer, cpu_layers.EmulatedBF16Conv2d)


@contextmanager
def cast_weights(groups: Sequence[Sequence[Place]], dtype: torch.dtype | None) -> Iterator[None]:
    """Replace weights by 16-bit copies for all passes of an update; autocast makes each by itself, in every pass."""
    try:
        for group in groups:
            copies = _Cast.apply(dtype, *(weight for _, _, weight in group))
            copies[0].grad_fn._set_sequence_nr(sys.maxsize)  # first in the backward pass: DDP waits for gradients
            for (parameters, name, _), copy in zip(group, copies):
                parameters[name] = copy
        yield
    finally:
        for parameters, name, weight in chain.from_iterable(groups):
            parameters[name] = weight


def compile_model(model: nn.Module, setting: bool | str | None) -> tuple[Any, Any]:
    """Return the forward pass of training and that of evaluation.

    That of evaluation never is a CUDA graph, because predictions are kept while others are made, in several sizes.

    Args:
        setting: `train.compile`: whether to compile, or a mode of torch.compile.
    """
    if not setting:
        return model, model
    compiled = torch.compile(model)
    return torch.compile(model, mode=setting) if setting in GRAPH_MODES else compiled, compiled


def allocate_gradients(tensors: Iterable[torch.Tensor]) -> None:
    """Give tensors gradients of zeros, in memory that no graph writes to."""
    for tensor in tensors:
        tensor.grad = torch.zeros_like(tensor)


def checkpoint_modules(model: nn.Module, names: Sequence[str]) -> list[_BatchNorm]:
    """Let the named modules of a model keep their inputs alone for the backward pass; return their normalizations."""
    modules = [model.get_submodule(name) for name in names]
    for module in modules:
        _checkpoint_module(module)
    return [part for module in modules for part in module.modules() if isinstance(part, _BatchNorm)]


def _checkpoint_module(module: nn.Module) -> None:
    forward = module.forward

    def checkpointed_forward(*inputs: torch.Tensor) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs)
        # Dropout masks are inputs of the model, so there is no state of a random generator to restore.
        return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False)

    module.forward = checkpointed_forward


@contextmanager
def unmoved(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """Normalize as usual, without moving the running statistics.

    By a momentum of 0: without statistics, the operator would save other tensors than before, which is an error. Not by
    contexts of `checkpoint`, which a compiled model ignores where it is cut into several graphs.
    """
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum


class _Cast(torch.autograd.Function):
    """(16-bit type, fp32 weights) -> their copies, on a GPU by one kernel for many, with autocast's roundings."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(_cast(weights, dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None):
        casts = iter(_cast([gradient for gradient in gradients if gradient is not None], torch.float32))
        return None, *(None if gradient is None else next(casts) for gradient in gradients)


def _cast(tensors: tuple[torch.Tensor, ...] | list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    casts = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(casts, tensors)
    return casts
