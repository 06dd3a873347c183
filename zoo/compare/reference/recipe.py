"""What a recipe says about updates: learning rates, parameter groups, class weights."""

import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np


def samples_per_update(train: Any, ranks: int) -> int:
    """Return the global batch; train: section `train:`."""
    return train.global_batch or ranks * train.accumulate * train.batch


def updates(train: Any, samples: int, ranks: int) -> int:
    """Return the length of the run; samples: of the training split."""
    return train.steps or -(-train.epochs * samples // samples_per_update(train, ranks))


def learning_rate(optim: Any, train: Any, samples: int, ranks: int) -> Callable[[int], float]:
    """Return the learning rate of an update, counted from 0; the keys of section `optim:` say what it is."""
    batch, by_epoch, warmup = samples_per_update(train, ranks), optim.update == "epoch", optim.warmup.value
    peak = optim.lr * (batch / optim.base_batch if optim.base_batch else 1.0)
    length = train.epochs if by_epoch else updates(train, samples, ranks)
    if optim.warmup.unit == "epochs" and not by_epoch:
        warmup = math.ceil(warmup * samples / batch)
    ahead = optim.warmup_offset
    if ahead is None:
        ahead = 1 if by_epoch and warmup and not optim.warmup_start else 0

    def after_warmup(time: int) -> float:
        elapsed = time * batch / samples if train.epochs and not by_epoch else time
        if optim.schedule in ("step", "exponential"):
            power = sum(elapsed >= at for at in optim.milestones) if optim.schedule == "step" else elapsed
            return peak * optim.gamma**power
        if optim.schedule == "constant":
            return peak
        return peak * CURVES[optim.schedule](optim, float(time - warmup), float(length - warmup))

    def rate(update: int) -> float:
        time = update * batch // samples if by_epoch else update
        if time >= warmup:
            return after_warmup(time)
        first, last = optim.warmup_start * peak, after_warmup(int(warmup))
        return first + (last - first) * float((time + ahead) / warmup)

    return rate


def _one_cycle(optim: Any, time: float, length: float) -> float:
    top, last, first = optim.pct_start * length - 1, length - 1, 1 / optim.div_factor
    if time <= top and top > 0:
        return first + (1 - first) * (1 - math.cos(math.pi * time / top)) / 2
    end = first / optim.final_div_factor
    return end + (1 - end) * (1 + math.cos(math.pi * (time - top) / (last - top))) / 2


def _falling(shape: Callable[[Any, float], float]) -> Callable[[Any, float, float], float]:
    """Return a curve from 1 to min_lr, given one from 1 to 0."""

    def curve(optim: Any, time: float, length: float) -> float:
        least = optim.min_lr / optim.lr if optim.lr else 0.0
        steps = max(length - 1 if optim.min_lr_at == "last_step" else length, 1)
        return least + (1 - least) * shape(optim, time / steps)

    return curve


CURVES = {  # of the time since the warm-up and the length of the rest
    "cosine": _falling(lambda optim, part: (1 + math.cos(math.pi * part)) / 2),
    "linear": _falling(lambda optim, part: 1 - part),
    "poly": _falling(lambda optim, part: (1 - part) ** optim.power),
    "one_cycle": _one_cycle,
}


def param_group(model: str, arch: Any, optim: Any, name: str, ndim: int, names: Collection[str]) -> tuple[float, float]:
    """Return learning-rate factor and weight decay of a parameter.

    Args:
        model: one of MODELS.
        ndim: number of the parameter's dimensions.
        names: of all parameters and running statistics: a normalization is a module that has some.
    """
    is_norm = f"{name.rpartition('.')[0]}.running_var" in names
    scale, decay = (_tsm if model.startswith("tsm") else _by_decay)(arch, name, ndim, is_norm)
    for rule in optim.groups:
        if re.fullmatch(rule.match, name):
            scale, decay = (0.0 if rule.freeze else scale * rule.lr), decay * rule.decay
    return scale, decay * optim.weight_decay


FP32_MODULES: dict[str, tuple[str, ...]] = {"arcface": ("fc", "features")}  # by model, beside 16 bits
MODELS = ("resnet", "deeplabv3plus", "arcface", "tsm", "tsm_mobilenet_v2")


def _by_decay(arch: Any, name: str, ndim: int, is_norm: bool) -> tuple[float, float]:
    """Biases and normalizations have no decay with model.decay=weights, layers named bn none with all_but_bn."""
    is_frozen = name == "features.weight" and arch.variant != "plsc"  # the scale of insightface's last normalization
    exempt = {"all": False, "all_but_bn": "bn" in name.split(".")[-2], "weights": ndim < 2}[arch.decay]
    return 0.0 if is_frozen else 1.0, 0.0 if exempt else 1.0


def _tsm(arch: Any, name: str, ndim: int, is_norm: bool) -> tuple[float, float]:
    """Biases learn twice as fast and, like normalizations, have no decay; the last layer may learn faster."""
    if is_norm:
        is_first = name.startswith("bn1.") or ".nl." in name
        return 0.0 if getattr(arch, "partial_bn", False) and not is_first else 1.0, 0.0
    faster = 5.0 if name.startswith("fc.") and arch.fc_lr5 else 1.0
    return (2.0 * faster, 0.0) if ndim < 2 else (faster, 1.0)


def shown(counts: Sequence[int], balance: float) -> list[float]:
    """Return how often an epoch shows each class: as often as there are samples in all, by count^(1 - balance)."""
    shares = [count ** (1 - balance) if count else 0.0 for count in counts]
    return [share * sum(counts) / sum(shares) for share in shares]


def balanced_weights(shown: Sequence[float], classes: int) -> np.ndarray:
    """Return class weights with which all classes have the same sum of weights, and the mean sample the weight 1.

    Args:
        shown: samples of each class in an epoch; a class without some has the weight 1, as have classes beyond.
    """
    present = [count for count in shown if count]
    share = sum(present) / len(present)
    return np.array([share / shown[k] if k < len(shown) and shown[k] else 1.0 for k in range(classes)])
