"""The loop of PaddleVideo: the recognizer of tsm_k400_frames.yaml, and the statements of paddlevideo/tasks/train.py.

Only the modules of this model are imported: the packages also import those of all others, with what they need.
"""

import os
from collections.abc import Callable
from typing import Any

import paddle

from zoo.bench.peers import upstream

NAME = "PaddleVideo"
PACKAGES = ("backbones", "heads", "losses", "framework", "framework.recognizers")


def update(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    arch, root = job.arch, os.path.join(clones, "PaddleVideo")
    modeling = [f"paddlevideo.modeling.{name}" for name in PACKAGES]
    upstream.declare_packages(root, ["paddlevideo", "paddlevideo.modeling", *modeling])
    for name in ("backbones.resnet_tsm", "heads.tsm_head", "losses.cross_entropy_loss"):
        upstream.load(root, f"paddlevideo.modeling.{name}")
    recognizer = upstream.load(root, "paddlevideo.modeling.framework.recognizers.recognizer2d").Recognizer2D
    settings = upstream.load(root, "paddlevideo.utils.config").AttrDict
    model = recognizer(
        backbone=settings(name="ResNetTSM", pretrained=None, num_seg=arch.segments, depth=arch.depth),
        head=settings(
            name="TSMHead", num_classes=arch.num_classes, in_channels=2048, drop_ratio=arch.dropout, std=0.001
        ),
    )
    optimizer = paddle.optimizer.Momentum(
        1e-3, 0.9, model.parameters(), weight_decay=1e-4, grad_clip=paddle.nn.ClipGradByGlobalNorm(job.plan.clip_norm)
    )
    clips, labels = job.trainer.preprocess(batch["video"]), batch["label"].unsqueeze(1)
    model.train()

    def step() -> None:
        loss = model([clips.clone(), labels], mode="train")["loss"]
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        loss.item()

    return step
