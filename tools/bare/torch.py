"""A bare training loop in PyTorch."""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from zoo.run.job import Job
from zoo.tasks import face
from zoo.tasks.segment import IGNORE_INDEX


class Classifier(torch.nn.Module):
    """A face model under the usual head: every process holds all classes, and autograd finds the margin's gradient.

    Neither interclass nor threshold, which cost nothing to speak of.
    """

    def __init__(self, model: torch.nn.Module, arch, margin):
        super().__init__()
        self.model, self.margin = model, margin
        self.weight = torch.nn.Parameter(0.01 * torch.randn(arch.num_classes, arch.embedding))

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scale, m1, m2, m3 = self.margin.scale, self.margin.m1, self.margin.m2, self.margin.m3
        units = F.normalize(self.model(images).float())
        with torch.autocast(images.device.type, enabled=False):
            cosines = F.linear(units, F.normalize(self.weight)).clamp(-0.999, 0.999)
        own = cosines.gather(1, labels[:, None])
        return scale * cosines.scatter(1, labels[:, None], torch.cos(m1 * torch.acos(own) + m2) - m3)


def mean_loss(output, labels: torch.Tensor, objective) -> torch.Tensor:
    if not isinstance(output, tuple):
        return F.cross_entropy(output, labels)
    weights = (1,) + (objective.settings.aux_weight,) * (len(output) - 1)
    return sum(
        weight * F.cross_entropy(logits, labels.long(), ignore_index=IGNORE_INDEX) for weight, logits in zip(weights, output)
    )


def loop(job: Job, device_batch: dict) -> Callable[[], None]:
    """One update on a copy of the model."""
    trainer, plan = job.trainer, job.plan
    model, extra = copy.deepcopy(trainer.model).train(), [device_batch[name] for name in plan.dropout_masks]
    if job.task is face:
        model, extra = Classifier(model, job.arch, trainer.objective.settings).to(trainer.device), [device_batch["label"]]
    forward = DistributedDataParallel(model) if job.group.size > 1 else model
    groups: dict = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            canonical = face.HEAD_WEIGHT if name == "weight" else name.removeprefix("model.")
            groups.setdefault(plan.param_group(canonical), []).append(parameter)
    optimizer = torch.optim.SGD(
        [{"params": params, "lr": 1e-3 * factor, "weight_decay": decay} for (factor, decay), params in groups.items()],
        momentum=plan.momentum,
        fused=True,
    )
    field = plan.fields[0]
    mean, std = (torch.tensor(values, device=trainer.device) * 255 for values in (field.mean, field.std))
    scaler = torch.amp.GradScaler(trainer.device.type, enabled=plan.mode.compute == "fp16")
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(plan.mode.compute, torch.float32)

    def update() -> None:
        optimizer.zero_grad()
        for _ in range(plan.accumulate):
            images = ((device_batch[field.name].float() - mean) / std).movedim(-1, -3)
            with torch.autocast(trainer.device.type, dtype, enabled=plan.mode.compute != "fp32"):
                output = forward(images, *extra)
                loss = mean_loss(output, device_batch["label"], trainer.objective) / plan.accumulate
            scaler.scale(loss).backward()
        if plan.clip_norm is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), plan.clip_norm)
        scaler.step(optimizer)
        scaler.update()
        loss.item()

    return update
