"""Activations, gates, softmax and what dropout does with the numbers that it keeps."""

import math
from collections.abc import Callable

import numpy as np

from zoo.parity.formulas.formula import Case, Formula, Number, Options, is_float, is_unary, of_difference, rows

FEW_ELEMENTS = 1 << 12  # that are computed in the search


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


def erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(value) for value in x.ravel().tolist()]).reshape(x.shape)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, x)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def hard_sigmoid(x: np.ndarray, slope: float = 1 / 6) -> np.ndarray:
    return np.clip(slope * x + 0.5, 0, 1)


def elu(x: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # the most usual first: several may fit few numbers
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "gelu_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "silu": lambda x: x * sigmoid(x),
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "sigmoid": sigmoid,
    "hard_sigmoid": hard_sigmoid,
    "tanh": np.tanh,
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "elu": elu,
    "selu": lambda x: SELU_SCALE * elu(x, SELU_ALPHA),
    "mish": lambda x: x * np.tanh(softplus(x)),
    "softplus": softplus,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "log_sigmoid": lambda x: -softplus(-x),
    "square_relu": lambda x: np.square(np.maximum(x, 0)),
}


def is_elementwise(case: Case) -> bool:
    return (
        len(case.inputs) == 1
        and is_float(case.inputs[0])
        and case.inputs[0].shape == case.reference.shape == case.suspect.shape
    )


def is_activation(case: Case) -> bool:
    return is_elementwise(case) and not case.params


def activation_options(case: Case) -> Options | None:
    names = sorted(FUNCTIONS, key=lambda name: name.replace("_", "") not in case.kind.lower().replace("_", ""))
    return {"function": names} if is_activation(case) else None


def activation(case: Case, function: str) -> np.ndarray:
    return FUNCTIONS[function](case.inputs[0])


# Functions of one number: its usual values first
SHAPED = {
    "leaky_relu": (lambda x, a: np.where(x > 0, x, a * x), Number((0.01, 0.2, 0.3), -1.0, 1.0)),
    "elu": (elu, Number((1.0, 0.5), 0.0, 10.0)),
    "celu": (lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0) / a)), Number((1.0, 0.5), 1e-3, 10.0)),
    "hard_sigmoid": (hard_sigmoid, Number((1 / 6, 0.2), 1e-3, 1.0)),
    "swish": (lambda x, a: x * sigmoid(a * x), Number((1.0, 1.702), 1e-3, 10.0)),
    "softplus": (lambda x, a: softplus(a * x) / a, Number((1.0, 2.0), 1e-3, 100.0)),
    "soft_shrink": (lambda x, a: np.sign(x) * np.maximum(np.abs(x) - a, 0), Number((0.5, 0.1), 0.0, 10.0)),
    "hard_shrink": (lambda x, a: np.where(np.abs(x) > a, x, 0.0), Number((0.5, 0.1), 0.0, 10.0)),
    "threshold": (lambda x, a: np.where(x > a, x, 0.0), Number((0.0, 1.0), -10.0, 10.0)),
}


def shaped(name: str) -> Formula:
    """Return the formula of a function of one number, `a`."""
    function, number = SHAPED[name]
    return Formula(
        name,
        lambda case: {"a": number._replace(starts=(*number.starts, *jumps(case)))} if is_activation(case) else None,
        lambda case, a: function(case.inputs[0], a),
        "act|elu|swish|sigmoid|shrink|soft|silu|threshold",
        elements,
    )


def jumps(case: Case) -> list[float]:
    """Return the numbers between those that an activation sets to 0 and those that it keeps, with two digits."""
    x, found = case.inputs[0], []
    for y in (case.reference, case.suspect):
        kept, cut = x[(y != 0) & (x > 0)], x[(y == 0) & (x > 0)]
        if kept.size and cut.size:
            found.append(float(f"{(cut.max() + kept.min()) / 2:.2g}"))
    return found


def elements(case: Case) -> Case:
    """Return some elements of a case whose elements are computed apart from each other."""
    flat = [array.ravel() for array in (case.inputs[0], case.reference, case.suspect)]
    whole = case._replace(reference=flat[1], suspect=flat[2])
    first = max(0, min(of_difference(whole)[0], flat[0].size - FEW_ELEMENTS))
    x, reference, suspect = (array[first : first + FEW_ELEMENTS] for array in flat)
    return case._replace(inputs=[x], reference=reference, suspect=suspect)


def prelu_options(case: Case) -> Options | None:
    weight = case.params.get("weight")
    if not is_elementwise(case) or weight is None or set(case.params) != {"weight"} or case.inputs[0].ndim < 2:
        return None
    axes = [axis for axis in (1, case.inputs[0].ndim - 1) if weight.size in (1, case.inputs[0].shape[axis])]
    return {"axis": list(dict.fromkeys(axes)), "slopes": ("all", "first")} if axes else None


def prelu(case: Case, axis: int, slopes: str) -> np.ndarray:
    x, weight = case.inputs[0], case.params["weight"].ravel()
    slope = weight[:1] if slopes == "first" or weight.size == 1 else weight
    return np.where(x > 0, x, x * slope.reshape(-1, *(1,) * (x.ndim - 1 - axis)))


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def softmax_options(case: Case) -> Options | None:
    if not is_activation(case) or case.inputs[0].ndim < 1:
        return None
    axes = [case.inputs[0].ndim - 1, *range(case.inputs[0].ndim - 1)]
    return {"axis": axes, "output": ("probability", "logarithm"), "temperature": Number((1.0, 8.0), 1e-3, 1e3)}


def softmax_layer(case: Case, axis: int, output: str, temperature: float) -> np.ndarray:
    y = softmax(case.inputs[0] / temperature, axis)
    return np.log(y) if output == "logarithm" else y


GATES = ("sigmoid", "silu", "gelu", "gelu_tanh", "relu", "tanh", "identity")


def gate_options(case: Case) -> Options | None:
    if not is_unary(case):
        return None
    x = case.inputs[0]
    axes = [axis for axis in range(x.ndim) if not x.shape[axis] % 2 and x.size == 2 * case.reference.size]
    axes = [axis for axis in axes if x.shape[axis] == 2 * case.reference.shape[axis]] if axes else []
    axes += [axis for axis in range(x.ndim) if axes and axis not in axes and not x.shape[axis] % 2]
    return {"function": GATES, "gate": ("second", "first"), "axis": axes[::-1]} if axes else None


def gated(case: Case, function: str, gate: str, axis: int) -> np.ndarray:
    first, second = np.split(case.inputs[0], 2, axis)
    value, other = (first, second) if gate == "second" else (second, first)
    return value * FUNCTIONS[function](other)


def dropout_options(case: Case) -> Options | None:
    is_dropout = is_activation(case) and "drop" in case.kind.lower()
    name = "factor" if case.training else "factor_in_evaluation"
    return {name: Number((1.0, 0.5, 2.0), 1e-3, 1e3)} if is_dropout else None


def dropout(case: Case, factor: float = 1.0, factor_in_evaluation: float = 1.0) -> np.ndarray:
    """Return the input times a factor where it is kept, which random numbers decide."""
    return np.where(case.target != 0, case.inputs[0] * factor * factor_in_evaluation, 0.0)


def spread_options(case: Case) -> Options | None:
    if not is_unary(case) or case.reference.size >= case.inputs[0].size:
        return None
    return {"power": (1, 2), "ddof": (0, 1), "axis": (-1, None, *range(case.inputs[0].ndim - 1)), "keep": (False, True)}


def spread(case: Case, power: int, ddof: int, axis: int | None, keep: bool) -> np.ndarray | None:
    """Return standard deviations, or with power 2 variances."""
    x = case.inputs[0]
    count = x.size if axis is None else x.shape[axis]
    return None if count <= ddof else np.asarray(x.std(axis, ddof=ddof, keepdims=keep)) ** power


FORMULAS = (
    Formula("spread", spread_options, spread, "std|var|stddev"),
    Formula("dropout", dropout_options, dropout, "drop"),
    Formula(
        "activation",
        activation_options,
        activation,
        "act|elu|swish|mish|sigmoid|tanh|shrink|soft|silu|identity",
        elements,
    ),
    *map(shaped, SHAPED),
    Formula("prelu", prelu_options, prelu, "prelu", rows),
    Formula("softmax", softmax_options, softmax_layer, "soft", rows),
    Formula("gate", gate_options, gated, "glu|gate"),
)
