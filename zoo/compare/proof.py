"""The proof in one framework: forward passes and a few updates from the same weights, recorded.

It does not follow the recipe's schedule: every update has the schedule's largest learning rate, so that a warm-up from
0 hides nothing.
"""

import math
import sys
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from zoo.compare import causes, opinions, updates
from zoo.compare.rounding import has_16_bits
from zoo.config.schema import Config
from zoo.data.batch import Batch
from zoo.data.stream import open_training
from zoo.parity.record import ACCUMULATED, CLIPPED, Record, empty
from zoo.run.job import Job, build_trainer
from zoo.tasks.classify import Scores
from zoo.tasks.segment import ClassMap
from zoo.trainer import load_backend
from zoo.trainer.plan import Mode
from zoo.trainer.protocol import DeviceBatch, Trainer
from zoo.trainer.state import with_averages
from zoo.trainer.update import SCALE_KEY

UPDATES = 4  # from the second on, momentum counts
MAX_SCHEDULE_STEPS = 100_000  # that are searched for the largest learning rate
Tensors = dict[str, np.ndarray]
CLIP_SHARE = 0.5  # of the gradient's norm: the limit of the additional update that is clipped for certain
DECAYED_SHARE = 0.5  # of a weight that decay takes in the additional update whose rounding hides nothing
LARGE_LR = 10.0  # of that update in a recipe without decay
VARIATION = 0.1  # of the elements of initial weights that are all the same
# Part by which weights differ at which gradients show what kinks of activations make of rounding.
NEARBY = {"fp32": 2.0**-16, "fp16": 2.0**-10, "bf16": 2.0**-7}
DRAWS = 4  # of such weights: one of few activations next to a kink may cross it in one of four
LARGE = "update at a large rate"  # title of an additional update
LARGE_NUMBER = 10**6  # of that update: behind the warm-up of moving averages
EXACT_BITS = 18  # of a gradient's largest element in an exact run, at most: see zoo/trainer/update.py
MAX_BATCH = 31  # samples of a micro-batch, at most; odd, so that parts of a batch are not all of one size
# Sizes from which on modules take other branches, made so small that a demo takes them in the update of two
# micro-batches; few of them divide the tensors' sizes.
SMALL_SIZES: dict[str, dict[str, int]] = {
    "zoo.trainer.margin": {"CHUNK_ELEMENTS": 1009},
    "zoo.trainer.update": {"BLOCK_SIZE": 1009},
    "zoo.trainer.torch.batchnorm": {"BLOCK_SIZE": 16_381},
    "zoo.trainer.torch.cpu_layers": {"NORM_PIXELS": 1, "NORM_SUMS": 251},
    "zoo.trainer.paddle.batchnorm": {"BLOCK_SIZE": 16_381},
    "zoo.trainer.paddle.cpu_layers": {"MIN_WEIGHTS": 1, "MAX_PIXELS": 1 << 20, "COLUMNS": 1009},
    "zoo.trainer.paddle.ops": {"ROWS_AT_ONCE": 7},
    "zoo.trainer.paddle.optimizer": {"BLOCK_SIZE": 1009},
}


def record(job: Job, cfg: Config, compute: str, weights: Tensors, batches: Sequence[Batch]) -> Record:
    """Run the proof.

    Args:
        job: the assembled recipe; its own trainer is not used.
        compute: precision of the arithmetic: fp64, fp32, fp16 or bf16.
        weights: initial weights and running statistics, by canonical name.
        batches: this rank's micro-batches of UPDATES updates.
    """
    lr, first, weights = peak_lr(job), weights, varied(weights)
    trainer = make_trainer(job, cfg, compute)
    device_batches = [trainer.to_device(batch) for batch in batches]
    micro_batches = device_batches[: job.plan.accumulate]  # of one update
    trainer.load_state_dict(with_averages(weights, job.plan))
    own_scale = np.array(trainer.state_dict()[SCALE_KEY])
    result = empty(job.framework, compute, causes.settings_of(job, cfg, weights, batches[0], lr))
    result.settings["opinions"] = [list(opinion) for opinion in opinions.of_recipe(job, cfg)]
    result.settings["no_opinion"] = opinions.missing(job)
    result.files.update(causes.files_of(trainer, cfg.task))
    for param in trainer.params:
        if param.is_statistic:
            result.add(f"initial/{param.name}", weights[param.name])
    # After passes that are recorded, MindSpore compiles its graphs anew: they come first and last.
    output = _add_passes(result, job, trainer, device_batches[0], "")
    is_plain = job.plan.accumulate == job.group.size == 1 and not result.settings["sharded"]
    if is_plain and job.loss.task != "multilabel":
        result.settings["loss_terms"] = causes.loss_terms(output, batches[0]["label"])
    initial = with_averages(first, job.plan)
    result.settings["without_gradient"] = _without_gradient(trainer, initial, device_batches, lr)
    precisions = [each for each in NEARBY if compute == "fp32" and each in ("fp32", job.plan.mode.compute)]
    result.settings["spread"] = {
        each: _spread(trainer, weights, micro_batches, lr, NEARBY[each]) for each in precisions
    }
    gradients = _add_updates(result, job, trainer, device_batches, lr)
    _add_predictions(result, job, trainer, device_batches[0], batches[0])
    _add_hard_updates(result, job, trainer, micro_batches, lr, own_scale)
    _add_passes(result, job, trainer, device_batches[0], " after the updates")
    if opinions.is_judged(job, trainer):
        loss, of_update = result.steps[0]["loss"], batches[: job.plan.accumulate]
        found = opinions.of_loss(job, trainer, weights, gradients, micro_batches, of_update, loss)
        places = [*result.files["objective"], *result.files["trainer"]]
        result.settings["opinions"] += [[what, places] for what in found]
    if compute in ("fp16", "bf16"):
        result.settings["coarse"] = _coarse(result, trainer)
    _add_updates_of_others(result, job, cfg, weights, device_batches, lr)
    return result


def _add_updates(result: Record, job: Job, trainer: Any, device_batches: Sequence[DeviceBatch], lr: float) -> Tensors:
    """Record UPDATES updates; return the gradients of the first."""
    accumulate, gradients = job.plan.accumulate, Tensors()
    for number in range(UPDATES):
        micro_batches = device_batches[number * accumulate : (number + 1) * accumulate]
        if number in (0, UPDATES - 1):
            updates.reload(trainer, micro_batches, lr, number)
        updates.add_update(result, job, trainer, micro_batches, lr, number)
        gradients = gradients or {name: np.array(gradient) for name, gradient in trainer.gradients().items()}
    return gradients


def _add_predictions(result: Record, job: Job, trainer: Any, device_batch: DeviceBatch, batch: Batch) -> None:
    """Record predictions directly after an update: the model has to leave training mode itself."""
    name = job.plan.fields[0].name
    result.add("prediction", trainer.predict({name: device_batch[name]}))
    if job.plan.ema:
        result.add("moving average/prediction", trainer.predict({name: device_batch[name]}, averaged=True))
    if isinstance(job.plan.output, ClassMap):
        result.add("in windows/prediction", _predict_windows(trainer, name, batch[name]))


def _add_hard_updates(
    result: Record, job: Job, trainer: Any, micro_batches: Sequence[DeviceBatch], lr: float, own_scale: np.ndarray
) -> None:
    """Record updates that are skipped, and those at a large rate; the trainer gets its state back.

    Args:
        own_scale: the loss scale that the trainer began with.
    """
    state = {key: np.array(value) for key, value in trainer.state_dict().items()}
    norm = result.steps[-1]["grad_norm"]
    updates.add_skipped_updates(result, trainer, micro_batches, lr, UPDATES + 2, norm)
    # Kernels that take all tensors at once do so without a loss scale alone.
    for scale in (state[SCALE_KEY], *(() if job.plan.adapts_scale else (own_scale,))):
        trainer.load_state_dict({**state, SCALE_KEY: scale})
        updates.add_update(result, job, trainer, micro_batches, large_lr(job), LARGE_NUMBER, LARGE, is_kept=False)
    trainer.load_state_dict(state)


def _add_updates_of_others(
    result: Record, job: Job, cfg: Config, weights: Tensors, device_batches: Sequence[DeviceBatch], lr: float
) -> None:
    """Record updates of other trainers: of two micro-batches in small blocks, clipped for certain, exact."""
    compute, micro_batches, limit = result.precision, device_batches[: job.plan.accumulate], cfg.optim.clip_norm
    if compute == "fp64" or (compute == "fp32" and any(f".{job.framework}." in name for name in SMALL_SIZES)):
        with _small_sizes():
            _add_another_update(
                result, job, cfg, weights, device_batches[: max(len(micro_batches), 2)], lr, ACCUMULATED
            )
    elif limit is not None and min(step["grad_norm"] for step in result.steps[:UPDATES]) <= limit:
        _add_another_update(result, job, cfg, weights, micro_batches, lr, CLIPPED)
    if compute == "fp64" and job.plan.mode.rounds_gradients:
        trainer = make_trainer(job, cfg, "exact")
        trainer.load_state_dict(with_averages(weights, job.plan))
        trainer.step(micro_batches, lr, 0)
        exact = trainer.gradients().items()
        result.settings["not_rounded"] = [name for name, gradient in exact if not _is_rounded(gradient)]


def _predict_windows(trainer: Any, name: str, images: np.ndarray) -> np.ndarray:
    """Return the probabilities of larger images and mirror images, by windows of the images' size, at another size."""
    height, width = images.shape[1:3]
    larger = np.concatenate([images, images[:, : height // 2]], 1)
    plan = trainer.plan
    trainer.plan = replace(plan, output=ClassMap((height, width), flip=True, probabilities=True))
    probabilities: np.ndarray = trainer.predict(trainer.to_device({name: larger}), (height // 2 + 3, width // 2 + 1))
    trainer.plan = plan
    return probabilities


@contextmanager
def _small_sizes() -> Generator[None, None, None]:
    """Set SMALL_SIZES in the modules that are imported."""
    modules = {sys.modules[name]: sizes for name, sizes in SMALL_SIZES.items() if name in sys.modules}
    kept = {module: {name: getattr(module, name) for name in sizes} for module, sizes in modules.items()}
    try:
        for module, sizes in modules.items():
            vars(module).update(sizes)
        yield
    finally:
        for module, sizes in kept.items():
            vars(module).update(sizes)


def _coarse(result: Record, trainer: Any) -> list[str]:
    """Return what should be in fp32 and has numbers of 16 bits alone."""
    outputs = {f"the output of {name}": f"/{name}" for name in trainer.plan.fp32_modules}
    values = {
        title: [result.get(f"{call.key}/out0") for call in result.passes["training"] if f"/{call.name}" == name]
        for title, name in outputs.items()
    }
    values["the loss"] = [np.array([step["loss"] for step in result.steps])]
    if not trainer.plan.eval_mixed:
        values["the output in evaluation"] = [result.get(f"{result.passes['evaluation'][-1].key}/out0")]
        if trainer.plan.output == Scores():
            values["the prediction"] = [result.get("prediction")]
    return [
        title for title, arrays in values.items() if arrays and all(has_16_bits(x, result.precision) for x in arrays)
    ]


def _is_rounded(gradient: np.ndarray) -> bool:
    """Return whether all elements are multiples of one 2**-17 of the largest, or less, as in exact runs."""
    largest = float(np.abs(gradient).max(initial=0))
    units = np.ldexp(gradient, EXACT_BITS - math.frexp(1.5 * largest)[1])
    return not largest or bool((units == np.rint(units)).all())


def _without_gradient(
    trainer: Any, weights: Mapping[str, np.ndarray], device_batches: Sequence[DeviceBatch], lr: float
) -> list[str]:
    """Return the parameters whose gradients are exactly 0 in UPDATES updates from the recipe's own initial weights.

    In fp32 alone, whose results hold for the other precisions. The trainer gets its state back.
    """
    if trainer.mode.compute != "fp32":
        return []
    state = {key: np.array(value) for key, value in trainer.state_dict().items()}
    trainer.load_state_dict(weights)
    accumulate, still = trainer.plan.accumulate, None
    for number in range(UPDATES):
        trainer.step(device_batches[number * accumulate : (number + 1) * accumulate], lr, number)
        zero = {name for name, gradient in trainer.gradients().items() if not gradient.any()}
        still = zero if still is None else still & zero
    trainer.load_state_dict(state)
    return sorted(still or ())


def _spread(
    trainer: Any, weights: Tensors, micro_batches: Sequence[DeviceBatch], lr: float, size: float
) -> dict[str, float]:
    """Return the part of each gradient by which it differs at most at DRAWS points nearby; the trainer is as before.

    Args:
        size: part by which their weights differ.
    """
    state = {key: np.array(value) for key, value in trainer.state_dict().items()}
    gradients: Tensors = {}
    spread: dict[str, float] = {}
    for draw in range(DRAWS + 1):
        factors = {key: noise(f"{key} {draw}", each.shape, size if draw else 0.0) for key, each in weights.items()}
        trainer.load_state_dict({key: each + (factors[key] * each).astype(each.dtype) for key, each in weights.items()})
        trainer.step(micro_batches, lr, 0)
        found = {name: np.array(gradient) for name, gradient in trainer.gradients().items()}
        gradients = gradients or found
        spread = {name: max(spread.get(name, 0.0), _distance(found[name], gradients[name])) for name in found}
    trainer.load_state_dict(state)
    return spread


def _distance(gradient: np.ndarray, other: np.ndarray) -> float:
    """Return the part of a gradient by which it differs from another one."""
    return float(np.linalg.norm(gradient - other) / (np.linalg.norm(other) or 1.0))


def large_lr(job: Job) -> float:
    """Return a learning rate at which decay, momentum and gradient are all larger than the rounding of the weights."""
    decay = max(job.plan.param_group(param.name).weight_decay for param in job.trainer.params)
    return DECAYED_SHARE / decay if decay else LARGE_LR


def varied(weights: Tensors) -> Tensors:
    """Return weights without constant tensors: a bias of 0 would not show whether it is added, nor a scale of 1."""
    return {
        name: value if np.ptp(value) else value + noise(name, value.shape, VARIATION).astype(value.dtype)
        for name, value in weights.items()
    }


def noise(name: str, shape: Sequence[int], size: float) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(name.encode())).uniform(-size, size, shape)


def peak_lr(job: Job) -> float:
    """Return the largest learning rate of the run's schedule."""
    stride = max(1, job.clock.steps // MAX_SCHEDULE_STEPS)
    return max(job.lr(step) for step in range(0, job.clock.steps, stride))


def batches(job: Job, seed: int) -> list[Batch]:
    """Return this rank's micro-batches of the first UPDATES updates."""
    count = UPDATES * job.plan.accumulate
    group = job.group
    size = min(job.batch_plan.batch, MAX_BATCH)
    stream = open_training(job.train_set, seed, size, 0, count, group.rank, group.size, job.dropout_masks)
    return [batch for batch, _ in stream]


def make_trainer(job: Job, cfg: Config, compute: str, accumulate: int | None = None) -> Trainer:
    mode = Mode(compute, job.plan.mode.level if compute in ("fp16", "bf16") else None, None, cfg.train.compile)
    cfg = replace(cfg, task=job.loss)
    count = accumulate or job.plan.accumulate
    _, trainer = build_trainer(cfg, job.model, job.arch, job.train_set.fields, job.world, mode, count)
    return trainer


def _add_passes(result: Record, job: Job, trainer: Trainer, batch: DeviceBatch, suffix: str) -> tuple[np.ndarray, ...]:
    """Record a forward pass in training mode and one in evaluation mode; return the outputs in training mode."""
    output: tuple[np.ndarray, ...] = ()
    record_forward = load_backend(job.framework).record_forward
    for title, training in (("training", True), ("evaluation", False)):
        forward = record_forward(trainer, batch, training, title + suffix, result.add)
        output = forward.outputs if training else output
        result.passes[title + suffix] = forward.calls
    return output


def _add_another_update(
    result: Record,
    job: Job,
    cfg: Config,
    weights: Tensors,
    micro_batches: Sequence[DeviceBatch],
    lr: float,
    title: str,
) -> None:
    """Run an update by a trainer that takes so many micro-batches, and has a limit that the gradient exceeds.

    There is no limit in a recipe without one; its own has not been exceeded each time.
    """
    if cfg.optim.clip_norm is not None:
        limit = float(f"{CLIP_SHARE * result.steps[0]['grad_norm']:.3g}")
        cfg = replace(cfg, optim=replace(cfg.optim, clip_norm=limit))
    trainer = make_trainer(job, cfg, result.precision, len(micro_batches))
    trainer.load_state_dict(with_averages(weights, job.plan))
    if not job.plan.adapts_scale or result.precision != "fp16":
        trainer.load_state_dict({SCALE_KEY: np.array(updates.SCALE, np.float32)})
    updates.add_update(result, job, trainer, micro_batches, lr, 0, title)
