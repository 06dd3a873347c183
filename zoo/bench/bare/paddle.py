"""Minimal training loop in PaddlePaddle."""

from collections.abc import Callable
from typing import Any

import paddle
import paddle.nn.functional as F

from zoo.bench.bare import LR, MAX_COSINE
from zoo.data.errors import UserError
from zoo.run.job import Job
from zoo.tasks import face
from zoo.tasks.segment import IGNORE_INDEX
from zoo.trainer.pixels import channels_first
from zoo.trainer.protocol import DeviceBatch

OPTIMIZERS = ("sgd", "sgd_nesterov", "adamw")


class MarginClassifier(paddle.nn.Layer):
    """Face model with a class matrix that is not sharded, and a margin whose gradient autograd computes.

    It lacks the options interclass and threshold, whose cost is negligible.
    """

    def __init__(self, model: paddle.nn.Layer, arch: Any, margin: Any):
        super().__init__()
        self.model, self.margin = model, margin
        self.weight = self.create_parameter(
            [arch.num_classes, arch.embedding], default_initializer=paddle.nn.initializer.Normal(0, 0.01)
        )

    def forward(self, images: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        scale, loss = self.margin.scale, self.margin
        embeddings = F.normalize(self.model(images).astype("float32"))
        with paddle.amp.auto_cast(False):
            cosines = paddle.matmul(embeddings, F.normalize(self.weight), transpose_y=True)
            cosines = paddle.clip(cosines, -MAX_COSINE, MAX_COSINE)
        is_target = F.one_hot(labels, cosines.shape[1]) > 0
        return scale * paddle.where(is_target, paddle.cos(loss.m1 * paddle.acos(cosines) + loss.m2) - loss.m3, cosines)


def mean_loss(output: Any, labels: paddle.Tensor, objective: Any) -> paddle.Tensor:
    """Return the mean cross-entropy; for several logits, the weighted sum of theirs."""
    if not isinstance(output, (tuple, list)):
        return F.cross_entropy(output.astype("float32"), labels)
    labels = labels.astype("int64").unsqueeze(1)
    losses = [F.cross_entropy(logits.astype("float32"), labels, ignore_index=IGNORE_INDEX, axis=1) for logits in output]
    return losses[0] + objective.settings.aux_weight * sum(losses[1:])


def loop(job: Job, device_batch: DeviceBatch) -> Callable[[], None]:
    """Return an update of another model of the same architecture."""
    trainer: Any = job.trainer
    plan, field = job.plan, job.plan.fields[0]
    if plan.accumulate > 1:
        raise UserError("train.accumulate: the bare Paddle loop cannot accumulate; give -o train.accumulate=1")
    model = type(trainer.model)(job.arch)
    inputs = [device_batch[name] for name in plan.dropout_masks]
    if job.task is face:
        model, inputs = MarginClassifier(model, job.arch, trainer.objective.settings), [device_batch["label"]]
    model.train()
    optimizer = _build_optimizer(job, model)
    constants: Any = (field.mean, field.std)
    mean, std = (paddle.to_tensor(values) * 255 for values in constants)
    axes = channels_first(1 + len(field.shape))
    scaler = paddle.amp.GradScaler(enable=plan.mode.compute == "fp16")
    is_autocast = plan.mode.compute != "fp32"
    level: Any = plan.mode.level or "O1"
    dtype: Any = "bfloat16" if plan.mode.compute == "bf16" else "float16"
    forward = paddle.jit.to_static(model, full_graph=True) if plan.mode.compile else model
    if job.group.size > 1:
        forward = paddle.DataParallel(forward)

    def update() -> None:
        images = paddle.transpose((device_batch[field.name].astype("float32") - mean) / std, axes)
        with paddle.amp.auto_cast(is_autocast, level=level, dtype=dtype):
            output = forward(images, *inputs)
        loss = mean_loss(output, device_batch["label"], trainer.objective)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        float(loss)

    return update


def _build_optimizer(job: Job, model: paddle.nn.Layer) -> paddle.optimizer.Optimizer:
    plan = job.plan
    groups: dict[tuple[float, float], list] = {}
    for name, parameter in model.named_parameters():
        canonical_name = face.HEAD_WEIGHT if name == "weight" else name.removeprefix("model.")
        parameter.stop_gradient = plan.is_frozen(canonical_name)
        if not parameter.stop_gradient:
            groups.setdefault(plan.param_group(canonical_name), []).append(parameter)
    param_groups: Any = [
        {"params": parameters, "learning_rate": lr_scale, "weight_decay": weight_decay}
        for (lr_scale, weight_decay), parameters in groups.items()
    ]
    clip = None if plan.clip_norm is None else paddle.nn.ClipGradByGlobalNorm(plan.clip_norm)
    spec: Any = plan.optimizer
    if spec.name == "adamw":
        return paddle.optimizer.AdamW(LR, spec.beta1, spec.beta2, spec.eps, param_groups, grad_clip=clip)
    return paddle.optimizer.Momentum(LR, spec.momentum, param_groups, spec.name == "sgd_nesterov", grad_clip=clip)
