"""Minimal training loop in MindSpore, compiled as one graph."""

from collections.abc import Callable
from typing import Any

import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, amp, nn, ops
from mindspore import dtype as mstype

from zoo.bench.bare import LR, MAX_COSINE
from zoo.data.errors import UserError
from zoo.run.job import Job
from zoo.tasks import face, segment
from zoo.tasks.segment import IGNORE_INDEX
from zoo.trainer.mindspore.model import is_statistic, named_tensors
from zoo.trainer.pixels import channels_first
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import DeviceBatch

OPTIMIZERS = ("sgd",)  # nn.AdamWeightDecay has no bias correction, nn.Momentum ignores Nesterov on a CPU


class MarginClassifier(nn.Cell):
    """Face model with a class matrix that is not sharded, and a margin whose gradient autograd computes.

    It lacks the options interclass and threshold, whose cost is negligible.
    """

    def __init__(self, model: nn.Cell, arch: Any, margin: Any):
        super().__init__()
        self.model, self.num_classes = model, arch.num_classes
        self.scale = margin.scale
        self.m1, self.m2, self.m3 = margin.m1, margin.m2, margin.m3
        shape = (arch.num_classes, arch.embedding)
        self.weight = Parameter(np.random.default_rng(0).normal(0, 0.01, shape).astype(np.float32), face.HEAD_WEIGHT)

    def construct(self, images, labels):
        embeddings = ops.L2Normalize(1)(self.model(images).astype(mstype.float32))
        cosines = ops.matmul(embeddings, ops.L2Normalize(1)(self.weight).T)
        cosines = ops.clamp(cosines, -MAX_COSINE, MAX_COSINE)
        is_target = ops.one_hot(labels, self.num_classes) > 0
        return self.scale * ops.select(is_target, ops.cos(self.m1 * ops.acos(cosines) + self.m2) - self.m3, cosines)


class Update(nn.Cell):
    """(pixels, label, dropout masks...) -> loss; updates the model."""

    def __init__(self, job: Job, model: nn.Cell, tensors: dict[str, Parameter]):
        super().__init__()
        trainer: Any = job.trainer
        plan, field = job.plan, job.plan.fields[0]
        self.model, self.clip_norm, self.takes_label = model, plan.clip_norm, job.task is face
        self.aux_weight = trainer.objective.settings.aux_weight if job.task is segment else None
        self.mean = Tensor(np.array(field.mean, np.float32) * 255)
        self.std = Tensor(np.array(field.std, np.float32) * 255)
        self.axes = channels_first(1 + len(field.shape))
        self.optimizer = _build_optimizer(plan, model, tensors)
        weights = model.trainable_params()
        self.value_and_grad = ops.value_and_grad(self.loss, None, ParameterTuple(weights), has_aux=True)
        # Fuses gradients by size, and averages them.
        self.reducer = nn.DistributedGradReducer(weights, True, job.group.size) if job.group.size > 1 else None
        self.scaler = amp.DynamicLossScaler(2.0**16, 2, 2000) if plan.mode.compute == "fp16" else None

    def loss(self, pixels, label, dropout_masks):
        images = ops.transpose((pixels.astype(mstype.float32) - self.mean) / self.std, self.axes)
        output = self.model(images, label) if self.takes_label else self.model(images, *dropout_masks)
        loss = self.mean_loss(output, label)
        return (loss if self.scaler is None else self.scaler.scale(loss)), loss

    def mean_loss(self, output, label):
        if not isinstance(output, tuple):
            return ops.cross_entropy(output.astype(mstype.float32), label)
        loss, label = 0.0, label.astype(mstype.int32)
        for i, logits in enumerate(output):
            weight = 1.0 if i == 0 else self.aux_weight
            loss = loss + weight * ops.cross_entropy(logits.astype(mstype.float32), label, ignore_index=IGNORE_INDEX)
        return loss

    def construct(self, pixels, label, *dropout_masks):
        (_, loss), gradients = self.value_and_grad(pixels, label, dropout_masks)
        finite = True
        if self.reducer is not None:
            gradients = self.reducer(gradients)
        if self.scaler is not None:
            gradients = self.scaler.unscale(gradients)
            finite = amp.all_finite(gradients)
            self.scaler.adjust(finite)
        if self.clip_norm is not None:
            gradients = ops.clip_by_global_norm(gradients, self.clip_norm)
        if finite:
            self.optimizer(gradients)
        return loss


def _build_optimizer(plan: Plan, model: nn.Cell, tensors: dict[str, Parameter]) -> nn.Optimizer:
    groups: dict[tuple[float, float], list[Parameter]] = {}
    for name, parameter in tensors.items():
        parameter.name = name
        parameter.requires_grad = not (is_statistic(name) or plan.is_frozen(name))
        if parameter.requires_grad:
            groups.setdefault(plan.param_group(name), []).append(parameter)
    param_groups: list[dict[str, Any]] = [
        {"params": parameters, "lr": LR * lr_scale, "weight_decay": weight_decay}
        for (lr_scale, weight_decay), parameters in groups.items()
    ]
    # Without it the optimizer would order parameters by group; the gradients are in the model's order.
    param_groups.append({"order_params": model.trainable_params()})
    return nn.Momentum(param_groups, LR, plan.optimizer.momentum)


def loop(job: Job, device_batch: DeviceBatch) -> Callable[[], None]:
    """Return an update of another model of the same architecture."""
    trainer: Any = job.trainer
    plan = job.plan
    if plan.accumulate > 1 or plan.mode.compute == "bf16":
        raise UserError(
            "train.accumulate, train.precision: the bare MindSpore loop has neither accumulation nor bf16; "
            "give -o train.accumulate=1 and another precision"
        )
    model = type(trainer.model)(job.arch).set_train(True)
    tensors = named_tensors(model)
    if plan.mode.compute == "fp16":
        level = "auto" if plan.mode.level == "O1" else plan.mode.level
        model = amp.auto_mixed_precision(model, level, mstype.float16)
    if job.task is face:
        model = MarginClassifier(model, job.arch, trainer.objective.settings).set_train(True)
        tensors[face.HEAD_WEIGHT] = model.weight
    cell = Update(job, model, tensors)
    fields = [device_batch[name] for name in (plan.fields[0].name, "label", *plan.dropout_masks)]

    def update() -> None:
        cell(*fields).asnumpy()

    return update
