"""The loop of mmsegmentation: the model of deeplabv3plus_r50-d8, its `loss`, and mmengine's OptimWrapper.

BatchNorm takes the place of SyncBN, as mmsegmentation itself does with one process.
"""

import os
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from zoo.bench.peers import upstream

NAME = "mmsegmentation"
CONFIG = ".mim/configs/_base_/models/deeplabv3plus_r50-d8.py"


def update(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    _replace_operators()
    engine, segmentation = upstream.installed("mmengine"), upstream.installed("mmseg")
    upstream.installed("mmseg.models")
    engine.registry.init_default_scope("mmseg")
    config = engine.Config.fromfile(os.path.join(os.path.dirname(segmentation.__file__), CONFIG))
    config.model.pretrained = None
    config.model.data_preprocessor.size = tuple(batch["label"].shape[1:])
    model = upstream.installed("mmengine.model").revert_sync_batchnorm(engine.MODELS.build(config.model)).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
    wrapper = upstream.installed("mmengine.optim").OptimWrapper(optimizer)
    images = job.trainer.preprocess(batch["image"]).contiguous()
    samples = [_sample(labels) for labels in batch["label"].long()]

    def step() -> None:
        losses, _ = model.parse_losses(model.loss(images, samples))
        wrapper.update_params(losses)
        losses.item()

    return step


def _sample(labels: torch.Tensor) -> Any:
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
        operators.__getattr__ = lambda name: _missing(name)
        sys.modules["mmcv.ops"] = operators


def _missing(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (torch.nn.Module,), {})
