"""MindSpore's side of a comparison: its model's tensors, and passes that report every cell.

The passes run in pynative mode. On CPUs, convolutions and batch normalizations have no kernels for fp64, and many other
operations round to fp32 within; so models are compared in fp32.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

os.environ.setdefault("GLOG_v", "3")  # errors only: on a CPU, every start would warn of libraries for other devices

import mindspore
from mindspore import Parameter, amp, nn, ops
from mindspore import dtype as mstype
from mindspore.common import _Function

from zoo.data.errors import UserError
from zoo.parity.probe import Probe
from zoo.parity.recorders.common import Imperative, Objective, Pass, arguments, is_dropout, optimizers

DTYPES = {"fp64": mstype.float64, "fp32": mstype.float32, "fp16": mstype.float16, "bf16": mstype.bfloat16}
TARGETS = {"cpu": "CPU", "gpu": "GPU", "cuda": "GPU", "npu": "Ascend", "ascend": "Ascend"}
HAS_GRADIENTS = True
ROW = (nn.Conv1d, nn.Conv1dTranspose)  # whose weight is that of a convolution over one row


def start(device: str) -> None:
    """Compute on a device."""
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE, device_target=TARGETS.get(device, device))


def precisions(device: str) -> tuple[str, ...]:
    """Return the precisions of a device that are compared."""
    return ("fp32",)


def array_of(tensor: mindspore.Tensor) -> np.ndarray:
    return np.array((tensor.astype(mstype.float64) if tensor.is_floating_point() else tensor).asnumpy())


def like(tensor: mindspore.Tensor, array: np.ndarray) -> mindspore.Tensor:
    """Return an array as a tensor of the type and shape of another one."""
    return mindspore.Tensor(np.asarray(array, order="C").reshape(tensor.shape), tensor.dtype)


class _Reported(_Function):
    @staticmethod
    def forward(ctx: Any, x: mindspore.Tensor, value: np.ndarray | None, note: Callable) -> mindspore.Tensor:
        ctx.note = note
        return x.copy() if value is None else like(x, value)

    @staticmethod
    def backward(ctx: Any, gradient: mindspore.Tensor) -> tuple[mindspore.Tensor, None, None]:
        return ctx.note(gradient), None, None


class Model(Imperative):
    """A model in one precision on one device.

    Args:
        model: what the side's function has returned.
        precision: 16 bits are those of automatic casts.
    """

    TENSOR, METHOD = mindspore.Tensor, "construct"
    DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.MultiheadAttention)
    array_of, like, reported = staticmethod(array_of), staticmethod(like), staticmethod(_Reported.apply)

    def __init__(self, model: nn.Cell, precision: str, device: str, is_compiled: bool):
        is_mixed = precision in ("fp16", "bf16")
        if precision == "bf16" and device == "cpu":
            raise UserError("bf16: MindSpore has none on a CPU")
        self.dtype = DTYPES["fp32" if is_mixed else precision]
        self.model, self.is_compiled = model, is_compiled
        # A BatchNorm3d contains a BatchNorm2d, which the other frameworks do not have.
        self.layers = {name: cell for name, cell in model.cells_and_names() if name.rpartition(".")[2] != "bn2d"}
        self.parameters = {name.replace("bn2d.", ""): parameter for name, parameter in model.parameters_and_names()}
        self.stored = {name: each.name for name, each in self.parameters.items()}  # their names in a checkpoint
        for name, parameter in self.parameters.items():
            parameter.name = name  # an optimizer refuses equal ones
            if parameter.dtype in DTYPES.values():
                parameter.set_dtype(self.dtype)
        if is_mixed:
            self.model = amp.auto_mixed_precision(model, "auto", DTYPES[precision])

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            parameter = self.parameters[name]
            ops.assign(parameter, like(parameter, array))  # a graph would keep what set_data replaces

    def state(self) -> dict[str, np.ndarray]:
        """Return the tensors of a checkpoint as MindSpore stores them."""
        return {self.stored[name]: parameter.asnumpy() for name, parameter in self.parameters.items()}

    def restore(self, tensors: Mapping[str, np.ndarray]) -> list[str]:
        """Load tensors of a checkpoint; return the names of those that lack."""
        self.load({name: tensors[own] for name, own in self.stored.items() if own in tensors})
        return [own for own in self.stored.values() if own not in tensors]

    def run(self, inputs: Mapping[str, np.ndarray], probe: Probe | None, objective: Objective | None) -> Pass:
        """Run forward in evaluation mode; or in training mode, with an objective, and backward."""
        self.model.set_train(objective is not None)
        for cell in self.layers.values():
            if is_dropout(cell, self.DROPOUT):
                cell.set_train(False)
        positional, keywords = arguments(self.model.construct, self.inputs(inputs))
        trained = self.trained()

        total: Any = None
        gradients: Sequence[mindspore.Tensor] = ()
        model = mindspore.jit(self.model) if self.is_compiled else self.model
        with self._named_error(probe), self.reporting(probe, model) as call:

            def forward() -> tuple[Any, Any]:
                outputs = call(*positional, **keywords)
                return objective and self.total(objective, outputs), outputs

            if objective and trained:
                differentiated = mindspore.value_and_grad(forward, None, list(trained.values()), has_aux=True)
                (total, outputs), gradients = differentiated()
            else:
                total, outputs = forward()
        found = {name: self.canonical(name, gradient) for name, gradient in zip(trained, gradients)}
        value = None if total is None else float(total.asnumpy())
        return Pass(self.arrays_of(outputs), value, found)

    def optimizer(self, make: Callable[[Any], Any]) -> Callable[[Mapping[str, np.ndarray]], None]:
        """Return a function that updates the weights along gradients, by the optimizers that `make` returns."""
        made = optimizers(make, list(self.trained().values()), self.model)

        def step(gradients: Mapping[str, np.ndarray]) -> None:
            for optimizer in made:
                own = optimizer.parameters  # in the order of its groups
                optimizer(tuple(like(each, gradients.get(each.name, np.zeros(each.shape))) for each in own))

        return step

    def named(self) -> dict[str, Parameter]:
        return self.parameters

    def trained(self) -> dict[str, Parameter]:
        return {name: parameter for name, parameter in self.parameters.items() if parameter.requires_grad}

    def canonical(self, name: str, tensor: mindspore.Tensor) -> np.ndarray:
        cell, _, own = name.rpartition(".")
        array = array_of(tensor)
        return array.squeeze(2) if own == "weight" and isinstance(self.layers[cell], ROW) else array

    def input(self, array: np.ndarray) -> mindspore.Tensor:
        return mindspore.Tensor(array, self.dtype if array.dtype.kind == "f" else None)

    def has_gradient(self, tensor: mindspore.Tensor) -> bool:
        return tensor.is_floating_point()

    @contextmanager
    def _named_error(self, probe: Probe | None) -> Iterator[None]:
        """Name the cell that has no kernel for fp64."""
        try:
            yield
        except TypeError as error:
            if self.dtype != mstype.float64 or probe is None or not probe.open:
                raise
            call = probe.calls[probe.open[-1]]
            raise UserError(f"MindSpore has no fp64 for {call.kind} ({call.name}) here; compare it in fp32") from error


def save(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a checkpoint as MindSpore does."""
    content = [{"name": name, "data": mindspore.Tensor(array)} for name, array in tensors.items()]
    mindspore.save_checkpoint(content, path)
