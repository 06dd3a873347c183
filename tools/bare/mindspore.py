"""A bare training loop in MindSpore, compiled as one graph."""

from collections.abc import Callable

import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, amp, nn, ops
from mindspore import dtype as mstype

from data.errors import UserError
from zoo.run.job import Job
from zoo.tasks import face
from zoo.tasks.segment import IGNORE_INDEX
from zoo.trainer.mindspore.names import is_statistic, named_tensors


class Classifier(nn.Cell):
    """A face model under the usual head: every process holds all classes, and autograd finds the margin's gradient.

    Neither interclass nor threshold, which cost nothing to speak of.
    """

    def __init__(self, model: nn.Cell, arch, margin):
        super().__init__()
        self.model, self.classes = model, arch.num_classes
        self.scale, self.m1, self.m2, self.m3 = margin.scale, margin.m1, margin.m2, margin.m3
        shape = (arch.num_classes, arch.embedding)
        self.weight = Parameter(np.random.default_rng(0).normal(0, 0.01, shape).astype(np.float32), face.HEAD_WEIGHT)

    def construct(self, images, labels):
        units = ops.L2Normalize(1)(self.model(images).astype(mstype.float32))
        cosines = ops.clamp(ops.matmul(units, ops.L2Normalize(1)(self.weight).T), -0.999, 0.999)
        own = ops.one_hot(labels, self.classes) > 0
        return self.scale * ops.select(own, ops.cos(self.m1 * ops.acos(cosines) + self.m2) - self.m3, cosines)


class Update(nn.Cell):
    """(pixels, label, noise...) -> loss, with the model updated."""

    def __init__(self, job: Job, model: nn.Cell, named: dict[str, Parameter]):
        super().__init__()
        plan, field = job.plan, job.plan.fields[0]
        self.model, self.clip_norm, self.by_label = model, plan.clip_norm, job.task is face
        self.aux_weight = getattr(job.trainer.objective, "aux_weight", None)
        self.mean = Tensor(np.array(field.mean, np.float32) * 255)
        self.std = Tensor(np.array(field.std, np.float32) * 255)
        last = len(field.shape)
        self.axes = tuple(range(last - 2)) + (last, last - 2, last - 1)
        groups: dict = {}
        for name, parameter in named.items():
            parameter.name = name
            parameter.requires_grad = not is_statistic(name) and plan.param_group(name)[0] != 0
            if parameter.requires_grad:
                groups.setdefault(plan.param_group(name), []).append(parameter)
        weights = model.trainable_params()
        # Its own list of groups orders by group; gradients come in the order of the model.
        self.optimizer = nn.Momentum(
            [
                {"params": members, "lr": 1e-3 * factor, "weight_decay": decay}
                for (factor, decay), members in groups.items()
            ]
            + [{"order_params": weights}],
            1e-3,
            plan.momentum,
        )
        self.derive = ops.value_and_grad(self.loss, None, ParameterTuple(weights), has_aux=True)
        # Fused by size; averages by itself.
        self.reducer = nn.DistributedGradReducer(weights, True, job.group.size) if job.group.size > 1 else None
        self.scaler = amp.DynamicLossScaler(2.0**16, 2, 2000) if plan.mode.compute == "fp16" else None

    def loss(self, pixels, label, noise):
        images = ops.transpose((pixels.astype(mstype.float32) - self.mean) / self.std, self.axes)
        loss = self.mean_loss(self.model(images, label) if self.by_label else self.model(images, *noise), label)
        return (loss if self.scaler is None else self.scaler.scale(loss)), loss

    def mean_loss(self, output, label):
        if not isinstance(output, tuple):
            return ops.cross_entropy(output.astype(mstype.float32), label)
        loss, label = 0.0, label.astype(mstype.int32)
        for number, logits in enumerate(output):
            weight = 1.0 if number == 0 else self.aux_weight
            loss = loss + weight * ops.cross_entropy(logits.astype(mstype.float32), label, ignore_index=IGNORE_INDEX)
        return loss

    def construct(self, pixels, label, *noise):
        (_, loss), gradient = self.derive(pixels, label, noise)
        finite = True
        if self.reducer is not None:
            gradient = self.reducer(gradient)
        if self.scaler is not None:
            gradient = self.scaler.unscale(gradient)
            finite = amp.all_finite(gradient)
            self.scaler.adjust(finite)
        if self.clip_norm is not None:
            gradient = ops.clip_by_global_norm(gradient, self.clip_norm)
        if finite:
            self.optimizer(gradient)
        return loss


def loop(job: Job, device_batch: dict) -> Callable[[], None]:
    """One update of another model of the same shape."""
    plan = job.plan
    if plan.accumulate > 1 or plan.mode.compute == "bf16":
        raise UserError("the bare MindSpore loop knows neither train.accumulate nor bf16")
    model = type(job.trainer.model)(job.arch).set_train(True)
    named = named_tensors(model)
    if plan.mode.compute == "fp16":
        model = amp.auto_mixed_precision(model, {"O1": "auto"}.get(plan.mode.level, plan.mode.level), mstype.float16)
    if job.task is face:
        model = Classifier(model, job.arch, job.trainer.objective.settings).set_train(True)
        named[face.HEAD_WEIGHT] = model.weight
    cell = Update(job, model, named)
    fields = [device_batch[name] for name in (plan.fields[0].name, "label") + plan.dropout_masks]

    def update() -> None:
        cell(*fields).asnumpy()

    return update
