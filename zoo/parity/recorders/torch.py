"""PyTorch's side of a comparison: its model's tensors, and passes that report every module."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from zoo.parity.probe import Probe
from zoo.parity.recorders.common import Imperative, Objective, Pass, arguments, flattened, is_dropout, optimizers

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
HAS_GRADIENTS = True


def precisions(device: str) -> tuple[str, ...]:
    """Return the precisions of a device that are compared: fp64, where it has it, and fp32."""
    return ("fp32",) if device.startswith("mps") else ("fp64", "fp32")


def array_of(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu()
    return np.array(tensor.double() if tensor.is_floating_point() else tensor)


def like(tensor: torch.Tensor, array: np.ndarray) -> torch.Tensor:
    """Return an array as a tensor of the type, and on the device, of another one."""
    return torch.from_numpy(np.array(array)).to(tensor)


class _Reported(torch.autograd.Function):
    """A copy, since what is returned as it is may not be changed in place, and a view so changed has no gradient."""

    @staticmethod
    def forward(ctx, x, value, note):
        ctx.note = note
        return x.clone() if value is None else like(x, value)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.note(gradient), None, None


class Model(Imperative):
    """A model in one precision on one device.

    Args:
        model: what the side's function has returned.
        precision: 16 bits are those of autocast.
    """

    TENSOR = torch.Tensor
    DROPOUT = (
        *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
        nn.MultiheadAttention,
    )
    array_of, like, reported = staticmethod(array_of), staticmethod(like), staticmethod(_Reported.apply)

    def __init__(self, model: nn.Module, precision: str, device: str, is_compiled: bool):
        self.amp_dtype = DTYPES[precision] if precision in ("fp16", "bf16") else None
        self.dtype = DTYPES["fp32" if self.amp_dtype else precision]
        self.device = torch.device(device)
        self.model, self.is_compiled = model.to(self.device, self.dtype), is_compiled
        self.call = torch.compile(self.model) if is_compiled else self.model
        self.layers = dict(self.model.named_modules())
        torch.backends.mha.set_fastpath_enabled(is_compiled)  # which calls no modules

    @torch.no_grad()
    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        named = self.named()
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
        return [name for name in missing if name in self.named()]

    def run(self, inputs: Mapping[str, np.ndarray], probe: Probe | None, objective: Objective | None) -> Pass:
        """Run forward in evaluation mode; or in training mode, with an objective, and backward."""
        training = objective is not None
        self.model.train(training)
        for module in self.layers.values():
            if is_dropout(module, self.DROPOUT):
                module.eval()
        self.model.zero_grad(set_to_none=True)
        positional, keywords = arguments(self.model.forward, self.inputs(inputs))
        amp = torch.autocast(self.device.type, self.amp_dtype) if self.amp_dtype else nullcontext()
        with torch.set_grad_enabled(training), self.reporting(probe, self.call) as call:
            with amp:
                outputs = call(*positional, **keywords)
                total = self.total(objective, outputs) if objective else None
            if total is not None and total.requires_grad:
                total.backward()
        value = None if total is None else float(total.detach())
        return Pass(self.arrays_of(outputs), value, self.gradients())

    def optimizer(self, make: Callable[[Any], Any]) -> Callable[[Mapping[str, np.ndarray]], None]:
        """Return a function that updates the weights along gradients, by the optimizers that `make` returns."""
        trained = self.trained()
        made = optimizers(make, list(trained.values()), self.model)

        def step(gradients: Mapping[str, np.ndarray]) -> None:
            for name, parameter in trained.items():
                parameter.grad = like(parameter, gradients[name]) if name in gradients else None
            for optimizer in made:
                optimizer.step()

        return step

    def trained(self) -> dict[str, Any]:
        return {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}

    def input(self, array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(np.array(array)).to(self.device)
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def has_gradient(self, tensor: torch.Tensor) -> bool:
        return torch.is_grad_enabled() and tensor.requires_grad

    def write_back(self, given: Any, used: Any) -> None:
        """Change the arguments of a call as the call has changed those that it got in their place."""
        for before, after in zip(flattened(given, self.is_tensor), flattened(used, self.is_tensor)):
            if after is not before and after._version:
                before.copy_(after)


def save(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a checkpoint as PyTorch does."""
    torch.save({name: torch.from_numpy(value) for name, value in tensors.items()}, path)
