"""Guesses at the cause of a loss or an update that differs, from the recipe's settings, and the files of each topic."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.compare.formulas import SLIPS
from zoo.config.schema import Config
from zoo.data.batch import Batch
from zoo.losses.segment import IGNORE_INDEX
from zoo.parity.causes import fit_factor, named_factor, some
from zoo.parity.recording import ROOT, class_file, class_files
from zoo.run.job import Job
from zoo.trainer import numpy_ops

DIGITS = 3  # a setting that someone wrote has no more
STATISTIC_FIT = 1e-4  # largest relative deviation of running statistics, which may come from fp32
BATCH_NORM_MOMENTUM = 0.1  # weight of a new batch in the running statistics
Settings = Mapping[str, Any]


def settings_of(job: Job, cfg: Config, weights: Mapping[str, np.ndarray], batch: Batch, lr: float) -> dict[str, Any]:
    """Return what the search of causes needs to know."""
    magnitudes = {name: float(np.abs(value).max(initial=0)) for name, value in weights.items()}
    groups = {param.name: list(job.plan.param_group(param.name)) for param in job.trainer.params}
    return {
        "lr": lr,
        "momentum": getattr(job.plan.optimizer, "momentum", 0.0),
        "magnitudes": magnitudes,
        "clip_norm": job.plan.clip_norm,
        "param_groups": groups,
        "dropout": getattr(job.arch, "dropout_rate", getattr(job.arch, "dropout", 0.0)),
        "task": {key: value for key, value in vars(cfg.task).items() if isinstance(value, int | float)},
        "samples": len(batch["valid"]),
        "accumulate": job.plan.accumulate,
        "sharded": [param.name for param in job.trainer.params if param.rows],
    }


def files_of(trainer: Any, task: Any) -> dict[str, list[str]]:
    """Return the source files by topic; task: section `task:`, whose class has the loss."""
    own = class_file(trainer)
    folder = own.rpartition("/")[0]
    objective = "zoo/trainer/margin.py" if task.task == "face" else "zoo/trainer/objectives.py"
    by_topic = {
        "preprocess": [own, f"{folder}/layers.py", f"{folder}/model.py"],
        "objective": [*class_files(task), objective, class_file(trainer.objective), f"{folder}/ops.py"],
        "update": [
            f"{folder}/optimizer.py",
            class_file(trainer.plan.optimizer),
            f"{folder}/ops.py",
            f"{folder}/update.py",
            "zoo/trainer/update.py",
            own,
        ],
        "average": [
            "zoo/trainer/update.py",
            "zoo/optim/ema.py",
            f"{folder}/optimizer.py",
            f"{folder}/update.py",
            own,
        ],
        "trainer": [own, f"{folder}/update.py", f"{folder}/model.py"],
        "shards": [f"{folder}/partial_fc.py"],
        "ranks": [f"{folder}/parallel.py", f"{folder}/batchnorm.py", "zoo/run/checkpoint.py"],
        "statistics": [f"{folder}/batchnorm.py", f"{folder}/layers.py"],
        "output": [class_file(trainer.plan.output), f"{folder}/ops.py"],
        "precision": [f"{folder}/{name}.py" for name in ("cpu_layers", "batchnorm", "model", "layers", "ops")],
    }
    return {
        topic: [path for path in dict.fromkeys(paths) if os.path.isfile(os.path.join(ROOT, path))]
        for topic, paths in by_topic.items()
    }


def of_loss(reference: float, suspect: float, settings: Settings) -> str:
    """Guess why a loss differs while the model's output is the same."""
    if not np.isfinite([reference, suspect]).all():
        return "it is not finite"
    if "loss_terms" in settings:
        guess = _setting_of_loss(reference, suspect, settings["loss_terms"], settings["task"])
        if guess:
            return guess
    ratio = suspect / reference if reference else float("nan")
    return named_factor(ratio, factors(settings)) or f"it is {ratio:.6g} times the others'"


def loss_terms(logits: Sequence[np.ndarray], labels: np.ndarray) -> dict[str, Any]:
    """Return sums over a batch, of which a cross-entropy is made with any smoothing and weight of auxiliary logits.

    Args:
        logits: of each head, (N, K) or (N, K, H, W).
        labels: (N,) or (N, H, W).

    Returns:
        `heads`: of each head the cross-entropy with the labels and with the uniform distribution; `all` and `valid`,
        the number of all labels and of those that are not ignored.
    """
    ignored = IGNORE_INDEX if labels.ndim > 1 else -1
    valid = labels != ignored
    heads = [
        [
            float(numpy_ops.cross_entropy(head, labels, ignored).sum()),
            float(-numpy_ops.log_softmax(head).mean(1)[valid].sum()),
        ]
        for head in logits
    ]
    return {"heads": heads, "all": int(labels.size), "valid": int(valid.sum())}


def _setting_of_loss(reference: float, suspect: float, sums: Mapping[str, Any], task: Mapping[str, float]) -> str:
    """Guess which setting of a cross-entropy differs. sums: of `loss_terms`; task: settings of the task."""
    if not sums["valid"]:
        return ""
    share = sums["valid"] / sums["all"]
    if share < 1 and _same(suspect, reference * share):
        return "the loss is averaged over all pixels instead of those with a label"
    if share < 1 and _same(suspect, reference / share):
        return "the loss is averaged over the pixels with a label"
    (target, uniform), *auxiliary = sums["heads"]
    for count in {sums["valid"], sums["all"]}:
        if auxiliary and "aux_weight" in task:
            weight, (other, _) = task["aux_weight"], auxiliary[0]
            found = (suspect * count - target) / other
            if _same(reference, (target + weight * other) / count) and _is_another(found, weight):
                return f"the auxiliary loss has the weight {_written(found):g} instead of {weight:g}"
        if not auxiliary and uniform != target:
            smoothing = task.get("label_smoothing", 0.0)
            found = (suspect * count - target) / (uniform - target)
            is_smoothed = _same(reference, ((1 - smoothing) * target + smoothing * uniform) / count)
            if is_smoothed and _is_another(found, smoothing) and 0 <= _written(found) < 1:
                return f"label smoothing is {_written(found):g} instead of {smoothing:g}"
    return ""


def _is_another(value: float, setting: float) -> bool:
    """Return whether a value is one that someone writes, and not the setting itself."""
    return abs(value - _written(value)) <= 1e-6 and _written(value) != setting


def _written(value: float) -> float:
    return round(value, DIGITS) + 0.0  # not -0.0


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def of_statistic(name: str, before: np.ndarray, reference: np.ndarray, suspect: np.ndarray) -> str:
    """Guess why a running mean or variance differs after an update."""
    scale = fit_factor(reference - before, suspect - before, STATISTIC_FIT)
    if scale is not None:
        return (
            "it has not changed"
            if scale == 0
            else f"the momentum is {round(1 - BATCH_NORM_MOMENTUM * scale, 6) + 0:g} (the old "  # + 0: of -0 it makes 0
            f"value's weight) instead of {1 - BATCH_NORM_MOMENTUM:g}"
        )
    kept = (1 - BATCH_NORM_MOMENTUM) * before
    scale = fit_factor(reference - kept, suspect - kept, STATISTIC_FIT)
    if name.endswith("running_var") and scale is not None and 0.4 < scale < 2.5 and scale != 1:
        count = 1 / (1 - scale) if scale < 1 else scale / (scale - 1)
        kind = "biased" if scale < 1 else "unbiased"
        return f"the variance of a batch is the {kind} one: of {count:.6g} values, {scale:.6g} times the others'"
    return ""


def of_update(deviations: Mapping[str, Mapping[str, Any]], momentum: float) -> str:
    """Guess why updates do not follow the optimizer's formula."""
    guesses: dict[str, set[str]] = {}
    for name, deviation in deviations.items():
        for guess in _update_guesses(deviation, momentum):
            guesses.setdefault(guess, set()).add(name)
    clauses, left = [], set(deviations)
    while left:  # the guess that explains the most parameters first
        guess = max(guesses, key=lambda guess: len(guesses[guess] & left))
        clauses.append(f"{guess} ({some([name for name in deviations if name in guesses[guess] & left])})")
        left -= guesses[guess]
    return "; ".join(clauses)


def _update_guesses(deviation: Mapping[str, Any], momentum: float) -> list[str]:
    if deviation["frozen"]:
        return ["a frozen parameter is updated"]
    if deviation["slot"]:
        return [f"the optimizer's {deviation['slot']} does not follow its formula"]
    sentences = {
        "nesterov": lambda factor: "Nesterov momentum",
        "lr": lambda factor: f"the learning rate is {_rounded(factor)} times the expected one",
        "momentum": lambda factor: f"the momentum is {_rounded(factor * momentum)} instead of {momentum:g}",
        "decay": lambda factor: f"the weight decay is {_rounded(factor)} instead of {deviation['decay']:g}",
        "gradient": lambda factor: f"the gradient is {_rounded(factor)} times the expected one: clipping or scaling",
        "dampening": lambda factor: f"gradient and decay are added to the momentum {_rounded(factor)} times: dampening",
    }
    guesses = [SLIPS.get(kind) or sentences[kind](factor) for kind, factor in deviation["factors"].items()]
    return guesses or ["the update is not a sum of gradient, decay and momentum"]


def factors(settings: Settings) -> dict[str, float]:
    """Return numbers of a recipe by which a slip may multiply a tensor or a loss."""
    return dict(_factors(settings))


def _factors(settings: Settings) -> Iterator[tuple[str, float]]:
    dropout, samples, accumulate = settings["dropout"], settings["samples"], settings["accumulate"]
    yield "dropout is not divided by 1 - p", 1 - dropout
    yield "dropout is divided by 1 - p twice", 1 / (1 - dropout)
    yield "the mean over samples is taken twice", 1 / samples
    yield "a sum over samples instead of their mean", float(samples)
    yield "a mean over micro-batches is taken twice", 1 / accumulate
    yield "a sum over micro-batches instead of their mean", float(accumulate)
    yield "the sign", -1.0
    yield "pixels of 0 to 255 instead of 0 to 1", 255.0
    for key, value in settings["task"].items():
        yield f"task.{key}", float(value)
        yield f"1 / task.{key}", 1 / value if value else 0.0


def _rounded(value: float) -> str:
    return f"{value:.3g}" if abs(value) > 1e-9 else "0"
