"""A bare training loop in PaddlePaddle."""

from collections.abc import Callable

import paddle
import paddle.nn.functional as F

from data.errors import UserError
from zoo.run.job import Job
from zoo.tasks import face
from zoo.tasks.segment import IGNORE_INDEX


class Classifier(paddle.nn.Layer):
    """A face model under the usual head: every process holds all classes, and autograd finds the margin's gradient.

    Neither interclass nor threshold, which cost nothing to speak of.
    """

    def __init__(self, model: paddle.nn.Layer, arch, margin):
        super().__init__()
        self.model, self.margin = model, margin
        self.weight = self.create_parameter(
            [arch.num_classes, arch.embedding], default_initializer=paddle.nn.initializer.Normal(0, 0.01)
        )

    def forward(self, images: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        scale, m1, m2, m3 = self.margin.scale, self.margin.m1, self.margin.m2, self.margin.m3
        units = F.normalize(self.model(images).astype("float32"))
        with paddle.amp.auto_cast(False):
            cosines = paddle.clip(paddle.matmul(units, F.normalize(self.weight), transpose_y=True), -0.999, 0.999)
        own = F.one_hot(labels, cosines.shape[1]) > 0
        return scale * paddle.where(own, paddle.cos(m1 * paddle.acos(cosines) + m2) - m3, cosines)


def mean_loss(output, labels: paddle.Tensor, objective) -> paddle.Tensor:
    if not isinstance(output, (tuple, list)):
        return F.cross_entropy(output.astype("float32"), labels)
    weights = (1,) + (objective.settings.aux_weight,) * (len(output) - 1)
    labels = labels.astype("int64").unsqueeze(1)
    return sum(
        weight * F.cross_entropy(logits.astype("float32"), labels, ignore_index=IGNORE_INDEX, axis=1)
        for weight, logits in zip(weights, output)
    )


def loop(job: Job, device_batch: dict) -> Callable[[], None]:
    """One update of another model of the same shape."""
    plan, field = job.plan, job.plan.fields[0]
    if plan.accumulate > 1:
        raise UserError("the bare Paddle loop does not know train.accumulate")
    model, extra = type(job.trainer.model)(job.arch), [device_batch[name] for name in plan.dropout_masks]
    if job.task is face:
        model, extra = Classifier(model, job.arch, job.trainer.objective.settings), [device_batch["label"]]
    model.train()
    groups: dict = {}
    for name, parameter in model.named_parameters():
        canonical = face.HEAD_WEIGHT if name == "weight" else name.removeprefix("model.")
        parameter.stop_gradient = not plan.param_group(canonical)[0]
        groups.setdefault(plan.param_group(canonical), []).append(parameter)
    groups = {key: members for key, members in groups.items() if key[0]}
    clip = None if plan.clip_norm is None else paddle.nn.ClipGradByGlobalNorm(plan.clip_norm)
    optimizer = paddle.optimizer.Momentum(
        1e-3,
        plan.momentum,
        [
            {"params": members, "learning_rate": factor, "weight_decay": decay}
            for (factor, decay), members in groups.items()
        ],
        grad_clip=clip,
    )
    mean, std = (paddle.to_tensor(values) * 255 for values in (field.mean, field.std))
    axes = [0] + [axis for axis in range(1, len(field.shape) + 1)]
    axes = axes[:-3] + [axes[-1]] + axes[-3:-1]
    scaler = paddle.amp.GradScaler(enable=plan.mode.compute == "fp16")
    dtype = {"fp16": "float16", "bf16": "bfloat16"}.get(plan.mode.compute)
    forward = paddle.jit.to_static(model, full_graph=True) if plan.mode.compile else model
    if job.group.size > 1:
        forward = paddle.DataParallel(forward)

    def update() -> None:
        images = paddle.transpose((device_batch[field.name].astype("float32") - mean) / std, axes)
        with paddle.amp.auto_cast(dtype is not None, level=plan.mode.level or "O1", dtype=dtype or "float16"):
            output = forward(images, *extra)
        loss = mean_loss(output, device_batch["label"], job.trainer.objective)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        float(loss)

    return update
