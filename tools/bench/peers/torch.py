"""Updates of other projects' training loops in PyTorch.

Each function imports the peer's model, repeats the statements of its training loop, and returns an update on the batch
of the job that waits for its loss; the peers' code is nowhere in this project.
"""

import os
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from zoo.bench.peers import upstream

MMSEG_CONFIG = ".mim/configs/_base_/models/deeplabv3plus_r50-d8.py"


def mit_han_lab(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    """Return an update of temporal-shift-module: model, policies of the optimizer and `train` of main.py.

    DataParallel, the copies to a GPU and the accuracy, whose code today's PyTorch refuses, are left out.
    """
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


def mmsegmentation(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    """Return an update of mmsegmentation: the model of deeplabv3plus_r50-d8, its `loss`, and mmengine's OptimWrapper.

    BatchNorm takes the place of SyncBN, as mmsegmentation itself does with one process.
    """
    _replace_operators()
    engine, segmentation = upstream.installed("mmengine"), upstream.installed("mmseg")
    upstream.installed("mmseg.models")
    engine.registry.init_default_scope("mmseg")
    config = engine.Config.fromfile(os.path.join(os.path.dirname(segmentation.__file__), MMSEG_CONFIG))
    config.model.pretrained = None
    config.model.data_preprocessor.size = tuple(batch["label"].shape[1:])
    model = upstream.installed("mmengine.model").revert_sync_batchnorm(engine.MODELS.build(config.model)).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
    wrapper = upstream.installed("mmengine.optim").OptimWrapper(optimizer)
    images = job.trainer.preprocess(batch["image"]).contiguous()
    samples = [_segmentation_sample(labels) for labels in batch["label"].long()]

    def step() -> None:
        losses, _ = model.parse_losses(model.loss(images, samples))
        wrapper.update_params(losses)
        losses.item()

    return step


def _segmentation_sample(labels: torch.Tensor) -> Any:
    shape = tuple(labels.shape)
    structures = upstream.installed("mmseg.structures")
    sample = structures.SegDataSample(metainfo={"img_shape": shape, "ori_shape": shape, "pad_shape": shape})
    sample.gt_sem_seg = upstream.installed("mmengine.structures").PixelData(data=labels[None])
    return sample


def _replace_operators() -> None:
    """Put a module of empty classes in the place of mmcv's compiled operators, if mmcv-lite has none."""
    try:
        upstream.installed("mmcv._ext")
    except Exception:
        operators: Any = types.ModuleType("mmcv.ops")
        operators.__getattr__ = _missing_operator
        sys.modules["mmcv.ops"] = operators


def _missing_operator(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return torch.nn.Identity


def insightface(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    """Return an update of recognition/arcface_torch: backbone, PartialFC_V2 and the statements of train_v2.py.

    DistributedDataParallel is left out: with one process it only costs time. PartialFC_V2 needs a process group, and
    calls `cuda()`, which does nothing here where PyTorch has no GPU.
    """
    folder, arch = os.path.join(clones, "insightface/recognition/arcface_torch"), job.arch
    if not torch.cuda.is_available():
        torch.Tensor.cuda = lambda self, *args, **kwargs: self  # type: ignore[method-assign]
    if not distributed.is_initialized():
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    margin, is_half = job.trainer.objective.settings, job.plan.mode.compute == "fp16"
    backbone = upstream.load(folder, "backbones").get_model(
        f"r{arch.depth}", dropout=0.0, fp16=is_half, num_features=arch.embedding
    )
    loss = upstream.load(folder, "losses").CombinedMarginLoss(margin.scale, margin.m1, margin.m2, margin.m3)
    module_partial_fc = upstream.load(folder, "partial_fc_v2").PartialFC_V2(
        loss, arch.embedding, arch.num_classes, 1.0, is_half
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


def torchvision(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    """Return an update of references/classification: resnet50 and the statements of train_one_epoch."""
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
