"""The loader of mmsegmentation: the training pipeline of its Cityscapes configurations.

It reads the masks' ids as they are, where this project maps them to training classes, too.
"""

import sys
import types
from typing import Any

from zoo.bench.peers import upstream
from zoo.bench.peers.contender import MapStyle

NAME = "mmsegmentation"
FOLDERS = {"img_path": "leftImg8bit/train", "seg_map_path": "gtFine/train"}


def open_scenes(settings: Any) -> MapStyle:
    """Open the training pairs.

    Args:
        settings: root, crop, base_size, scale, max_share and photometric of zoo.data.datasets.cityscapes.
    """
    try:
        upstream.installed("mmcv._ext")
    except Exception:  # mmcv-lite has no compiled operators: mmseg.utils imports one that loading does not use
        sys.modules["mmcv.ops"] = types.ModuleType("mmcv.ops")
        sys.modules["mmcv.ops"].point_sample = None  # type: ignore[attr-defined]
    datasets = upstream.installed("mmseg.datasets")
    upstream.installed("mmengine.registry").init_default_scope("mmseg")
    distortion = [{"type": "PhotoMetricDistortion"}] if settings.photometric else []
    pipeline = [
        {"type": "LoadImageFromFile"},
        {"type": "LoadAnnotations"},
        {
            "type": "RandomResize",
            "scale": settings.base_size[::-1],
            "ratio_range": settings.scale,
            "keep_ratio": True,
        },
        {"type": "RandomCrop", "crop_size": settings.crop, "cat_max_ratio": settings.max_share},
        {"type": "RandomFlip", "prob": 0.5},
        *distortion,
        {"type": "PackSegInputs"},
    ]
    dataset = datasets.CityscapesDataset(
        data_root=settings.root, data_prefix=FOLDERS, seg_map_suffix="_gtFine_labelIds.png", pipeline=pipeline
    )
    return MapStyle(dataset, upstream.installed("mmengine.dataset").pseudo_collate)
