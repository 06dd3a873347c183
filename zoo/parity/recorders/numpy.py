"""NumPy's side of a comparison: a function of the inputs, or of parameters and the inputs, reported as a whole."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.parity.probe import Probe
from zoo.parity.recorders.common import Model as Base
from zoo.parity.recorders.common import Objective, Pass, arguments

DTYPES = {"fp64": np.float64, "fp32": np.float32}
HAS_GRADIENTS = False


def precisions(device: str) -> tuple[str, ...]:
    """Return the precisions that are compared."""
    return tuple(DTYPES)


class Model(Base):
    """A function in one precision.

    Args:
        source: what the side's function has returned: a function of the inputs; or a function of parameters and the
            inputs, and its parameters, an array per name.
    """

    TENSOR = np.ndarray | np.generic

    def __init__(self, source: Any, precision: str, device: str, is_compiled: bool):
        self.function, parameters = source if isinstance(source, tuple) else (source, None)
        if not callable(self.function) or not isinstance(parameters, Mapping | None):
            raise UserError("NumPy: the model is a function of the inputs, or (function, {name: array})")
        if precision not in DTYPES:
            raise UserError(f"{precision}: NumPy computes in {' or '.join(DTYPES)}")
        self.dtype, self.has_parameters, self.is_compiled = DTYPES[precision], parameters is not None, is_compiled
        self.parameters = {name: self.input(np.asarray(value)) for name, value in (parameters or {}).items()}
        self.layers = {"": self.function}

    def trained(self) -> Mapping[str, np.ndarray]:
        return self.parameters

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.parameters |= {name: self.input(a).reshape(self.parameters[name].shape) for name, a in arrays.items()}

    def state(self) -> dict[str, np.ndarray]:
        """Return the tensors of a checkpoint."""
        return dict(self.parameters)

    def run(self, inputs: Mapping[str, np.ndarray], probe: Probe | None, objective: Objective | None) -> Pass:
        """Compute the outputs."""
        positional, keywords = arguments(self.function, self.inputs(inputs))
        if probe is not None:
            probe.enter("", self.function, self.arrays_of((positional, keywords)))
        parameters = (self.parameters,) if self.has_parameters else ()
        outputs = self.arrays_of(self.function(*parameters, *positional, **keywords))
        if probe is not None:
            probe.leave(outputs)
        return Pass(outputs, None, {})

    def input(self, array: np.ndarray) -> np.ndarray:
        return array.astype(self.dtype) if array.dtype.kind == "f" else array
