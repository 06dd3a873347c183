"""PyTorch's side of a comparison: its model's tensors, and passes that report every module."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

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
    tensors_of,
)

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
COUNTER = "num_batches_tracked"
VERSION = torch.__version__
HAS_GRADIENTS = True
DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def precisions(device: str) -> tuple[str, ...]:
    """Return the precisions of a device that are compared: fp64, where it has it, and fp32."""
    return ("fp32",) if device.startswith("mps") else ("fp64", "fp32")


class _Replace(torch.autograd.Function):
    """A tensor with the value of another one, through which gradients pass."""

    @staticmethod
    def forward(ctx, x, value):
        return value.clone()  # what is returned as it is may not be changed in place

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Model:
    """A model in one precision on one device.

    Args:
        model: what the side's function has returned.
        precision: 16 bits are those of autocast.
    """

    def __init__(self, model: nn.Module, precision: str, device: str, is_compiled: bool):
        self.is_mixed = precision in ("fp16", "bf16")
        self.dtype = DTYPES["fp32" if self.is_mixed else precision]
        self.amp_dtype = DTYPES[precision]
        self.device = torch.device(device)
        self.model = model.to(self.device, self.dtype)
        self.call = torch.compile(self.model) if is_compiled else self.model
        self.is_compiled = is_compiled

    def modules(self) -> dict[str, nn.Module]:
        return {"": self.model} if self.is_compiled else dict(self.model.named_modules())

    def tensors(self) -> list[Tensor]:
        modules = dict(self.model.named_modules())
        found = [
            (name, tensor, isinstance(tensor, nn.Parameter) and tensor.requires_grad)
            for name, tensor in self._named().items()
        ]
        return tensors_of(((name, tuple(tensor.shape), trained) for name, tensor, trained in found), modules)

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: array_of(tensor) for name, tensor in self._named().items()}

    @torch.no_grad()
    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        named = self._named()
        for name, array in arrays.items():
            named[name].copy_(torch.from_numpy(np.array(array)).reshape(named[name].shape))

    def state(self) -> dict[str, np.ndarray]:
        """Return the tensors of a checkpoint, with those that have several names, as PyTorch stores them."""
        named = self.model.state_dict()
        return {name: np.array(value.cpu()) for name, value in named.items() if isinstance(value, torch.Tensor)}

    def restore(self, tensors: Mapping[str, np.ndarray]) -> list[str]:
        """Load tensors of a checkpoint; return the names of those that lack."""
        given = {name: torch.from_numpy(np.array(value)) for name, value in tensors.items()}
        missing = self.model.load_state_dict(given, strict=False).missing_keys
        return [name for name in missing if name in self._named()]

    def run(self, inputs: Mapping[str, np.ndarray], probe: Probe | None, objective: Objective | None) -> Pass:
        """Run forward in evaluation mode; or in training mode, with an objective, and backward."""
        training = objective is not None
        self.model.train(training)
        for module in self.model.modules():
            if is_dropout(module, DROPOUT):
                module.eval()
        self.model.zero_grad(set_to_none=True)
        hooks = self._hooks(probe) if probe and not self.is_compiled else []
        positional, keywords = arguments(self.model.forward, self._inputs(inputs))
        amp = torch.autocast(self.device.type, self.amp_dtype) if self.is_mixed else nullcontext()
        try:
            with torch.set_grad_enabled(training), amp:
                outputs = self._call(positional, keywords, probe)
                total = self._total(objective, outputs) if objective else None
            if total is not None and total.requires_grad:
                total.backward()
        finally:
            for hook in hooks:
                hook.remove()
        gradients = {
            name: array_of(tensor.grad) for name, tensor in self.model.named_parameters() if tensor.grad is not None
        }
        value = None if total is None else float(total.detach())
        return Pass([array_of(tensor) for tensor in flat(outputs)], value, gradients)

    def _call(self, positional: list[Any], keywords: dict[str, Any], probe: Probe | None) -> Any:
        """Call the model; one that is compiled has no hooks, and is reported as a whole."""
        if probe is None or not self.is_compiled:
            return self.call(*positional, **keywords)
        probe.enter("", self.model, [array_of(tensor) for tensor in flat((positional, keywords))])
        outputs = self.call(*positional, **keywords)
        probe.leave([array_of(tensor) for tensor in flat(outputs)])
        return outputs

    def _total(self, objective: Objective, outputs: Any) -> torch.Tensor:
        if objective.loss:
            return objective.loss(outputs, self._inputs(objective.inputs))
        weights = objective.weights([array_of(tensor) for tensor in flat(outputs)])
        terms = [
            (tensor * torch.from_numpy(weight).to(self.device, tensor.dtype)).sum()
            for tensor, weight in zip(flat(outputs), weights)
            if tensor.is_floating_point()
        ]
        return torch.stack([term.to(self.dtype) for term in terms]).sum()

    def optimizer(self, make: Callable[[Any], Any]) -> Callable[[Mapping[str, np.ndarray]], None]:
        """Return a function that updates the weights along gradients, by the optimizers that `make` returns."""
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        made = optimizers(make, trained, self.model)

        def step(gradients: Mapping[str, np.ndarray]) -> None:
            for name, parameter in self.model.named_parameters():
                gradient = gradients.get(name)
                parameter.grad = None if gradient is None else torch.from_numpy(np.array(gradient)).to(parameter)
            for optimizer in made:
                optimizer.step()

        return step

    def dropout(self) -> dict[str, float]:
        """Return the rate of each dropout module, which passes leave out."""
        return dropout_rates(dict(self.model.named_modules()), DROPOUT)

    def _inputs(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return nested({name: self._input(array) for name, array in inputs.items()})

    def _input(self, array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(np.array(array)).to(self.device)
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def _named(self) -> dict[str, torch.Tensor]:
        named: dict[str, torch.Tensor] = dict(self.model.named_parameters())
        persistent = self.model.state_dict().keys()
        buffers = {name: buffer for name, buffer in self.model.named_buffers() if name in persistent}
        return {**named, **{name: buffer for name, buffer in buffers.items() if not name.endswith(COUNTER)}}

    def _hooks(self, probe: Probe) -> list[Any]:
        hooks: list[Any] = []
        for name, module in self.modules().items():

            def enter(module, args, kwargs, name=name):
                entry = probe.enter(name, module, [array_of(tensor) for tensor in flat((args, kwargs))])
                return replaced((args, kwargs), is_tensor, self._through(probe, entry, "in"))

            def leave(module, args, kwargs, outputs):
                entry = probe.leave([array_of(tensor) for tensor in flat(outputs)])
                return replaced(outputs, is_tensor, self._through(probe, entry, "out"))

            hooks.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            hooks.append(module.register_forward_hook(leave, with_kwargs=True))
        return hooks

    def _through(self, probe: Probe, entry: Any, part: str) -> Callable[[int, torch.Tensor], torch.Tensor]:
        def through(index: int, tensor: torch.Tensor) -> torch.Tensor:
            value = entry.values[index]
            if value is not None:
                tensor = _Replace.apply(tensor, torch.from_numpy(np.array(value)).to(tensor))
            elif torch.is_grad_enabled() and tensor.requires_grad:
                tensor = tensor.clone()  # its gradient is that of this use; a view changed in place has none
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient: self._gradient(probe, entry.number, part, index, gradient))
            return tensor

        return through

    def _gradient(self, probe: Probe, number: int, part: str, index: int, gradient: torch.Tensor) -> Any:
        value = probe.gradient(number, part, index, array_of(gradient))
        return None if value is None else torch.from_numpy(np.array(value)).to(gradient)


def save(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a checkpoint as PyTorch does."""
    torch.save({name: torch.from_numpy(value) for name, value in tensors.items()}, path)


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def flat(values: Any) -> list[torch.Tensor]:
    return flattened(values, is_tensor)


def array_of(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach()
    return np.array(tensor.double().cpu() if tensor.is_floating_point() else tensor.cpu())
