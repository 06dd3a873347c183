"""Minimal training loop in PyTorch."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from zoo.bench.bare import LR, MAX_COSINE
from zoo.run.job import Job
from zoo.tasks import face
from zoo.tasks.segment import IGNORE_INDEX
from zoo.trainer.protocol import DeviceBatch

OPTIMIZERS = ("sgd", "sgd_nesterov", "adamw")


class MarginClassifier(torch.nn.Module):
    """Face model with a class matrix that is not sharded, and a margin whose gradient autograd computes.

    It lacks the options interclass and threshold, whose cost is negligible.
    """

    def __init__(self, model: torch.nn.Module, arch: Any, margin: Any):
        super().__init__()
        self.model, self.margin = model, margin
        self.weight = torch.nn.Parameter(0.01 * torch.randn(arch.num_classes, arch.embedding))

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scale, loss = self.margin.scale, self.margin
        embeddings = F.normalize(self.model(images).float())
        with torch.autocast(images.device.type, enabled=False):
            cosines = F.linear(embeddings, F.normalize(self.weight)).clamp(-MAX_COSINE, MAX_COSINE)
        targets = cosines.gather(1, labels[:, None])
        return scale * cosines.scatter(1, labels[:, None], torch.cos(loss.m1 * torch.acos(targets) + loss.m2) - loss.m3)


def mean_loss(output: Any, labels: torch.Tensor, objective: Any) -> torch.Tensor:
    """Return the mean cross-entropy; for several logits, the weighted sum of theirs."""
    if not isinstance(output, tuple):
        return F.cross_entropy(output, labels)
    loss = F.cross_entropy(output[0], labels.long(), ignore_index=IGNORE_INDEX)
    for logits in output[1:]:
        aux_loss = F.cross_entropy(logits, labels.long(), ignore_index=IGNORE_INDEX)
        loss = loss + objective.settings.aux_weight * aux_loss
    return loss


def loop(job: Job, device_batch: DeviceBatch) -> Callable[[], None]:
    """Return an update of a copy of the model."""
    trainer: Any = job.trainer
    plan, device = job.plan, trainer.device
    model = copy.deepcopy(trainer.model).train()
    inputs = [device_batch[name] for name in plan.dropout_masks]
    if job.task is face:
        model = MarginClassifier(model, job.arch, trainer.objective.settings).to(device)
        inputs = [device_batch["label"]]
    forward = DistributedDataParallel(model) if job.group.size > 1 else model
    optimizer = _build_optimizer(job, model)
    field = plan.fields[0]
    mean, std = (torch.tensor(values, device=device) * 255 for values in (field.mean, field.std))
    scaler = torch.amp.GradScaler(device.type, enabled=plan.mode.compute == "fp16")
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(plan.mode.compute, torch.float32)

    def update() -> None:
        optimizer.zero_grad()
        for _ in range(plan.accumulate):
            images = ((device_batch[field.name].float() - mean) / std).movedim(-1, -3)
            if not plan.mode.channels_last:
                images = images.contiguous()
            with torch.autocast(device.type, dtype, enabled=plan.mode.compute != "fp32"):
                output = forward(images, *inputs)
                loss = mean_loss(output, device_batch["label"], trainer.objective) / plan.accumulate
            scaler.scale(loss).backward()
        if plan.clip_norm is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), plan.clip_norm)
        scaler.step(optimizer)
        scaler.update()
        loss.item()

    return update


def _build_optimizer(job: Job, model: torch.nn.Module) -> torch.optim.Optimizer:
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            canonical_name = face.HEAD_WEIGHT if name == "weight" else name.removeprefix("model.")
            groups.setdefault(job.plan.param_group(canonical_name), []).append(parameter)
    param_groups = [
        {"params": parameters, "lr": LR * lr_scale, "weight_decay": weight_decay}
        for (lr_scale, weight_decay), parameters in groups.items()
    ]
    spec: Any = job.plan.optimizer
    if spec.name == "adamw":
        return torch.optim.AdamW(param_groups, betas=(spec.beta1, spec.beta2), eps=spec.eps, fused=True)
    return torch.optim.SGD(param_groups, momentum=spec.momentum, nesterov=spec.name == "sgd_nesterov", fused=True)
