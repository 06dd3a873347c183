"""The loop of insightface's recognition/arcface_torch: backbone, PartialFC_V2 and the statements of train_v2.py.

DistributedDataParallel is left out: with one process it only costs time. PartialFC_V2 needs a process group, and calls
`cuda()`, which does nothing here where PyTorch has no GPU.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from zoo.bench.peers import upstream

NAME = "insightface"


def update(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    folder, arch = os.path.join(clones, "insightface/recognition/arcface_torch"), job.arch
    if not torch.cuda.is_available():
        torch.Tensor.cuda = lambda self, *args, **kwargs: self  # type: ignore[method-assign]
    if not distributed.is_initialized():
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    margin, is_half = job.trainer.objective.settings, job.plan.mode.compute == "fp16"
    backbone = upstream.load(folder, "backbones").get_model(
        f"r{arch.depth}", dropout=0.0, fp16=is_half, num_features=arch.embedding
    )
    loss_type = upstream.load(folder, "losses").CombinedMarginLoss
    module_partial_fc = upstream.load(folder, "partial_fc_v2").PartialFC_V2(
        loss_type(margin.scale, margin.loss.m1, margin.loss.m2, margin.loss.m3),
        arch.embedding,
        arch.num_classes,
        1.0,
        is_half,
    )
    backbone.train()
    module_partial_fc.train()
    parameters = [{"params": backbone.parameters()}, {"params": module_partial_fc.parameters()}]
    optimizer = torch.optim.SGD(params=parameters, lr=1e-3, momentum=0.9, weight_decay=5e-4)
    images, labels = job.trainer.preprocess(batch["image"]).contiguous(), batch["label"]

    def step() -> None:
        loss = module_partial_fc(backbone(images), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(backbone.parameters(), 5)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return step
