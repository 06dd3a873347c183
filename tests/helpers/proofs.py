"""Records of a small model as several frameworks would make them, computed in numpy, for tests of the comparison.

The model: a stage of a 1x1 convolution, a batch normalization and a ReLU; the mean over the pixels; a linear layer.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from zoo.compare import causes, formulas
from zoo.parity.record import ROUNDING_UNITS, Call, Record, empty
from zoo.trainer.plan import ParamGroup, Plan

SAMPLES, CHANNELS, CLASSES, SIDE = 8, 4, 5, 6
LR, SMOOTHING, DECAY, CLIP_NORM = 0.1, 0.1, 1e-2, 0.5
VALUES = SAMPLES * SIDE**2  # of each channel of the normalization
AFTER = " after the updates"
GROUPS = {
    "stage.conv.weight": ParamGroup(1.0, DECAY),
    "stage.bn.weight": ParamGroup(1.0, 0.0),
    "stage.bn.bias": ParamGroup(1.0, 0.0),
    "fc.weight": ParamGroup(5.0, DECAY),
    "fc.bias": ParamGroup(10.0, 0.0),
}
SPANS = {"": (1, 12), "stage": (2, 9), "stage.conv": (3, 4), "stage.bn": (5, 6), "stage.extra": (7, 8), "fc": (10, 11)}
Arrays = dict[str, np.ndarray]


class Variant(NamedTuple):
    """How a framework computes.

    Attributes:
        is_reversed: adds in the opposite order, which only rounding shows.
        is_coarse: convolves in fp16 unless it computes in fp64.
        keeps_pixels: the input of the linear layer is (N, C, 1, 1).
        has_extra: the stage has a module that does nothing.
        flow: factor of the gradient that leaves the linear layer for the stage.
        frozen: parameters that are not trained.
        is_stale: the evaluation after the updates has the first weights of the linear layer.
    The others are settings of the model, the loss and the optimizer.
    """

    is_reversed: bool = False
    is_coarse: bool = False
    keeps_pixels: bool = False
    has_extra: bool = False
    flow: float = 1.0
    frozen: tuple[str, ...] = ()
    is_stale: bool = False
    input_scale: float = 1.0
    eps: float = 1e-5
    has_relu: bool = True
    smoothing: float = SMOOTHING
    rate: float = 0.1
    is_biased: bool = False
    momentum: float = 0.9
    decay_scale: float = 1.0
    clip_norm: float = CLIP_NORM


RIGHT = {
    "torch": Variant(),
    "paddle": Variant(is_reversed=True),
    "mindspore": Variant(is_reversed=True, has_extra=True),
}


def make(variants: Mapping[str, Variant]) -> tuple[dict[str, Record], dict[str, Record]]:
    """Return the records of frameworks in fp64 and in fp32."""
    fp64, fp32 = (
        {name: record(name, variant, precision) for name, variant in variants.items()} for precision in ("fp64", "fp32")
    )
    return fp64, fp32


def planted(count: int = 3, **changes) -> tuple[dict[str, Record], dict[str, Record]]:
    """Return the records of two or three frameworks of which Paddle computes otherwise."""
    variants = dict(list(RIGHT.items())[:count])
    return make({**variants, "paddle": variants["paddle"]._replace(**changes)})


def edit(records: Mapping[str, Record], framework: str, key: str, change: Callable) -> dict[str, Record]:
    """Return records in which one tensor of one framework is changed."""
    target = records[framework]
    excerpts = {**target.excerpts, key: change(target.get(key))}
    return {**records, framework: target._replace(excerpts=excerpts)}


def record(framework: str, variant: Variant, precision: str) -> Record:
    """Return the record of two updates, with forward passes before and after them."""
    network = Network(variant, np.dtype({"fp64": np.float64, "fp32": np.float32}[precision]))
    images, labels = data()
    result = empty(framework, precision, settings())
    topics = ("preprocess", "objective", "update", "trainer", "average", "shards", "statistics", "output", "precision")
    result.files.update({topic: [f"{framework}/{topic}.py"] for topic in topics})
    for name in ("stage.bn.running_mean", "stage.bn.running_var"):
        result.add(f"initial/{name}", network.state[name])
    logits = add_passes(result, network, images, "")
    result.settings["loss_terms"] = causes.loss_terms([logits.astype(np.float64)], labels)
    for number in (1, 2):
        add_update(result, network, images, labels, f"update {number}")
    for key in ("prediction", "in windows/prediction"):
        result.add(key, network.forward(images, False)["logits"])
    if variant.is_stale:
        network.state = {**network.state, "fc.weight": initial_state()["fc.weight"].astype(network.dtype)}
    add_passes(result, network, images, AFTER)
    return result


def settings() -> dict:
    magnitudes = {name: float(np.abs(value).max()) for name, value in initial_state().items()}
    return {
        "lr": LR,
        "momentum": 0.9,
        "magnitudes": magnitudes,
        "clip_norm": CLIP_NORM,
        "param_groups": {name: list(group) for name, group in GROUPS.items()},
        "dropout": 0.0,
        "task": {"label_smoothing": SMOOTHING},
        "samples": SAMPLES,
        "accumulate": 1,
        "sharded": [],
        "without_gradient": [],
    }


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((SAMPLES, 3, SIDE, SIDE)), rng.integers(0, CLASSES, SAMPLES)


def initial_state() -> Arrays:
    """Return weights and running statistics that fp32 holds exactly."""
    rng = np.random.default_rng(1)
    state = {
        "stage.conv.weight": rng.standard_normal((CHANNELS, 3)),
        "stage.bn.weight": rng.uniform(0.5, 1.5, CHANNELS),
        "stage.bn.bias": np.zeros(CHANNELS),
        "fc.weight": rng.standard_normal((CLASSES, CHANNELS)),
        "fc.bias": 0.1 * rng.standard_normal(CLASSES),
        "stage.bn.running_mean": 0.1 * rng.standard_normal(CHANNELS),
        "stage.bn.running_var": rng.uniform(0.5, 1.5, CHANNELS),
    }
    return {name: value.astype(np.float32).astype(np.float64) for name, value in state.items()}


class Network:
    """The model with its optimizer, in one type of numbers."""

    def __init__(self, variant: Variant, dtype: np.dtype):
        self.variant, self.dtype = variant, dtype
        self.state = {name: value.astype(dtype) for name, value in initial_state().items()}
        self.trained = [name for name in GROUPS if name not in variant.frozen]
        self.momentum = {name: np.zeros_like(self.state[name]) for name in self.trained}

    def forward(self, images: np.ndarray, training: bool) -> Arrays:
        """Return all that is computed on the way to the logits."""
        state, variant = self.state, self.variant
        x = (images * variant.input_scale).astype(self.dtype)
        weight, source = state["stage.conv.weight"], x
        if variant.is_coarse and self.dtype == np.float32:
            source, weight = x.astype(np.float16).astype(self.dtype), weight.astype(np.float16).astype(self.dtype)
        convolved = self._product(np.moveaxis(source, 1, -1), weight).transpose(0, 3, 1, 2)
        mean, variance = state["stage.bn.running_mean"], state["stage.bn.running_var"]
        if training:
            mean = self._sum(convolved, (0, 2, 3)) / VALUES
            variance = self._sum(np.square(convolved - column(mean)), (0, 2, 3)) / VALUES
        with np.errstate(invalid="ignore"):
            scale = (1 / np.sqrt(variance + variant.eps)).astype(self.dtype)
        standardized = (convolved - column(mean)) * column(scale)
        normalized = standardized * column(state["stage.bn.weight"]) + column(state["stage.bn.bias"])
        active = np.maximum(normalized, 0) if variant.has_relu else normalized
        features = self._sum(active, (2, 3)) / SIDE**2
        logits = self._product(features, state["fc.weight"]) + state["fc.bias"]
        return {
            "x": x,
            "convolved": convolved,
            "mean": mean,
            "variance": variance,
            "scale": scale,
            "standardized": standardized,
            "normalized": normalized,
            "active": active,
            "features": features,
            "logits": logits,
        }

    def loss_and_gradients(self, values: Arrays, labels: np.ndarray) -> tuple[float, Arrays]:
        """Return the mean cross-entropy and its gradients."""
        logits, smoothing = values["logits"], self.variant.smoothing
        shifted = logits - logits.max(1, keepdims=True)
        probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        target = ((1 - smoothing) * np.eye(CLASSES)[labels] + smoothing / CLASSES).astype(self.dtype)
        to_logits = (np.exp(probabilities) - target) / SAMPLES
        to_features = self._product(to_logits, self.state["fc.weight"].T) * self.dtype.type(self.variant.flow)
        passed = values["normalized"] > 0 if self.variant.has_relu else 1
        to_normalized = np.broadcast_to(to_features[:, :, None, None] / SIDE**2, values["active"].shape) * passed
        to_standardized, standardized = to_normalized * column(self.state["stage.bn.weight"]), values["standardized"]
        along = self._sum(to_standardized * standardized, (0, 2, 3)) / VALUES
        centered = to_standardized - column(self._sum(to_standardized, (0, 2, 3)) / VALUES)
        to_convolved = (centered - standardized * column(along)) * column(values["scale"])
        gradients = {
            "stage.conv.weight": np.einsum("nohw,nchw->oc", to_convolved, values["x"]),
            "stage.bn.weight": self._sum(to_normalized * standardized, (0, 2, 3)),
            "stage.bn.bias": self._sum(to_normalized, (0, 2, 3)),
            "fc.weight": self._product(to_logits.T, values["features"].T),
            "fc.bias": self._sum(to_logits, (0,)),
        }
        return float(-(target * probabilities).sum(1).mean()), {name: gradients[name] for name in self.trained}

    def step(self, gradients: Arrays) -> float:
        """Update the weights; return the gradients' norm."""
        norm, variant = formulas.norm(gradients), self.variant
        clip = self.dtype.type(min(1.0, variant.clip_norm / norm))
        for name, gradient in gradients.items():
            lr_scale, decay = (self.dtype.type(value) for value in GROUPS[name])
            decay = decay * self.dtype.type(variant.decay_scale)
            self.momentum[name] = (
                self.dtype.type(variant.momentum) * self.momentum[name] + clip * gradient + decay * self.state[name]
            )
            self.state[name] = self.state[name] - self.dtype.type(LR) * lr_scale * self.momentum[name]
        return norm

    def update_statistics(self, values: Arrays) -> None:
        rate, correction = self.dtype.type(self.variant.rate), 1 if self.variant.is_biased else VALUES / (VALUES - 1)
        for name, batch in (("mean", values["mean"]), ("var", values["variance"] * self.dtype.type(correction))):
            key = f"stage.bn.running_{name}"
            self.state[key] = (1 - rate) * self.state[key] + rate * batch

    def state_dict(self) -> Arrays:
        return {**self.state, **{f"optimizer/momentum/{name}": value for name, value in self.momentum.items()}}

    def _product(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return x (..., K) times weight (M, K), term by term in this framework's order."""
        terms = (x[..., k, None] * weight[:, k] for k in self._order(weight.shape[1]))
        return sum(terms, np.zeros((*x.shape[:-1], len(weight)), self.dtype))

    def _sum(self, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        for axis in sorted(axes, reverse=not self.variant.is_reversed):
            x = x.sum(axis, keepdims=True, dtype=self.dtype)
        return x.squeeze(axes)

    def _order(self, count: int) -> range:
        return range(count - 1, -1, -1) if self.variant.is_reversed else range(count)


def add_passes(result: Record, network: Network, images: np.ndarray, suffix: str) -> np.ndarray:
    """Record a forward pass in training mode and one in evaluation mode; return the logits in training mode."""
    passes = {title: network.forward(images, title == "training") for title in ("training", "evaluation")}
    for title, values in passes.items():
        features = values["features"][:, :, None, None] if network.variant.keeps_pixels else values["features"]
        tensors = {
            "": (values["x"], values["logits"]),
            "stage": (values["x"], values["active"]),
            "stage.conv": (values["x"], values["convolved"]),
            "stage.bn": (values["convolved"], values["normalized"]),
            "stage.extra": (values["active"], values["active"]),
            "fc": (features, values["logits"]),
        }
        names = [name for name in tensors if name != "stage.extra" or network.variant.has_extra]
        calls = [call(result.framework, f"{title}{suffix}/{number}", name) for number, name in enumerate(names)]
        result.passes[title + suffix] = calls
        for made in calls:
            for kind, array in zip(("in", "out"), tensors[made.name]):
                result.add(f"{made.key}/{kind}0", array)
    return passes["training"]["logits"]


def call(framework: str, key: str, name: str) -> Call:
    model, blocks = f"{framework}/model.py", f"{framework}/blocks.py"
    files = {"": (model,), "stage": (model, blocks), "fc": (model,)}.get(name, (blocks,))
    sites = {"": (), "stage": (f"{model}:20",), "fc": (f"{model}:21",)}.get(name, (f"{blocks}:11", f"{model}:20"))
    return Call(key, name, 0, name.rpartition(".")[2].title() or "Model", files, sites, 1, 1, SPANS[name])


def add_update(result: Record, network: Network, images: np.ndarray, labels: np.ndarray, title: str) -> None:
    """Run an update and record it as zoo/compare/proof.py does."""
    before, values = network.state_dict(), network.forward(images, True)
    loss, gradients = network.loss_and_gradients(values, labels)
    norm = network.step(gradients)
    network.update_statistics(values)
    after = network.state_dict()
    for name, gradient in gradients.items():
        result.add(f"{title}/gradient/{name}", gradient)
        result.add(f"{title}/optimizer/momentum/{name}", after[f"optimizer/momentum/{name}"])
    for name in network.state:
        is_statistic, value = ".running_" in name, after[name].astype(np.float64)
        result.add(
            f"{title}/{'statistic' if is_statistic else 'change'}/{name}",
            value if is_statistic else value - before[name],
        )
    result.add(f"{title}/loss", np.array(loss))
    result.add(f"{title}/grad_norm", np.array(norm))
    plan = Plan((), (), GROUPS.__getitem__, clip_norm=CLIP_NORM)
    unit = ROUNDING_UNITS[result.precision]
    deviations = formulas.check(plan, set(), LR, before, after, gradients, formulas.norm(gradients), unit)
    step = {"title": title, "lr": LR, "loss": loss, "grad_norm": norm, "deviations": deviations}
    result.steps.append({**step, "norm_of_gradients": formulas.norm(gradients)})


def column(values: np.ndarray) -> np.ndarray:
    return np.reshape(values, (1, -1, 1, 1))
