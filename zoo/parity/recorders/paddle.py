"""PaddlePaddle's side of a comparison: its model's tensors, and passes that report every layer.

Paddle stores the weight of a Linear as (in, out); here it is (out, in), as are its gradients.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.autograd import PyLayer

from zoo.data.errors import UserError
from zoo.parity.inputs import nested
from zoo.parity.match import Tensor
from zoo.parity.probe import Probe
from zoo.parity.recorders.common import (
    Objective,
    Pass,
    arguments,
    dropout_rates,
    flattened,
    is_dropout,
    optimizers,
    replaced,
    reporting,
    tensors_of,
)
from zoo.parity.recording import Entry

DTYPES: dict[str, Any] = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
STATISTICS = ("_mean", "_variance")  # which Paddle lists among the parameters
VERSION = paddle.__version__
HAS_GRADIENTS = True
DROPOUT = tuple(
    getattr(nn, name)
    for name in ("Dropout", "Dropout2D", "Dropout3D", "AlphaDropout", "FeatureAlphaDropout")
    if hasattr(nn, name)  # the last one is younger than Paddle 2.6
)


def start(device: str) -> None:
    """Make the model's tensors on a device."""
    paddle.set_device(device)


def set_precision(_: str) -> None:
    """Let models be built in fp32, in which they may load weights; `Model` casts them."""
    paddle.set_default_dtype("float32")


def precisions(device: str) -> tuple[str, ...]:
    """Return the precisions of a device that are compared."""
    return ("fp64", "fp32") if device.startswith(("cpu", "gpu")) else ("fp32",)


class _Reported(PyLayer):
    """(x, value, note) -> x, or the value in its place; what `note` makes of the gradient is that of x."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, value: np.ndarray | None, note: Callable) -> paddle.Tensor:
        ctx.note = note
        return x.clone() if value is None else like(x, value)

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        return ctx.note(gradient)


class Model:
    """A model in one precision on one device.

    Args:
        model: what the side's function has returned.
        precision: 16 bits are those of automatic casts.
    """

    def __init__(self, model: nn.Layer, precision: str, device: str, is_compiled: bool):
        self.amp_dtype: Any = DTYPES[precision] if precision in ("fp16", "bf16") else None
        if self.amp_dtype and device == "cpu":
            raise UserError(f"{precision}: Paddle has no automatic casts on a CPU")
        self.dtype = DTYPES["fp32" if self.amp_dtype else precision]
        paddle.set_default_dtype(self.dtype)  # of tensors that the model makes
        self.model, self.is_compiled = model, is_compiled
        self.model._to_impl(dtype=self.dtype, floating_only=True)  # `to` would make fractions of integers, too
        self.layers = dict(model.named_sublayers(include_self=True))

    def modules(self) -> dict[str, nn.Layer]:
        return {"": self.model} if self.is_compiled else self.layers

    def tensors(self) -> list[Tensor]:
        shapes = {name: array.shape for name, array in self.arrays().items()}
        trained = self._trained()
        return tensors_of(((name, shape, name in trained) for name, shape in shapes.items()), self.layers)

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: self._canonical(name, tensor) for name, tensor in self._named().items()}

    @paddle.no_grad()
    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        named = self._named()
        for name, array in arrays.items():
            named[name].set_value(self._own(name, named[name], array))

    def state(self) -> dict[str, np.ndarray]:
        """Return the tensors of a checkpoint, with those that have several names, as Paddle stores them."""
        return {name: tensor.numpy() for name, tensor in self.model.state_dict().items()}

    @paddle.no_grad()
    def restore(self, tensors: Mapping[str, np.ndarray]) -> list[str]:
        """Load tensors of a checkpoint; return the names of those that lack."""
        named = self.model.state_dict()
        for name, array in tensors.items():
            named[name].set_value(like(named[name], array))
        return [name for name in self._named() if name not in tensors]

    def run(self, inputs: Mapping[str, np.ndarray], probe: Probe | None, objective: Objective | None) -> Pass:
        """Run forward in evaluation mode; or in training mode, with an objective, and backward."""
        training = objective is not None
        self.model.train() if training else self.model.eval()
        for layer in self.layers.values():
            if is_dropout(layer, DROPOUT):
                layer.eval()
        for parameter in self.model.parameters():
            parameter.clear_gradient(False)
        positional, keywords = arguments(self.model.forward, self._inputs(inputs))
        amp = paddle.amp.auto_cast(dtype=self.amp_dtype) if self.amp_dtype else nullcontext()
        # Compiled anew for each pass: Paddle traces Python code once, in training or in evaluation mode.
        model = paddle.jit.to_static(self.model.forward, full_graph=True) if self.is_compiled else self.model
        with (
            paddle.set_grad_enabled(training),
            reporting(probe, self.modules(), model, "forward", arrays_of, through) as call,
        ):
            with amp:
                outputs = call(*positional, **keywords)
                total = self._total(objective, outputs) if objective else None
            if total is not None and not total.stop_gradient:
                total.backward()
        gradients = {
            name: self._canonical(name, tensor.grad)
            for name, tensor in self._trained().items()
            if tensor.grad is not None
        }
        value = None if total is None else float(total)
        return Pass(arrays_of(outputs), value, gradients)

    def optimizer(self, make: Callable[[Any], Any]) -> Callable[[Mapping[str, np.ndarray]], None]:
        """Return a function that updates the weights along gradients, by the optimizers that `make` returns."""
        trained = self._trained()
        made = optimizers(make, list(trained.values()), self.model)

        def step(gradients: Mapping[str, np.ndarray]) -> None:
            for name, tensor in trained.items():
                tensor.clear_gradient(False)
                if name in gradients:
                    tensor.grad = self._own(name, tensor, gradients[name])
            for optimizer in made:
                optimizer.step()

        return step

    def dropout(self) -> dict[str, float]:
        """Return the rate of each dropout layer, which passes leave out."""
        return dropout_rates(self.layers, DROPOUT)

    def _total(self, objective: Objective, outputs: Any) -> paddle.Tensor:
        if objective.loss:
            return objective.loss(outputs, self._inputs(objective.inputs))
        tensors = flat(outputs)
        weights = objective.weights(arrays_of(outputs))
        pairs = [(tensor, weight) for tensor, weight in zip(tensors, weights) if tensor.is_floating_point()]
        return paddle.add_n([(tensor * like(tensor, weight)).sum().astype(self.dtype) for tensor, weight in pairs])

    def _inputs(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return nested({name: self._input(array) for name, array in inputs.items()})

    def _input(self, array: np.ndarray) -> paddle.Tensor:
        return paddle.to_tensor(array, dtype=self.dtype if array.dtype.kind == "f" else None)

    def _named(self) -> dict[str, paddle.Tensor]:
        persistent = self.model.state_dict().keys()
        buffers = {name: buffer for name, buffer in self.model.named_buffers() if name in persistent}
        return {**dict(self.model.named_parameters()), **buffers}

    def _trained(self) -> dict[str, paddle.Tensor]:
        return {name: tensor for name, tensor in self.model.named_parameters() if not tensor.stop_gradient}

    def _is_transposed(self, name: str) -> bool:
        layer, _, own = name.rpartition(".")
        return own == "weight" and isinstance(self.layers[layer], nn.Linear)

    def _canonical(self, name: str, tensor: paddle.Tensor) -> np.ndarray:
        array = array_of(tensor)
        return array.T if self._is_transposed(name) else array

    def _own(self, name: str, tensor: paddle.Tensor, array: np.ndarray) -> paddle.Tensor:
        return like(tensor, array.T if self._is_transposed(name) else array).reshape(tensor.shape)


def save(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a checkpoint as Paddle does."""
    paddle.save({name: paddle.to_tensor(array) for name, array in tensors.items()}, path)


def is_tensor(value: Any) -> bool:
    return isinstance(value, paddle.Tensor)


def flat(values: Any) -> list[paddle.Tensor]:
    return flattened(values, is_tensor)


def through(probe: Probe, entry: Entry, part: str, values: Any) -> Any:
    """Replace tensors of nested values by those of an entry; where gradients are computed, the probe gets theirs."""

    def replace(index: int, tensor: paddle.Tensor) -> paddle.Tensor:
        def note(gradient: paddle.Tensor) -> paddle.Tensor:
            value = probe.gradient(entry.number, part, index, array_of(gradient))
            return gradient if value is None else like(gradient, value)

        value = entry.values[index]
        if paddle.is_grad_enabled() and not tensor.stop_gradient:
            return _Reported.apply(tensor, value, note)
        return tensor if value is None else like(tensor, value)

    return replaced(values, is_tensor, replace)


def arrays_of(values: Any) -> list[np.ndarray]:
    return [array_of(tensor) for tensor in flat(values)]


def array_of(tensor: paddle.Tensor) -> np.ndarray:
    return np.array(tensor.astype("float64").numpy() if tensor.is_floating_point() else tensor.numpy())


def like(tensor: paddle.Tensor, array: np.ndarray) -> paddle.Tensor:
    """Return an array as a tensor of the type, and in the place, of another one."""
    return paddle.to_tensor(np.asarray(array, order="C"), place=tensor.place).astype(tensor.dtype)
