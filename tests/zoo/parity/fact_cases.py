"""A case of each formula, in which the values of its options give different numbers."""

from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from zoo.parity import facts
from zoo.parity.formulas import losses, optimizers
from zoo.parity.formulas.formula import Case, Formula, Number, Settings
from zoo.parity.formulas.pointwise import SHAPED

FORMULAS = {
    formula.name: formula for formula in (*facts.LAYERS, *losses.FORMULAS, *optimizers.UPDATES, optimizers.STATISTICS)
}
NUMBERS = {  # values of options that are numbers, beside the usual ones
    "eps": (1e-3, 1e-6),
    "a": (0.3, 0.7),
    "decay": (0.05,),
    "momentum": (0.9, 0.3),
    "lr": (0.3, 0.02),
    "initial": (0.1, 0.5),
    "beta1": (0.8,),
    "beta2": (0.99,),
    "vector-norm-epsilon": (1e-2, 2e-2, 4e-3),
    "cubic-coefficient": (-0.75, -0.5, -0.6),
    "swish-beta": (1.0, 0.7, 1.5),
    "softmax-temperature": (1.0, 8.0, 0.5),
    "clip-epsilon": (0.0, 1e-6),
}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def labels(*shape: int, below: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(0, below, shape)


def scaled(x: np.ndarray) -> np.ndarray:
    """Return x with small numbers in the first row, where epsilon weighs most."""
    x = 0.3 * x
    x[0] *= 1e-3
    return x


class Example(NamedTuple):
    """What a formula computes in tests.

    Attributes:
        shape: of the output, where it is that of any settings.
        settings: of the other options.
        names: sizes that code refers to.
    """

    kind: str
    inputs: tuple[np.ndarray, ...]
    params: Mapping[str, np.ndarray] = {}
    shape: tuple[int, ...] | None = None
    settings: Mapping[str, Any] = {}
    names: Mapping[str, Any] = {}
    training: bool = False

    def case(self, output: np.ndarray | None = None) -> Case:
        x = self.inputs[0]
        output = np.zeros(self.shape if self.shape is not None else x.shape) if output is None else output
        return Case(self.kind, self.inputs, self.params, output, output, self.training, output)


def affine(n: int, running: bool = False) -> dict[str, np.ndarray]:
    params = {"weight": normal(n) + 2, "bias": normal(n, seed=1)}
    statistics = {"running_mean": normal(n, seed=2), "running_var": np.linspace(1e-4, 2.0, n)}
    return params | statistics if running else params


def recurrent(gates: int, n: int = 4, m: int = 6) -> dict[str, np.ndarray]:
    sizes = {"weight_ih": (gates * m, n), "weight_hh": (gates * m, m), "bias_ih": (gates * m,), "bias_hh": (gates * m,)}
    return {name: 0.5 * normal(*size, seed=i) for i, (name, size) in enumerate(sizes.items())}


IMAGE = normal(2, 4, 9, 12)
POINTS = 1.3 * np.tanh(normal(2, 4, 5, 2))
HEADS = tuple(normal(2, 4, 4, 3, seed=i) for i in range(3))
LONG = (normal(2, 4, 3, 4), normal(2, 4, 5, 4), normal(2, 4, 5, 4, seed=1))
MASK = np.tri(4, dtype=bool)[None, None] ^ np.eye(4, dtype=bool)  # the first query sees no key
LOGITS, LABELS = normal(6, 5, 3), labels(6, 3, below=5)
GRADIENTS = (normal(20), *(0.3 / (i + 1) * normal(20, seed=i) for i in range(1, 4)))
EXAMPLES = {
    "layer_norm": Example("LayerNorm", (scaled(normal(4, 6, 6)),), affine(6), names={"n": 6}),
    "rms_norm": Example("RMSNorm", (scaled(normal(4, 7, 6)),), {"weight": normal(6) + 2}, names={"n": 6}),
    "group_norm": Example(
        "GroupNorm", (scaled(normal(4, 8, 3, 4)),), affine(8), settings={"groups": 2}, names={"n": 8, "g": 2}
    ),
    "batch_norm": Example("BatchNorm2d", (normal(4, 6, 3, 4),), affine(6, True), names={"n": 6}),
    "running_statistics": Example(
        "BatchNorm2d", (normal(3, 6, 1, 2), np.stack([*affine(6, True).values()][2:])), shape=(2, 6), names={"n": 6}
    ),
    "vector_norm": Example("Normalize", (scaled(normal(4, 6)),), settings={"eps": 1.0}),
    "response_norm": Example("LocalResponseNorm", (30 * normal(2, 8, 3, 4),)),
    "spread": Example("Std", (normal(3, 4, 6),), shape=(3, 4)),
    "activation": Example("Activation", (3 * normal(500),), {}),
    "prelu": Example("PReLU", (normal(4, 6, 5),), {"weight": normal(6)}, names={"n": 6}),
    "softmax": Example("Softmax", (normal(3, 4, 5),), settings={"axis": 2}),
    "gate": Example("GLU", (normal(4, 6),), shape=(4, 3)),
    "dropout": Example("Dropout", (normal(400),), training=True),
    "dense": Example("Linear", (normal(4, 6),), {"weight": normal(6, 6), "bias": normal(6)}, names={"n": 6, "m": 6}),
    "convolution": Example(
        "Conv2d",
        (normal(2, 4, 8, 10),),
        {"weight": normal(6, 4, 3, 3), "bias": normal(6)},
        shape=(2, 6, 8, 10),
        settings={"padding": 1},
        names={"n": 4, "m": 6, "k": 3},
    ),
    "transposed_convolution": Example(
        "ConvTranspose2d",
        (normal(2, 4, 5, 6),),
        {"weight": normal(4, 3, 3, 3), "bias": normal(3)},
        shape=(2, 3, 11, 13),
        settings={"stride": 2},
        names={"n": 4, "m": 3, "k": 3},
    ),
    "pool": Example("Pool2d", (IMAGE,), shape=(2, 4, 4, 5), settings={"kernel": 3, "stride": 2}),
    "adaptive_pool": Example("AdaptiveAvgPool2d", (IMAGE,), shape=(2, 4, 4, 5)),
    "embedding": Example(
        "Embedding", (labels(4, 5, below=9),), {"weight": normal(9, 4)}, (4, 5, 4), names={"v": 9, "m": 4}
    ),
    "lstm": Example("LSTM", (normal(2, 3, 4),), recurrent(4), (2, 3, 6), names={"n": 4, "m": 6}),
    "gru": Example("GRU", (normal(2, 3, 4),), recurrent(3), (2, 3, 6), names={"n": 4, "m": 6}),
    "rnn": Example("RNN", (normal(2, 3, 4),), recurrent(1), (2, 3, 6), names={"n": 4, "m": 6}),
    "attention": Example("Attention", HEADS),
    "fused_attention": Example("Attention", (normal(2, 6, 36),), shape=(2, 6, 12), settings={"heads": 2}),
    "rotary": Example("RotaryEmbedding", (normal(2, 5, 8),), names={"n": 8}),
    "sinusoid": Example("Timesteps", (np.arange(7) * 1.0,), shape=(7, 8)),
    "shuffle": Example("PixelShuffle", (normal(2, 12, 3, 4),), shape=(2, 3, 6, 8)),
    "order": Example("Flatten", (normal(2, 3, 4, 5),), shape=(2, 60)),
    "resize": Example("Upsample", (normal(2, 3, 8, 7),), shape=(2, 3, 5, 11), names={"h": 5, "w": 11}),
    "sample_grid": Example("GridSample", (normal(2, 3, 6, 7), POINTS), shape=(2, 3, 4, 5)),
    "clip": Example("Clip", (normal(20),)),
    "cross_entropy": Example("CrossEntropy", (LOGITS, LABELS), shape=()),
    "pair_loss": Example("Loss", (np.log(np.abs(normal(5, 4)) / 4), np.abs(normal(5, 4, seed=1)) / 4), shape=()),
    "smooth_loss": Example("SmoothL1", (normal(5, 4), normal(5, 4, seed=1)), shape=(), settings={"delta": 0.5}),
    "sgd": Example("SGD", GRADIENTS, shape=(3, 20)),
    "adam": Example("Adam", GRADIENTS, shape=(3, 20)),
    "by_squares": Example("RMSprop", GRADIENTS, shape=(3, 20)),
}
for _name in SHAPED:
    EXAMPLES[_name] = EXAMPLES["activation"]._replace(kind=_name)
_convolution, _images = EXAMPLES["convolution"], EXAMPLES["resize"]
_probabilities = np.abs(normal(5, 4)) % 1
SPECIAL = {  # cases of facts that need another than their formula's
    "batch-norm-variance": EXAMPLES["batch_norm"]._replace(training=True, params=affine(6)),
    "convolution-padding": _convolution._replace(settings={"stride": 2}),
    "convolution-stride": _convolution,
    "convolution-dilation": _convolution,
    "depth-multiplier": _convolution._replace(
        params={"weight": normal(8, 1, 3, 3), "bias": normal(8)}, shape=(2, 8, 8, 10), names={"n": 4, "m": 8, "k": 3}
    ),
    "transposed-cut": EXAMPLES["transposed_convolution"],
    "output-padding": EXAMPLES["transposed_convolution"]._replace(settings={"cut": 1, "stride": 2}),
    "count-include-pad": EXAMPLES["pool"]._replace(settings={"kernel": 3, "stride": 2, "padding": 1}),
    "pool-stride": EXAMPLES["pool"]._replace(settings={"kernel": 2, "mean": False}, kind="MaxPool"),
    "pool-kernel": EXAMPLES["pool"]._replace(settings={"stride": 2, "mean": False}, kind="MaxPool"),
    "pool-kind": EXAMPLES["pool"]._replace(settings={"kernel": 2}),
    "dropout-evaluation": EXAMPLES["dropout"]._replace(inputs=(normal(4, 100),), training=False),
    "pool-padding": EXAMPLES["pool"]._replace(
        inputs=(normal(2, 4, 8, 9),), settings={"kernel": 3, "stride": 2, "mean": False}, kind="MaxPool"
    ),
    "ceil-mode": EXAMPLES["pool"]._replace(settings={"kernel": 3, "stride": 2, "mean": False}, kind="MaxPool"),
    "cubic-coefficient": _images._replace(settings={"method": "cubic"}),
    "resize-antialias": _images,
    "nearest-grid": _images._replace(settings={"method": "nearest"}),
    "nearest-rounding": _images._replace(settings={"method": "nearest", "grid": "left"}),
    "channel-shuffle": EXAMPLES["shuffle"]._replace(shape=(2, 12, 3, 4)),
    "embedding-outside": EXAMPLES["embedding"]._replace(inputs=(labels(4, 5, below=9) + 4,)),
    "attention-scale": EXAMPLES["attention"]._replace(inputs=LONG[:1] + LONG[1:]),
    "causal-mask": EXAMPLES["attention"]._replace(inputs=LONG),
    "mask-meaning": EXAMPLES["attention"]._replace(inputs=(*HEADS, MASK | np.eye(4, dtype=bool))),
    "mask-fill": EXAMPLES["attention"]._replace(inputs=(*HEADS, MASK)),
    "attention-axis": EXAMPLES["attention"],
    "initial-state": EXAMPLES["rnn"]._replace(inputs=(normal(2, 3, 4), normal(1, 2, 6))),
    "reduction": EXAMPLES["cross_entropy"],
    "ignored-count": EXAMPLES["cross_entropy"]._replace(
        inputs=(LOGITS, np.where(LABELS == 1, 255, LABELS)), settings={"ignore_index": 255}
    ),
    "smoothing-classes": EXAMPLES["cross_entropy"]._replace(
        inputs=(LOGITS[..., 0], LABELS[..., 0]), settings={"smoothing": 0.1}
    ),
    "loss-input": EXAMPLES["cross_entropy"]._replace(
        inputs=(np.exp(LOGITS[..., 0]) / np.exp(LOGITS[..., 0]).sum(1, keepdims=True), LABELS[..., 0])
    ),
    "class-weights": EXAMPLES["cross_entropy"]._replace(inputs=(LOGITS[..., 0], LABELS[..., 0], np.arange(1.0, 6.0))),
    "pair-reduction": EXAMPLES["pair_loss"]._replace(settings={"function": "kl_of_logarithm"}),
    "argument-order": EXAMPLES["pair_loss"]._replace(
        settings={"function": "kl_of_logarithm"}, inputs=(_probabilities, normal(5, 4, seed=1) % 1)
    ),
    "probability-losses": EXAMPLES["pair_loss"]._replace(inputs=(_probabilities, normal(5, 4, seed=1) % 1)),
    "smooth-delta": EXAMPLES["smooth_loss"]._replace(settings={}),
    "smooth-reduction": EXAMPLES["smooth_loss"]._replace(settings={}),
    "dampening": EXAMPLES["sgd"]._replace(settings={"momentum": 0.9}),
    "nesterov": EXAMPLES["sgd"]._replace(settings={"momentum": 0.9}),
    "sgd-decay": EXAMPLES["sgd"],
    "sgd-decay-kind": EXAMPLES["sgd"]._replace(settings={"momentum": 0.9, "decay": 0.05}),
    "velocity": EXAMPLES["sgd"]._replace(settings={"momentum": 0.9}, params={"rates": np.array([1.0, 0.5, 0.1])}),
    "first-step": EXAMPLES["sgd"]._replace(settings={"momentum": 0.9, "dampening": 0.5}),
    "adam-epsilon-place": EXAMPLES["adam"]._replace(settings={"eps": 1e-3}),
    "adam-decay-kind": EXAMPLES["adam"]._replace(settings={"decay": 0.05}),
    "square-root": EXAMPLES["by_squares"]._replace(settings={"eps": 1e-3}),
    "square-initial": EXAMPLES["by_squares"]._replace(settings={"kind": "sum"}, kind="Adagrad"),
}


def example(fact: facts.Fact) -> Example:
    found = SPECIAL.get(fact.name, EXAMPLES[fact.formula])
    return found._replace(settings={**found.settings, **fact.when})


def usual(formula: Formula, made: Example) -> Settings:
    options = formula.options(made.case())
    assert options is not None, formula.name
    first = {name: values.starts[0] if isinstance(values, Number) else values[0] for name, values in options.items()}
    return first | made.settings


def values(fact: facts.Fact, made: Example) -> list[Any]:
    """Return the values of an option that a fact has words for, all values, or some numbers."""
    option = fact.option.removesuffix(facts.IN_FP32)
    options = FORMULAS[fact.formula].options(made.case()) or {}
    known = options.get(option, ())
    if option != fact.option:
        return [1e-5, float(np.float32(1e-5))]
    if isinstance(known, Number):
        return list(dict.fromkeys(NUMBERS.get(fact.name) or [*known.starts[:2], *NUMBERS.get(option, ())]))
    return [value for value in known if not fact.values or str(value) in fact.values]


def output(fact: facts.Fact, made: Example, value: Any) -> np.ndarray | None:
    """Return the output of a fact's formula with a value of its option; None if no size of the output fits."""
    formula = FORMULAS[fact.formula]
    settings = usual(formula, made) | {fact.option.removesuffix(facts.IN_FP32): value}
    shapes = [made.case().target.shape]
    if fact.formula in ("convolution", "transposed_convolution", "pool"):
        shapes += [(*shapes[0][:2], *size) for size in product(range(1, 30), repeat=2)]
    elif fact.option == "reduction" and value == "none":
        shapes = [made.inputs[-1].shape]
    for shape in shapes:
        case = made.case(np.ones(shape))
        with np.errstate(all="ignore"):
            result = formula.compute(case, **settings) if formula.options(case) is not None else None
        if result is not None:
            return result
    return None
