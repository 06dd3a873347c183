"""JAX behind what the common cases need beside the trainer interface; see tests/zoo/trainer/torch/adapter.py."""

import os
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import zoo.trainer.jax as backend
from tests.zoo.trainer.jax.tiny import Identity, Linear, Tiny
from zoo.trainer.jax import model as names
from zoo.trainer.jax import ops, start
from zoo.trainer.jax.layers import BatchNorm
from zoo.trainer.jax.parallel import AXIS, local
from zoo.trainer.jax.partial_fc import Margin, ParameterShard
from zoo.trainer.jax.trainer import build_objective
from zoo.trainer.plan import Mode, ParamGroup, Plan
from zoo.trainer.world import Launch

__all__ = ["Identity", "Linear", "Tiny", "Trainer", "start"]

FRAMEWORK = "jax"
WORLD = start(Launch(), os.environ.get("ZOO_TEST_DEVICE", "cpu"))
FP32_MODES = (Mode("fp32", None, True, True),)
FP64_MODES = (Mode("fp64", None, True, True),)
SIXTEEN_BIT_MODES = (Mode("bf16", "O1", True, True), Mode("fp16", "O1", True, True))
CHECKPOINTED_MODES = FP32_MODES
GRADIENT_ATOL = 1e-7
PRODUCT_RTOL = 1e-5  # of a sum of products in 16 bits, over chunks
RECOMPUTED_RTOL = 1e-6  # of an update with checkpointed activations, which is compiled to other code
DEVICE = r"(2 x )?cpu \(\d+ threads\)"
RESOLVED_MODES = {
    Mode("fp32"): Mode("fp32", None, True, True),
    Mode("fp64"): Mode("fp64", None, True, True),
    Mode("exact", None, True): Mode("fp64", None, True, True, True),
    Mode("fp32", "O1", None, True): Mode("fp32", None, True, True),
    Mode("amp"): Mode("bf16", "O1", True, True),
    Mode("fp16", "O1"): Mode("fp16", "O1", True, True),
}
REFUSED_MODES = {
    Mode("amp", "O2"): "there is no O2",
    Mode("fp32", None, False): "channels_last",
    Mode("fp32", None, None, False): "train.compile: JAX compiles",
    Mode("fp32", None, None, "reduce-overhead"): "train.compile: reduce-overhead is a mode of torch.compile",
}
REFUSED_DEVICES = ("gpu", "cuda:x", "npu:0", "cuda:99", "cuda", "tpu")


class Trainer(backend.Trainer):
    """A trainer among others of another mode: a run has one trainer, these cases have many."""

    def __getattribute__(self, name):
        if not name.startswith("_") and name != "mode":
            jax.config.update("jax_enable_x64", self.mode.is_fp64)
        return super().__getattribute__(name)


def make_loss_scale_dynamic(trainer, initial: float) -> None:
    """Do nothing: a CPU has fp16, with which the loss scale is dynamic."""


def make_loss_scale_static(trainer, initial: float) -> None:
    """Do nothing: a CPU has fp16, so the plan's loss scale counts."""


class VolumeNorm(BatchNorm):
    """Batch normalization of (N, C, H, W, D), as `run` gives it (N, C, D, H, W)."""

    def __call__(self, x, **options):
        return jnp.moveaxis(super().__call__(jnp.moveaxis(x, 1, -1), **options), -1, 1)


def batch_norm(dimensions: int, channels: int):
    kind = {2: BatchNorm, 3: VolumeNorm}[dimensions]
    return nnx.Sequential(kind(channels, momentum=0.9, rngs=nnx.Rngs(0)))


def _variables(model):
    return {
        names.canonical_name(path): (path, variable)
        for path, variable in nnx.to_flat_state(nnx.state(model, (nnx.Param, nnx.BatchStat)))
    }


def load_tensors(model, arrays: dict[str, np.ndarray]) -> None:
    found = _variables(model)
    for name, array in arrays.items():
        path, variable = found[name]
        variable[...] = jnp.asarray(names.from_canonical(array, path))


def shapes(model) -> dict[str, tuple[int, ...]]:
    found = {name: names.to_canonical(np.asarray(v[...]), path).shape for name, (path, v) in _variables(model).items()}
    return dict(sorted(found.items(), key=lambda item: ".running_" in item[0]))


def submodules(model) -> list[str]:
    return [names.module_name(path) for path, _ in names.modules_of(model)]


def saved_bytes(trainer, batch: dict[str, np.ndarray]) -> int:
    """Return the bytes that a forward pass keeps for the backward pass."""
    now, inputs = trainer.state, jnp.asarray(batch[trainer.input_name])

    def forward(weights):
        model = trainer.network.bind({**weights, **now.frozen, **now.statistics})
        return model(trainer.network.preprocess(inputs))

    _, backward = jax.vjp(forward, now.weights)
    kept = {id(array) for array in jax.tree.leaves(now)}
    return sum(array.nbytes for array in jax.tree.leaves(backward) if id(array) not in kept)


def statistics(model) -> dict[str, np.ndarray]:
    return {name: np.asarray(v[...]) for name, (_, v) in _variables(model).items() if ".running_" in name}


def channels_last(x: np.ndarray):
    return jnp.moveaxis(jnp.asarray(x), -3, -1) if x.ndim > 3 else jnp.asarray(x)


def run(function, x: np.ndarray, *arrays: np.ndarray) -> np.ndarray:
    """Apply a function of maps with channels last, and perhaps other tensors, to maps with channels first."""
    return np.asarray(names.channels_first(function(channels_last(x), *map(jnp.asarray, arrays))))


def set_train(model, train: bool):
    """Return the model; its normalizations become those of a trainer, with unbiased running variances."""
    for _, module in names.modules_of(model):
        if type(module) is nnx.BatchNorm:
            module.__class__ = BatchNorm
    model.train() if train else model.eval()
    return model


def to_array(tensor) -> np.ndarray:
    return np.asarray(tensor)


def to_tensor(array: np.ndarray):
    if array.dtype == np.float64:
        jax.config.update("jax_enable_x64", True)
    return jnp.asarray(array)


def forward(trainer, batch: dict[str, np.ndarray], train: bool) -> list[np.ndarray]:
    device_batch, network = trainer.to_device(batch), trainer.network if train else trainer.eval_network
    masks = [local(device_batch[name]) for name in trainer.plan.dropout_masks] if train else []
    outputs = network.bind(trainer._tensors())(trainer.preprocess(local(device_batch[trainer.input_name])), *masks)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [np.asarray(names.channels_first(output)) for output in outputs]


def loss_of_logits(objective, logits: list[np.ndarray], label: np.ndarray, mode: Mode | None = None) -> tuple:
    mode = mode or FP32_MODES[0]
    jax.config.update("jax_enable_x64", mode.is_fp64)
    plan = Plan((), (), lambda name: ParamGroup(1.0, 0.0), mode)
    objective, batch = build_objective(objective, None, plan), {"label": jnp.asarray(label)}
    total, gradients = jax.value_and_grad(lambda tensors: objective.total(tensors, batch["label"]))(
        tuple(map(jnp.asarray, logits))
    )
    return float(total), float(objective.count(batch)), *map(np.asarray, gradients)


def gradient(function, x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    def weighted_sum(x):
        y = names.channels_first(function(channels_last(x)))
        return (y * weight).sum(), y

    (_, y), to_x = jax.value_and_grad(weighted_sum, has_aux=True)(jnp.asarray(x))
    return np.asarray(y), np.asarray(to_x)


def margin_loss(x, weight, labels, settings, mode) -> tuple[float, np.ndarray, np.ndarray]:
    jax.config.update("jax_enable_x64", mode.is_fp64)
    arch = SimpleNamespace(num_classes=len(weight), embedding=weight.shape[1])
    objective = Margin(settings, arch, SimpleNamespace(seed=1, mode=mode), WORLD)
    averages = {name: jnp.asarray(value) for name, value in settings.statistics.items()}

    def total(x, weight):
        return objective.total(x, jnp.asarray(labels), weight, None, averages)[0]

    loss, gradients = jax.value_and_grad(total, (0, 1))(jnp.asarray(x), jnp.asarray(weight))
    return float(loss), *map(np.asarray, gradients)


def target_logits(cosines: np.ndarray, settings, norms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    averages = tuple(nnx.Variable(jnp.asarray(value)) for value in settings.statistics.values())
    quality = settings.quality(ops, jnp.asarray(norms), averages)
    value, slope = settings.margin(ops, jnp.asarray(cosines), quality)
    return np.asarray(value), np.asarray(slope)


def choose_rows(classes, count, width, rate, seed, rank, size, step):
    shard = ParameterShard(count, width, SimpleNamespace(rank=rank, size=size))
    index = None if rate == 1 else shard.sample_rows(classes, rate, seed, rank, step)
    rows_of = jax.vmap(
        lambda _: shard.rows_of(jnp.asarray(classes), index if index is None else jnp.asarray(index), size),
        axis_name=AXIS,
    )
    return (shard.last - shard.first, width), np.asarray(rows_of(jnp.arange(size)))[rank], index
