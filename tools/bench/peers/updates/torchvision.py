"""The loop of torchvision's references/classification: resnet50 and the statements of train_one_epoch."""

from collections.abc import Callable
from typing import Any

import torch

from zoo.bench.peers import upstream

NAME = "torchvision"


def update(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    model = upstream.installed("torchvision.models").resnet50(num_classes=job.arch.num_classes).train()
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
    images, labels = job.trainer.preprocess(batch["image"]).contiguous(), batch["label"]

    def step() -> None:
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    return step
