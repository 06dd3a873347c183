"""Activation checkpointing (arXiv:1604.06174): the backward pass computes a module's activations again.

The second computation is the same as the first, but leaves running statistics alone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import paddle
from paddle import nn
from paddle.autograd import PyLayer

from zoo.trainer.paddle import names

Norms = Sequence[nn.layer.norm._BatchNormBase]


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
    """Let the named layers of a model keep their inputs alone for the backward pass.

    Args:
        model: changed in place.
        modules: names of layers from tensors to a tensor, none within another.
        autocast: returns the context in which the model computes.

    Raises:
        KeyError: the model has no layer of this name.
    """
    layers = dict(model.named_sublayers())
    for name in modules:
        layer, layer_type = layers[name], type(layers[name])
        layer.__class__ = type(layer_type.__name__, (_Checkpointed, layer_type), {})
        layer.norms = [part for part in layer.sublayers() if isinstance(part, nn.layer.norm._BatchNormBase)]
        layer.autocast = autocast


@contextmanager
def unmoved(norms: Norms) -> Iterator[None]:
    """Normalize with copies of the running statistics, which are updated in their place."""
    kept = [(norm._parameters, name, norm._parameters[name]) for norm in norms for name in names.STATISTICS]
    for parameters, name, statistic in kept:  # not by assignment, which takes parameters alone
        parameters[name] = statistic.clone()
    try:
        yield
    finally:
        for parameters, name, statistic in kept:
            parameters[name] = statistic
