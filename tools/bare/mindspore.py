"""A bare training loop in MindSpore, compiled as one graph."""
from typing import Callable, Dict

import numpy as np
from mindspore import ParameterTuple, Tensor, amp, nn, ops
from mindspore import dtype as mstype

from data.errors import UserError
from zoo.tasks.segment import IGNORE
from zoo.trainer.job import Job


class Update(nn.Cell):
    """(pixels, label, noise...) -> loss, with the net updated."""

    def __init__(self, job: Job, net: nn.Cell):
        super().__init__()
        plan, field = job.plan, job.plan.fields[0]
        self.net, self.clip_norm = net, plan.clip_norm
        self.aux_weight = getattr(job.trainer.objective, "aux_weight", None)
        self.mean = Tensor(np.array(field.mean, np.float32) * 255)
        self.std = Tensor(np.array(field.std, np.float32) * 255)
        last = len(field.shape)
        self.axes = tuple(range(last - 2)) + (last, last - 2, last - 1)
        groups: Dict = {}
        for name, parameter in net.parameters_and_names():
            parameter.name = name
        for canonical, parameter in zip(job.trainer.trained, net.trainable_params()):
            groups.setdefault(plan.rule(canonical), []).append(parameter)
        weights = net.trainable_params()
        # Its own list of groups orders by group; gradients come in the order of the net.
        self.optimizer = nn.Momentum(
            [{"params": members, "lr": 1e-3 * factor, "weight_decay": decay}
             for (factor, decay), members in groups.items()] + [{"order_params": weights}],
            1e-3, plan.momentum)
        self.derive = ops.value_and_grad(self.loss, None, ParameterTuple(weights), has_aux=True)
        # Fused by size; averages by itself.
        self.reducer = nn.DistributedGradReducer(weights, True, job.group.size) if job.group.size > 1 else None
        self.scaler = amp.DynamicLossScaler(2.0 ** 16, 2, 2000) if plan.mode.compute == "fp16" else None

    def loss(self, pixels, label, noise):
        images = ops.transpose((pixels.astype(mstype.float32) - self.mean) / self.std, self.axes)
        loss = self.mean_loss(self.net(images, *noise), label)
        return (loss if self.scaler is None else self.scaler.scale(loss)), loss

    def mean_loss(self, output, label):
        if not isinstance(output, tuple):
            return ops.cross_entropy(output.astype(mstype.float32), label)
        loss, label = 0.0, label.astype(mstype.int32)
        for number, logits in enumerate(output):
            weight = 1.0 if number == 0 else self.aux_weight
            loss = loss + weight * ops.cross_entropy(logits.astype(mstype.float32), label, ignore_index=IGNORE)
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


def loop(job: Job, placed: Dict) -> Callable[[], None]:
    """One update of another net of the same shape."""
    plan = job.plan
    if plan.accumulate > 1 or plan.mode.compute == "bf16":
        raise UserError("the bare MindSpore loop knows neither train.accumulate nor bf16")
    net = type(job.trainer.net)(job.arch).set_train(True)
    if plan.mode.compute == "fp16":
        net = amp.auto_mixed_precision(net, {"O1": "auto"}.get(plan.mode.level, plan.mode.level), mstype.float16)
    cell = Update(job, net)
    fields = [placed[name] for name in (plan.fields[0].name, "label") + plan.noise]

    def update() -> None:
        cell(*fields).asnumpy()
    return update
