"""The loop of mit-han-lab's temporal-shift-module: model, policies of the optimizer and `train` of main.py.

DataParallel, the copies to a GPU and the accuracy, whose code today's PyTorch refuses, are left out.
"""

import os
from collections.abc import Callable
from typing import Any

import torch

from zoo.bench.peers import upstream

NAME = "mit-han-lab"


def update(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    folder, arch = os.path.join(clones, "temporal-shift-module"), job.arch
    upstream.installed("torchvision")
    model = upstream.load(folder, "ops.models").TSN(
        arch.num_classes,
        arch.segments,
        "RGB",
        base_model=f"resnet{arch.depth}",
        consensus_type="avg",
        dropout=arch.dropout,
        partial_bn=False,
        pretrain="",
        is_shift=True,
        shift_div=arch.shift_div,
        shift_place=arch.shift_place,
        print_spec=False,
    )
    policies = model.get_optim_policies()
    optimizer = torch.optim.SGD(policies, 1e-3, momentum=job.plan.optimizer.momentum, weight_decay=1e-4)
    criterion = torch.nn.CrossEntropyLoss()
    clips = job.trainer.preprocess(batch["video"]).contiguous()  # (N, T, 3, H, W), as its loader returns them
    clips, labels = clips.flatten(1, 2), batch["label"]
    model.train()

    def step() -> None:
        loss = criterion(model(clips), labels)
        loss.item()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), job.plan.clip_norm)
        optimizer.step()
        optimizer.zero_grad()

    return step
