"""Attention, recurrent layers, embeddings and encodings of positions."""

import math
import re
from collections.abc import Callable, Iterable
from itertools import permutations

import numpy as np

from zoo.parity.formulas.formula import Case, Formula, Number, Options, is_float, is_unary
from zoo.parity.formulas.pointwise import hard_sigmoid, sigmoid, softmax

CAUSAL = ("no", "top_left", "bottom_right")  # the corner at which the triangle of a mask that is not square begins


def scores_mask(queries: int, keys: int, causal: str) -> np.ndarray:
    """Return which keys a query sees."""
    if causal == "no":
        return np.ones((queries, keys), bool)
    return np.tri(queries, keys, keys - queries if causal == "bottom_right" else 0, dtype=bool)


def attended(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, scale: float, seen: np.ndarray, fill: str, axis: int = -1
) -> np.ndarray:
    """Return attention over (..., L, D).

    Args:
        fill: of scores that are not seen: "infinity", and rows without any are NaN or, with "zero", 0; "large" replaces
            them by a large negative number, and "added" adds it.
    """
    scores = query @ np.swapaxes(key, -1, -2) * scale
    floors = {"infinity": -np.inf, "zero": -np.inf, "large": -1e9}
    hidden = scores - 1e9 if fill == "added" else floors[fill]
    weights = softmax(np.where(seen, scores, hidden), axis)
    return (np.nan_to_num(weights) if fill == "zero" else weights) @ value


def attention_options(case: Case) -> Options | None:
    """Return options of attention over query, key, value, (N, heads, L, D) or (N, L, heads, D), and a mask or none."""
    if len(case.inputs) not in (3, 4) or not all(is_float(x) and x.ndim in (3, 4) for x in case.inputs[:3]):
        return None
    query, key, value = case.inputs[:3]
    if case.params or query.shape[-1] != key.shape[-1] or key.shape[:-1] != value.shape[:-1]:
        return None
    depth = query.shape[-1]
    heads = query.shape[1] if query.ndim == 4 else 1
    masks = {"mask": ("true_is_seen", "true_is_hidden")} if len(case.inputs) == 4 else {}
    return {
        "scale": Number((depth**-0.5, 1.0, 1 / depth, (depth * heads) ** -0.5)),
        "causal": CAUSAL,
        "fill": ("infinity", "zero", "large", "added"),
        "layout": ("heads_first", "heads_second") if query.ndim == 4 else ("heads_first",),
        "axis": (-1, -2),
        **masks,
    }


def attention(
    case: Case, scale: float, causal: str, fill: str, layout: str, axis: int, mask: str = ""
) -> np.ndarray | None:
    query, key, value = (np.swapaxes(x, 1, 2) if layout == "heads_second" else x for x in case.inputs[:3])
    if query.shape[:-2] != key.shape[:-2]:
        return None
    seen = scores_mask(query.shape[-2], key.shape[-2], causal)
    if mask:
        given = case.inputs[3]
        if given.dtype.kind == "f" and not np.isin(given, (0, 1)).all():
            given = given > -1e3
        seen = seen & (given.astype(bool) ^ (mask == "true_is_hidden"))
    y = attended(query, key, value, scale, seen, fill, axis)
    return np.swapaxes(y, 1, 2) if layout == "heads_second" else y


def fused_options(case: Case) -> Options | None:
    """Return options of attention from a packed query, key and value, (N, L, 3 C), to (N, L, C)."""
    if not is_unary(case) or case.inputs[0].ndim != 3:
        return None
    x = case.inputs[0]
    if case.reference.shape != (*x.shape[:2], x.shape[2] // 3) or x.shape[2] % 3:
        return None
    width = x.shape[2] // 3
    heads = [n for n in range(1, width + 1) if not width % n and n <= 64]
    return {
        "heads": sorted(heads, key=lambda n: (width // n not in (64, 32), n)),
        "packing": ("qkv_heads", "heads_qkv", "heads_depth_qkv"),
        "scaled": ("heads_depth", "width", "none", "twice"),
        "causal": CAUSAL[:2],
        "merged": ("heads_depth", "depth_heads", "not_transposed"),
        "axis": (-1, -2),
    }


def fused_attention(
    case: Case, heads: int, packing: str, scaled: str, causal: str, merged: str, axis: int
) -> np.ndarray:
    count, length, width = case.inputs[0].shape
    depth = width // 3 // heads
    shape, axes = {
        "qkv_heads": ((3, heads, depth), (2, 0, 3, 1, 4)),
        "heads_qkv": ((heads, 3, depth), (3, 0, 2, 1, 4)),
        "heads_depth_qkv": ((heads, depth, 3), (4, 0, 2, 1, 3)),
    }[packing]
    query, key, value = case.inputs[0].reshape(count, length, *shape).transpose(axes)
    scale = {"heads_depth": depth**-0.5, "width": (depth * heads) ** -0.5, "none": 1.0, "twice": 1 / depth}[scaled]
    y = attended(query, key, value, scale, scores_mask(length, length, causal), "infinity", axis)
    orders = {"heads_depth": (0, 2, 1, 3), "depth_heads": (0, 2, 3, 1), "not_transposed": (0, 1, 2, 3)}
    return y.transpose(orders[merged]).reshape(case.target.shape)


def embedding_options(case: Case) -> Options | None:
    weight = case.params.get("weight")
    if len(case.inputs) != 1 or weight is None or weight.ndim != 2 or case.inputs[0].dtype.kind not in "iu":
        return None
    if case.reference.shape != (*case.inputs[0].shape, weight.shape[1]):
        return None
    indices = np.unique(case.inputs[0]).tolist()
    return {
        "padding": (None, *sorted(indices, key=lambda i: (i not in (0, 1), i))[:8]),
        "scale": Number((1.0, weight.shape[1] ** 0.5)),
        "first": (0, 1),
        "outside": ("not_a_number", "nearest", "zero"),
    }


def embedding(case: Case, padding: int | None, scale: float, first: int, outside: str) -> np.ndarray:
    """Return the rows of a weight, zeros for the padding index; `first` is the index of the first row."""
    weight, index = case.params["weight"], case.inputs[0].astype(np.int64) - first
    is_outside = (index < -len(weight)) | (index >= len(weight))
    y = weight[np.clip(index, -len(weight), len(weight) - 1)] * scale
    fills = {"not_a_number": np.nan, "zero": 0.0}
    if outside in fills:
        y = np.where(is_outside[..., None], fills[outside], y)
    return y if padding is None else np.where((index == padding)[..., None], 0.0, y)


LSTM_GATES = ("ifgo", *("".join(gates) for gates in permutations("ifgo") if "".join(gates) != "ifgo"))
GRU_GATES = ("rzn", *("".join(gates) for gates in permutations("rzn") if "".join(gates) != "rzn"))


def recurrent_weights(case: Case) -> dict[str, np.ndarray]:
    """Return weights and biases of one direction of one layer, by `ih` and `hh` with `w` or `b` before it."""
    found = {}
    for role, values in case.params.items():
        side = next((side for side in ("ih", "hh") if side in role), None)
        if side and "reverse" not in role and "l1" not in role:
            found[("b" if "bias" in role else "w") + side] = values
    return found


def recurrent_options(case: Case, gates: int) -> Options | None:
    weights = recurrent_weights(case)
    if not {"wih", "whh"} <= set(weights) or not case.inputs or not is_float(case.inputs[0]):
        return None
    hidden, x = weights["whh"].shape[-1], case.inputs[0]
    if len(weights["wih"]) != gates * hidden or x.ndim not in (2, 3) or case.reference.shape != (*x.shape[:-1], hidden):
        return None
    return {
        **({"time": (1, 0)} if x.ndim == 3 else {"time": (None,)}),
        "state": ("given", "zeros") if len(case.inputs) > 1 else ("zeros",),
        "direction": ("forward", "backward") if x.ndim == 3 else ("forward",),
        **({"biases": ("both", "input", "none")} if len(weights) == 4 else {}),
    }


def recur(
    case: Case,
    step: Callable,
    states: int,
    time: int | None,
    state: str,
    direction: str,
    biases: str = "both",
) -> np.ndarray | None:
    """Return the hidden states of a recurrent layer.

    Args:
        step: returns the new states of the old ones and of the products of both weights, with their biases.
        time: the axis of time, None for a single step.
    """
    weights, x = recurrent_weights(case), case.inputs[0]
    x = x[None] if time is None else np.moveaxis(x, time, 0)
    size = weights["whh"].shape[-1]
    given = [initial.reshape(-1, size) for initial in case.inputs[1 : 1 + states]]
    if state == "zeros" or any(len(initial) != x.shape[1] for initial in given):
        given = []
    current = given + [np.zeros((x.shape[1], size))] * (states - len(given))
    inner = x @ weights["wih"].T + (weights.get("bih", 0.0) if biases != "none" else 0.0)
    hidden_bias = weights.get("bhh", 0.0) if biases == "both" else 0.0
    outputs = []
    for at in inner if direction == "forward" else inner[::-1]:
        current = step(current, at, lambda h: h @ weights["whh"].T + hidden_bias)
        outputs.append(current[0])
    y = np.stack(outputs if direction == "forward" else outputs[::-1])
    return y[0] if time is None else np.moveaxis(y, 0, time)


def parts(values: np.ndarray, gates: str) -> Iterable[np.ndarray]:
    """Return the gates in their alphabetical order."""
    split = np.split(values, len(gates), -1)
    return [split[gates.index(gate)] for gate in sorted(gates)]


def lstm_options(case: Case) -> Options | None:
    options = recurrent_options(case, 4)
    extra = {"gates": LSTM_GATES, "forget_bias": Number((0.0, 1.0), -2.0, 10.0), "gate": ("sigmoid", "hard_sigmoid")}
    return None if options is None else {**options, **extra}


def lstm(case: Case, gates: str, forget_bias: float, gate: str, **options) -> np.ndarray | None:
    function = sigmoid if gate == "sigmoid" else lambda x: hard_sigmoid(x, 0.2)

    def step(states, inner, product):
        forget, cell, entry, exit_ = parts(inner + product(states[0]), gates)
        memory = function(forget + forget_bias) * states[1] + function(entry) * np.tanh(cell)
        return [function(exit_) * np.tanh(memory), memory]

    return recur(case, step, 2, **options)


def gru_options(case: Case) -> Options | None:
    options = recurrent_options(case, 3)
    extra = {"gates": GRU_GATES, "reset": ("after", "before"), "update": ("keeps", "replaces")}
    return None if options is None else {**options, **extra}


def gru(case: Case, gates: str, reset: str, update: str, **options) -> np.ndarray | None:
    weights = recurrent_weights(case)
    recurrent = np.split(weights["whh"], 3)[gates.index("n")]
    has_bias = "bhh" in weights and options.get("biases") == "both"
    bias = np.split(weights["bhh"], 3)[gates.index("n")] if has_bias else 0.0

    def step(states, inner, product):
        (h,) = states
        (new_x, reset_x, update_x), (new_h, reset_h, update_h) = parts(inner, gates), parts(product(h), gates)
        r, z = sigmoid(reset_x + reset_h), sigmoid(update_x + update_h)
        new = np.tanh(new_x + (r * new_h if reset == "after" else (r * h) @ recurrent.T + bias))
        return [z * h + (1 - z) * new if update == "keeps" else z * new + (1 - z) * h]

    return recur(case, step, 1, **options)


def rnn_options(case: Case) -> Options | None:
    options = recurrent_options(case, 1)
    return None if options is None else {**options, "function": ("tanh", "relu")}


def rnn(case: Case, function: str, **options) -> np.ndarray | None:
    def step(states, inner, product):
        total = inner + product(states[0])
        return [np.tanh(total) if function == "tanh" else np.maximum(total, 0)]

    return recur(case, step, 1, **options)


def rotary_options(case: Case) -> Options | None:
    if not is_unary(case) or case.inputs[0].ndim not in (3, 4):
        return None
    x = case.inputs[0]
    if x.shape != case.reference.shape or x.shape[-1] % 2 or not re.search("rot|rope", case.kind.lower()):
        return None
    return {
        "pairs": ("halves", "neighbours"),
        "positions": [x.ndim - 2, *([1] if x.ndim == 4 else [])],
        "direction": (1, -1),
        "base": Number((1e4, 5e5, 1e2), 1.0),
    }


def rotary(case: Case, pairs: str, positions: int, direction: int, base: float) -> np.ndarray:
    x = case.inputs[0]
    depth = x.shape[-1]
    angles = np.arange(x.shape[positions])[:, None] * base ** (-np.arange(0, depth, 2) / depth)
    angles = angles.reshape(len(angles), *(1,) * (x.ndim - 2 - positions), depth // 2)
    first, second = (x[..., : depth // 2], x[..., depth // 2 :]) if pairs == "halves" else (x[..., ::2], x[..., 1::2])
    sine, cosine = np.sin(angles) * direction, np.cos(angles)
    turned = [first * cosine - second * sine, second * cosine + first * sine]
    return np.concatenate(turned, -1) if pairs == "halves" else np.stack(turned, -1).reshape(x.shape)


def sinusoid_options(case: Case) -> Options | None:
    if len(case.inputs) != 1 or case.params or case.inputs[0].ndim != 1 or case.reference.ndim != 2:
        return None
    if case.reference.shape[0] != len(case.inputs[0]) or case.reference.shape[1] % 2 or case.reference.shape[1] < 4:
        return None
    orders = ("sine_cosine", "cosine_sine", "neighbours")
    return {"order": orders, "shift": (0, 1), "base": Number((1e4,), 1.0), "scale": Number((1.0, 1e3, 2 * math.pi))}


def sinusoid(case: Case, order: str, shift: int, base: float, scale: float) -> np.ndarray:
    half = case.target.shape[1] // 2
    angles = scale * case.inputs[0][:, None] * base ** (-np.arange(half) / (half - shift))
    waves = [np.sin(angles), np.cos(angles)]
    if order == "neighbours":
        return np.stack(waves, -1).reshape(case.target.shape)
    return np.concatenate(waves if order == "sine_cosine" else waves[::-1], -1)


FORMULAS = (
    Formula("embedding", embedding_options, embedding, "emb"),
    Formula("lstm", lstm_options, lstm, "lstm|rnn"),
    Formula("gru", gru_options, gru, "gru|rnn"),
    Formula("rnn", rnn_options, rnn, "rnn"),
    Formula("attention", attention_options, attention, "atten|dot|sdpa"),
    Formula("fused_attention", fused_options, fused_attention, "atten|sdpa"),
    Formula("rotary", rotary_options, rotary, "rot|rope"),
    Formula("sinusoid", sinusoid_options, sinusoid, "pos|time|sin|emb"),
)
