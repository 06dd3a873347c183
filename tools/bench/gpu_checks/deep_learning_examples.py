"""The update of NVIDIA's DeepLearningExamples for ResNet-50, PyTorch/Classification/ConvNets: torchvision's network.

Its settings are those of configs.yml: in AMP NHWC and the static loss scale 128, in fp32 neither; label smoothing 0.1,
momentum 0.875, weight decay 1 / 32768 but not on normalizations.
"""

from collections.abc import Callable
from typing import Any

import torch

from zoo.bench.peers import upstream

NAME = "NVIDIA's settings"
LOSS_SCALE = 128.0


def update(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    """Return one update on the batch of the job. clones: unused, since the network is torchvision's."""
    is_mixed, device = job.plan.mode.is_mixed, job.trainer.device
    model = upstream.installed("torchvision.models").resnet50(num_classes=job.arch.num_classes).train()
    images = job.trainer.preprocess(batch["image"]).contiguous()
    if is_mixed:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    norms = [tensor for name, tensor in model.named_parameters() if "bn" in name]
    others = [tensor for name, tensor in model.named_parameters() if "bn" not in name]
    groups = [{"params": norms, "weight_decay": 0.0}, {"params": others, "weight_decay": 1 / 32768}]
    optimizer = torch.optim.SGD(groups, lr=1e-3, momentum=0.875)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    scaler = torch.amp.GradScaler(device.type, init_scale=LOSS_SCALE, growth_interval=1 << 30, enabled=is_mixed)
    labels = batch["label"]

    def step() -> None:
        loss = criterion(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    return step
