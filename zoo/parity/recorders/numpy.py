"""NumPy's side of a comparison: a function of the inputs, or of parameters and the inputs, reported as a whole."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.parity.inputs import nested
from zoo.parity.match import Tensor
from zoo.parity.probe import Probe
from zoo.parity.recorders.common import Objective, Pass, arguments, flattened, tensors_of

DTYPES = {"fp64": np.float64, "fp32": np.float32}
VERSION = np.__version__
HAS_GRADIENTS = False


def precisions(device: str) -> tuple[str, ...]:
    """Return the precisions that are compared."""
    return tuple(DTYPES)


class Model:
    """A function in one precision.

    Args:
        source: what the side's function has returned: a function of the inputs; or a function of parameters and the
            inputs, and its parameters, an array per name.
    """

    def __init__(self, source: Any, precision: str, device: str, is_compiled: bool):
        self.function, parameters = source if isinstance(source, tuple) else (source, None)
        if not callable(self.function) or not isinstance(parameters, Mapping | None):
            raise UserError("NumPy: the model is a function of the inputs, or (function, {name: array})")
        if precision not in DTYPES:
            raise UserError(f"{precision}: NumPy computes in {' or '.join(DTYPES)}")
        self.dtype, self.has_parameters = DTYPES[precision], parameters is not None
        self.parameters = {name: self._cast(np.asarray(value)) for name, value in (parameters or {}).items()}

    def modules(self) -> dict[str, Callable]:
        return {"": self.function}

    def tensors(self) -> list[Tensor]:
        return tensors_of(((name, value.shape, True) for name, value in self.parameters.items()), {})

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: value.astype(np.float64) for name, value in self.parameters.items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.parameters |= {
            name: self._cast(value).reshape(self.parameters[name].shape) for name, value in arrays.items()
        }

    def state(self) -> dict[str, np.ndarray]:
        """Return the tensors of a checkpoint."""
        return dict(self.parameters)

    def restore(self, tensors: Mapping[str, np.ndarray]) -> list[str]:
        """Load tensors of a checkpoint; return the names of those that lack."""
        own = self.arrays().keys()
        self.load({name: tensors[name] for name in own & tensors.keys()})
        return [name for name in own if name not in tensors]

    def run(self, inputs: Mapping[str, np.ndarray], probe: Probe | None, objective: Objective | None) -> Pass:
        """Compute the outputs."""
        given = nested({name: self._cast(value) for name, value in inputs.items()})
        positional, keywords = arguments(self.function, given)
        if probe is not None:
            probe.enter("", self.function, flat((positional, keywords)))
        parameters = (self.parameters,) if self.has_parameters else ()
        outputs = flat(self.function(*parameters, *positional, **keywords))
        if probe is not None:
            probe.leave(outputs)
        return Pass(outputs, None, {})

    def dropout(self) -> dict[str, float]:
        return {}

    def _cast(self, array: np.ndarray) -> np.ndarray:
        return array.astype(self.dtype) if array.dtype.kind == "f" else array


def flat(values: Any) -> list[np.ndarray]:
    found = map(np.asarray, flattened(values, is_array))
    return [array.astype(np.float64) if array.dtype.kind == "f" else array for array in found]


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)
