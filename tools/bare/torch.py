"""A bare training loop in PyTorch."""
import copy
from typing import Callable, Dict

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from zoo.tasks.segment import IGNORE
from zoo.trainer.job import Job


def mean_loss(output, labels: torch.Tensor, objective) -> torch.Tensor:
    if not isinstance(output, tuple):
        return F.cross_entropy(output, labels)
    weights = (1,) + (objective.settings.aux_weight,) * (len(output) - 1)
    return sum(weight * F.cross_entropy(logits, labels.long(), ignore_index=IGNORE)
               for weight, logits in zip(weights, output))


def loop(job: Job, placed: Dict) -> Callable[[], None]:
    """One update on a copy of the net."""
    trainer, plan = job.trainer, job.plan
    net = copy.deepcopy(trainer.net).train()
    forward = DistributedDataParallel(net) if job.group.size > 1 else net
    groups = [{"params": [parameter], "factor": plan.rule(name)[0], "weight_decay": plan.rule(name)[1]}
              for name, parameter in net.named_parameters() if parameter.requires_grad]
    merged: Dict = {}
    for group in groups:
        merged.setdefault((group["factor"], group["weight_decay"]), []).extend(group["params"])
    optimizer = torch.optim.SGD([{"params": params, "lr": 1e-3 * factor, "weight_decay": decay}
                                 for (factor, decay), params in merged.items()], momentum=plan.momentum, fused=True)
    field = plan.fields[0]
    mean, std = (torch.tensor(values, device=trainer.device) * 255 for values in (field.mean, field.std))
    scaler = torch.amp.GradScaler(trainer.device.type, enabled=plan.mode.compute == "fp16")
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(plan.mode.compute, torch.float32)

    def update() -> None:
        optimizer.zero_grad()
        for _ in range(plan.accumulate):
            images = ((placed[field.name].float() - mean) / std).movedim(-1, -3)
            with torch.autocast(trainer.device.type, dtype, enabled=plan.mode.compute != "fp32"):
                output = forward(images, *(placed[name] for name in plan.noise))
                loss = mean_loss(output, placed["label"], trainer.objective) / plan.accumulate
            scaler.scale(loss).backward()
        if plan.clip_norm is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), plan.clip_norm)
        scaler.step(optimizer)
        scaler.update()
        loss.item()
    return update
