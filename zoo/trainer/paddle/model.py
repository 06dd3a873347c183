"""The model of a trainer: canonical names and layouts of its tensors, the precision and memory that a plan asks for.

Paddle calls the running statistics _mean and _variance and lists them among the parameters. It calls the weight of a
PReLU _weight, and stores that of a Linear as (in_features, out_features).

Activation checkpointing (arXiv:1604.06174): the backward pass computes a module's activations again. The second
computation is the same as the first, but leaves running statistics alone.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.autograd import PyLayer

from zoo.data.batch import Batch
from zoo.trainer.paddle import batchnorm, cpu_layers, fp64
from zoo.trainer.paddle.world import World
from zoo.trainer.plan import Mode, Plan

STATISTICS = {"_mean": "running_mean", "_variance": "running_var"}
Norms = Sequence[nn.layer.norm._BatchNormBase]
CANONICAL = {**STATISTICS, "_weight": "weight"}


def canonical_name(name: str) -> str:
    layer, _, last = name.rpartition(".")
    return f"{layer}.{CANONICAL[last]}" if last in CANONICAL else name


def named_tensors(model: nn.Layer) -> dict[str, paddle.Tensor]:
    """Return every parameter, then every running statistic, by canonical name; not copied."""
    tensors = {canonical_name(name): tensor for name, tensor in model.named_parameters()}
    return dict(sorted(tensors.items(), key=lambda item: is_statistic(item[0])))  # stable: keeps the model's order


def is_statistic(name: str) -> bool:
    return name.endswith(tuple(STATISTICS.values()))


def transposed(model: nn.Layer) -> set[str]:
    """Return the canonical names of the tensors whose canonical layout is the transpose of Paddle's."""
    return {f"{name}.weight" for name, layer in model.named_sublayers() if isinstance(layer, nn.Linear)}


def to_numpy(tensor: paddle.Tensor, transpose: bool) -> np.ndarray:
    """Return a copy in canonical layout."""
    array = tensor.numpy()
    return np.array(array.T if transpose else array, order="C")


def copy_into(tensor: paddle.Tensor, array: np.ndarray, transpose: bool) -> None:
    tensor.set_value(np.asarray(array.T if transpose else array, order="C"))


def to_tensors(batch: Batch) -> dict[str, paddle.Tensor]:
    """Return the arrays of a batch as tensors on the default device."""
    return {name: paddle.to_tensor(array) for name, array in batch.items()}


@paddle.no_grad()
def create(Model: type[nn.Layer], arch: Any, tensors: Mapping[str, np.ndarray]) -> nn.Layer:
    """Return a model whose tensors have the values of arrays.

    Args:
        tensors: every parameter and running statistic by canonical name, in canonical layout.
    """
    model = Model(arch)
    transposes = transposed(model)
    for name, tensor in named_tensors(model).items():
        copy_into(tensor, np.asarray(tensors[name], np.float32), name in transposes)
    return model


class _OfList(nn.Layer):
    """A model as a function of the list of its arguments; to_static of Paddle 2.6 cannot compile closures."""

    def __init__(self, model: nn.Layer):
        super().__init__()
        self.model = model

    def forward(self, inputs: list[paddle.Tensor]) -> Any:
        return self.model(*inputs)


def build_model(Model: type[nn.Layer], arch: Any, plan: Plan, world: World) -> nn.Layer:
    """Build the model in evaluation mode, which a step changes, with the plan's normalization and precision."""
    if plan.mode.is_fp64:
        with fp64.default_fp64():
            model = Model(arch)
        model.eval()
        fp64.convert_to_fp64(model, plan.sync_bn)
        return model
    model = Model(arch)
    model.eval()
    if plan.sync_bn and (world.size > 1 or world.name == "cpu"):
        batchnorm.convert_sync_batchnorm(model, world.name == "cpu")
    if batchnorm.updates_biased_variance(world.place):
        batchnorm.convert_batchnorm(model)
    if world.name == "cpu" and not plan.mode.compile:
        cpu_layers.convert_convolutions(model)
        cpu_layers.convert_prelus(model)
    if plan.mode.is_mixed:
        convert_to_fp32(model, plan.fp32_modules)
    return model


def build_forwards(model: nn.Layer, mode: Mode) -> tuple[Callable, Callable]:
    """Return a model for training and for evaluation, as functions of a list of tensors."""
    if not mode.compile:
        return _OfList(model), _OfList(model)
    warnings.filterwarnings("ignore", "Tensor do not have 'place' interface")  # from Paddle's own code
    # Two functions, because Paddle traces Python code once, in one of the two modes.
    train, evaluate = (paddle.jit.to_static(_OfList(model), full_graph=True) for _ in range(2))
    return train, evaluate


class _Fp32:
    """Mixin for a layer of one tensor: disables the automatic cast."""

    def __call__(self, x: paddle.Tensor) -> Any:  # not `forward`, which Paddle rewrites, losing super()
        with paddle.amp.auto_cast(enable=False):
            return super().__call__(x.astype("float32"))  # type: ignore[misc]


def convert_to_fp32(model: nn.Layer, names: Sequence[str]) -> None:
    """Make the named layers compute in fp32. Raises KeyError."""
    layers = dict(model.named_sublayers())
    for name in names:
        layer_type = type(layers[name])
        layers[name].__class__ = type(layer_type.__name__, (_Fp32, layer_type), {})


class _Checkpointed:
    """Mixin for a layer of tensors that keeps its inputs alone for the backward pass."""

    norms: Norms
    autocast: Callable[[], AbstractContextManager]

    def __call__(self, *inputs: paddle.Tensor) -> Any:
        forward: Callable = super().__call__  # type: ignore[misc]
        if not paddle.is_grad_enabled():
            return forward(*inputs)
        trained = [parameter for parameter in self.parameters() if not parameter.stop_gradient]  # type: ignore[attr-defined]
        return _Recomputation.apply(forward, self.norms, self.autocast, len(inputs), *inputs, *trained)


class _Recomputation(PyLayer):
    """(forward, norms, autocast, count, inputs, parameters) -> forward(*inputs), one tensor.

    The trained parameters are arguments, so that the gradients of the whole model flow to them: DataParallel looks for
    them in its graph.
    """

    @staticmethod
    def forward(
        ctx: Any, forward: Callable, norms: Norms, autocast: Callable, count: int, *tensors: paddle.Tensor
    ) -> paddle.Tensor:
        ctx.arguments = forward, norms, autocast, tensors[count:]
        ctx.save_for_backward(*tensors[:count])
        return forward(*tensors[:count])  # without a graph, as in every PyLayer

    @staticmethod
    def backward(ctx: Any, *grad_outputs: paddle.Tensor):
        forward, norms, autocast, parameters = ctx.arguments
        inputs = []
        for x in ctx.saved_tensor():
            inputs.append(x.detach())
            inputs[-1].stop_gradient = x.stop_gradient
        with paddle.enable_grad(), autocast(), unmoved(norms):
            output = forward(*inputs)
        needed = [x for x in (*inputs, *parameters) if not x.stop_gradient]
        gradients = iter(paddle.grad([output], needed, list(grad_outputs)))
        return tuple(None if x.stop_gradient else next(gradients) for x in (*inputs, *parameters))


def checkpoint_modules(model: nn.Layer, modules: Sequence[str], autocast: Callable[[], AbstractContextManager]) -> None:
    """Let the named layers of a model keep their inputs alone for the backward pass. Raises KeyError.

    Args:
        model: changed in place.
        modules: names of layers from tensors to a tensor, none within another.
    """
    layers = dict(model.named_sublayers())
    for name in modules:
        layer, layer_type = layers[name], type(layers[name])
        attributes = {"__module__": layer_type.__module__}  # the file that a comparison names
        layer.__class__ = type(layer_type.__name__, (_Checkpointed, layer_type), attributes)
        parts = layer.sublayers(include_self=True)
        layer.norms = [part for part in parts if isinstance(part, nn.layer.norm._BatchNormBase)]
        layer.autocast = autocast


@contextmanager
def unmoved(norms: Norms) -> Iterator[None]:
    """Normalize with copies of the running statistics, which are updated in their place."""
    kept = [(norm._parameters, name, norm._parameters[name]) for norm in norms for name in STATISTICS]
    for parameters, name, statistic in kept:  # not by assignment, which takes parameters alone
        parameters[name] = statistic.clone()
    try:
        yield
    finally:
        for parameters, name, statistic in kept:
            parameters[name] = statistic
