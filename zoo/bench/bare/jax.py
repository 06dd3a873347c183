"""Minimal training loop in JAX: flax.nnx and optax, compiled as one function that takes over its state's memory."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from flax.training.dynamic_scale import DynamicScale
from jax import Array, lax

from zoo.bench.bare import LR, MAX_COSINE
from zoo.data.errors import UserError
from zoo.models import load_model_class
from zoo.run.job import Job
from zoo.tasks import face
from zoo.tasks.segment import IGNORE_INDEX
from zoo.trainer.jax.model import Path, canonical_name, mixed_dtype, modules_of
from zoo.trainer.jax.parallel import BATCH, REPLICATED, to_global
from zoo.trainer.protocol import DeviceBatch

OPTIMIZERS = ("sgd", "sgd_nesterov", "adamw")


class MarginClassifier(nnx.Module):
    """Face model with a class matrix that is not sharded, and a margin whose gradient autograd computes.

    It lacks the options interclass and threshold, whose cost is negligible.
    """

    def __init__(self, model: nnx.Module, arch: Any, margin: Any):
        self.model, self.margin = model, margin
        self.weight = nnx.Param(0.01 * jax.random.normal(jax.random.key(0), (arch.num_classes, arch.embedding)))

    def __call__(self, images: Array, labels: Array) -> Array:
        loss, model = self.margin, self.model
        embeddings, weight = map(normalized, (model(images).astype(jnp.float32), self.weight[...]))  # type: ignore[operator]
        cosines = jnp.clip(embeddings @ weight.T, -MAX_COSINE, MAX_COSINE)
        is_target = jax.nn.one_hot(labels, len(weight)) > 0
        return loss.scale * jnp.where(is_target, jnp.cos(loss.m1 * jnp.acos(cosines) + loss.m2) - loss.m3, cosines)


def normalized(x: Array) -> Array:
    return x / jnp.linalg.norm(x, axis=1, keepdims=True)


def mean_loss(output: Any, labels: Array, objective: Any) -> Array:
    """Return the mean cross-entropy; for several logits, the weighted sum of theirs."""
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    if not isinstance(output, tuple):
        return cross_entropy(output.astype(jnp.float32), labels).mean()
    valid = labels != IGNORE_INDEX
    labels = jnp.where(valid, labels, 0).astype(jnp.int32)
    losses = [cross_entropy(logits.astype(jnp.float32), labels).mean(where=valid) for logits in output]
    return losses[0] + objective.settings.aux_weight * sum(losses[1:])


def loop(job: Job, device_batch: DeviceBatch) -> Callable[[], None]:
    """Return an update of another model of the same architecture."""
    trainer: Any = job.trainer
    plan, field, axes = job.plan, job.plan.fields[0], trainer.mesh.axis_names if trainer.mesh.size > 1 else None
    if plan.accumulate > 1:
        raise UserError("train.accumulate: the bare JAX loop cannot accumulate; give -o train.accumulate=1")
    model: Any = load_model_class(job.model, job.framework)(job.arch)
    for _, module in modules_of(model):
        if isinstance(module, nnx.Conv | nnx.Linear):
            module.dtype = mixed_dtype(plan.mode)
    names = [field.name, *plan.dropout_masks, "label"]
    if job.task is face:
        model, names = MarginClassifier(model, job.arch, trainer.objective.settings), [field.name, "label", "label"]
    model.train()

    def is_trained(path: Path, variable: Any) -> bool:
        return isinstance(variable, nnx.Param) and not plan.is_frozen(parameter_name(path))

    def split(model: nnx.Module) -> Any:
        return nnx.split(model, is_trained, ...)

    structure, weights, others = split(model)
    optimizer = build_optimizer(job, weights)
    mean, std = np.array(field.mean, np.float32) * 255, np.array(field.std, np.float32) * 255

    def loss_of(weights: Any, others: Any, arrays: list[Array]) -> tuple[Array, Any]:
        pixels, *inputs, labels = arrays
        model = nnx.merge(structure, weights, others, copy=True)
        loss = mean_loss(model((pixels.astype(jnp.float32) - mean) / std, *inputs), labels, trainer.objective)
        return loss, split(model)[2]

    def step(state: tuple[Any, ...], arrays: list[Array]) -> tuple[tuple[Any, ...], Array]:
        weights, others, slots, scaler = state
        if scaler is None:
            (loss, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights, others, arrays)
            gradients = lax.pmean(gradients, axes) if axes else gradients
        else:
            value_and_grad = scaler.value_and_grad(loss_of, has_aux=True, axis_name=axes)
            scaler, finite, (loss, others), gradients = value_and_grad(weights, others, arrays)
        changes, moved = optimizer.update(gradients, slots, weights)
        updated = optax.apply_updates(weights, changes), moved
        if scaler is not None:
            updated = jax.tree.map(partial(jnp.where, finite), updated, (weights, slots))
        return (updated[0], others, updated[1], scaler), loss

    if axes:
        step = jax.shard_map(
            step, mesh=trainer.mesh, in_specs=(REPLICATED, BATCH), out_specs=(REPLICATED, REPLICATED), check_vma=False
        )
    compiled, arrays = jax.jit(step, donate_argnums=0), [device_batch[name] for name in names]
    scaler = DynamicScale() if plan.mode.compute == "fp16" else None
    first = jax.tree.map(np.asarray, (weights, others, optimizer.init(weights), scaler))
    state = to_global(trainer.mesh, REPLICATED, first)

    def update() -> None:
        nonlocal state
        state, loss = compiled(state, arrays)
        float(loss)

    return update


def parameter_name(path: Path) -> str:
    """Return the canonical name of a parameter, given its path in a model or a MarginClassifier."""
    return face.HEAD_WEIGHT if path == ("weight",) else canonical_name(path).removeprefix("model.")


def build_optimizer(job: Job, weights: Any) -> optax.GradientTransformation:
    groups: dict[str, tuple[float, float]] = {}

    def label(path: Any, _: Any) -> str:
        group = job.plan.param_group(parameter_name(tuple(key.key for key in path[:-1])))
        groups[str(group)] = group
        return str(group)

    labels = jax.tree_util.tree_map_with_path(label, weights)
    spec: Any = job.plan.optimizer

    def transform(lr_scale: float, decay: float) -> optax.GradientTransformation:
        if spec.name == "adamw":
            return optax.adamw(LR * lr_scale, spec.beta1, spec.beta2, spec.eps, weight_decay=decay)
        sgd = optax.sgd(LR * lr_scale, spec.momentum, spec.name == "sgd_nesterov")
        return optax.chain(optax.add_decayed_weights(decay), sgd)

    optimizer = optax.partition({name: transform(*group) for name, group in groups.items()}, labels)
    if job.plan.clip_norm is None:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(job.plan.clip_norm), optimizer)
