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
from zoo.parity.probe import Probe
from zoo.parity.recorders.common import Imperative, Objective, Pass, arguments, is_dropout, optimizers

DTYPES: dict[str, Any] = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
STATISTICS = ("_mean", "_variance")  # which Paddle lists among the parameters
HAS_GRADIENTS = True


def start(device: str) -> None:
    """Make the model's tensors on a device."""
    paddle.set_device(device)


def set_precision(_: str) -> None:
    """Let models be built in fp32, in which they may load weights; `Model` casts them."""
    paddle.set_default_dtype("float32")


def precisions(device: str) -> tuple[str, ...]:
    """Return the precisions of a device that are compared."""
    return ("fp64", "fp32") if device.startswith(("cpu", "gpu")) else ("fp32",)


def array_of(tensor: paddle.Tensor) -> np.ndarray:
    return np.array(tensor.astype("float64").numpy() if tensor.is_floating_point() else tensor.numpy())


def like(tensor: paddle.Tensor, array: np.ndarray) -> paddle.Tensor:
    """Return an array as a tensor of the type, and in the place, of another one."""
    return paddle.to_tensor(np.asarray(array, order="C"), place=tensor.place).astype(tensor.dtype)


class _Reported(PyLayer):
    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, value: np.ndarray | None, note: Callable) -> paddle.Tensor:
        ctx.note = note
        return x.clone() if value is None else like(x, value)

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        return ctx.note(gradient)


class Model(Imperative):
    """A model in one precision on one device.

    Args:
        model: what the side's function has returned.
        precision: 16 bits are those of automatic casts.
    """

    TENSOR = paddle.Tensor
    DROPOUT = tuple(
        getattr(nn, name)
        for name in ("Dropout", "Dropout2D", "Dropout3D", "AlphaDropout", "MultiHeadAttention", "FeatureAlphaDropout")
        if hasattr(nn, name)  # the last one is younger than Paddle 2.6
    )
    array_of, like, reported = staticmethod(array_of), staticmethod(like), staticmethod(_Reported.apply)

    def __init__(self, model: nn.Layer, precision: str, device: str, is_compiled: bool):
        self.amp_dtype: Any = DTYPES[precision] if precision in ("fp16", "bf16") else None
        if self.amp_dtype and device == "cpu":
            raise UserError(f"{precision}: Paddle has no automatic casts on a CPU")
        self.dtype = DTYPES["fp32" if self.amp_dtype else precision]
        paddle.set_default_dtype(self.dtype)  # of tensors that the model makes
        self.model, self.is_compiled = model, is_compiled
        self.model._to_impl(dtype=self.dtype, floating_only=True)  # `to` would make fractions of integers, too
        self.layers = dict(model.named_sublayers(include_self=True))

    @paddle.no_grad()
    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        named = self.named()
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
        return [name for name in self.named() if name not in tensors]

    def run(self, inputs: Mapping[str, np.ndarray], probe: Probe | None, objective: Objective | None) -> Pass:
        """Run forward in evaluation mode; or in training mode, with an objective, and backward."""
        training = objective is not None
        self.model.train() if training else self.model.eval()
        for layer in self.layers.values():
            if is_dropout(layer, self.DROPOUT):
                layer.eval()
        for parameter in self.model.parameters():
            parameter.clear_gradient(False)
        positional, keywords = arguments(self.model.forward, self.inputs(inputs))
        amp = paddle.amp.auto_cast(dtype=self.amp_dtype) if self.amp_dtype else nullcontext()
        # Compiled anew for each pass: Paddle traces Python code once, in training or in evaluation mode.
        model = paddle.jit.to_static(self.model.forward, full_graph=True) if self.is_compiled else self.model
        with paddle.set_grad_enabled(training), self.reporting(probe, model) as call:
            with amp:
                outputs = call(*positional, **keywords)
                total = self.total(objective, outputs) if objective else None
            if total is not None and not total.stop_gradient:
                total.backward()
        value = None if total is None else float(total)
        return Pass(self.arrays_of(outputs), value, self.gradients())

    def optimizer(self, make: Callable[[Any], Any]) -> Callable[[Mapping[str, np.ndarray]], None]:
        """Return a function that updates the weights along gradients, by the optimizers that `make` returns."""
        trained = self.trained()
        made = optimizers(make, list(trained.values()), self.model)

        def step(gradients: Mapping[str, np.ndarray]) -> None:
            for name, tensor in trained.items():
                tensor.clear_gradient(False)
                if name in gradients:
                    tensor.grad = self._own(name, tensor, gradients[name])
            for optimizer in made:
                optimizer.step()

        return step

    def trained(self) -> dict[str, Any]:
        return {name: tensor for name, tensor in self.model.named_parameters() if not tensor.stop_gradient}

    def canonical(self, name: str, tensor: paddle.Tensor) -> np.ndarray:
        array = array_of(tensor)
        return array.T if self._is_transposed(name) else array

    def input(self, array: np.ndarray) -> paddle.Tensor:
        return paddle.to_tensor(array, dtype=self.dtype if array.dtype.kind == "f" else None)

    def has_gradient(self, tensor: paddle.Tensor) -> bool:
        return paddle.is_grad_enabled() and not tensor.stop_gradient

    def _own(self, name: str, tensor: paddle.Tensor, array: np.ndarray) -> paddle.Tensor:
        return like(tensor, array.T if self._is_transposed(name) else array).reshape(tensor.shape)

    def _is_transposed(self, name: str) -> bool:
        layer, _, own = name.rpartition(".")
        return own == "weight" and isinstance(self.layers[layer], nn.Linear)


def save(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a checkpoint as Paddle does."""
    paddle.save({name: paddle.to_tensor(array) for name, array in tensors.items()}, path)
