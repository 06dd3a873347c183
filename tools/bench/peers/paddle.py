"""Updates of other projects' training loops in Paddle, as in peers/torch.py."""

import os
import sys
from collections.abc import Callable
from typing import Any

import paddle
import paddle.nn.functional as F

from zoo.bench.peers import upstream

PADDLEVIDEO_PACKAGES = ("backbones", "heads", "losses", "framework", "framework.recognizers")


def paddlevideo(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    """Return an update of the recognizer of tsm_k400_frames.yaml, with the statements of paddlevideo/tasks/train.py.

    Only the modules of this model are imported: the packages also import those of all others, with what they need.
    """
    arch, root = job.arch, os.path.join(clones, "PaddleVideo")
    modeling = [f"paddlevideo.modeling.{name}" for name in PADDLEVIDEO_PACKAGES]
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


def plsc(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    """Return an update of task/recognition/face: IResNet50 with PartialFC, MarginLoss, and the engine's training step.

    PLSC was written for Paddle 2.4, whose module `paddle.fluid` is `paddle.base` today. Paddle has
    margin_cross_entropy for GPUs alone; on a CPU its definition in Paddle's operators takes its place.
    """
    root, margin = os.path.join(clones, "PLSC"), job.trainer.objective.settings
    sys.modules["paddle.fluid"] = paddle.fluid = paddle.base  # type: ignore[attr-defined]
    sys.modules["paddle.fluid.framework"] = paddle.base.framework
    upstream.declare_packages(root, ["plsc", "plsc.models", "plsc.loss"])
    model = upstream.load(root, "plsc.models.iresnet").IResNet50(
        class_num=job.arch.num_classes, pfc_config={"model_parallel": False, "sample_ratio": 1.0}
    )
    criterion = upstream.load(root, "plsc.loss.marginloss").MarginLoss(margin.m1, margin.m2, margin.m3, margin.scale)
    if not paddle.device.is_compiled_with_cuda():
        F.margin_cross_entropy = margin_cross_entropy  # type: ignore[assignment]
    optimizer = paddle.optimizer.Momentum(1e-3, 0.9, model.parameters(), weight_decay=5e-4)
    images, labels = job.trainer.preprocess(batch["image"]), batch["label"]
    model.train()

    def step() -> None:
        output = model({"data": images, "targets": labels})
        loss = criterion(output["logits"], output["targets"])["MarginLoss"]
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        loss.item()

    return step


def margin_cross_entropy(
    logits: paddle.Tensor, label: paddle.Tensor, margin1: float, margin2: float, margin3: float, scale: float, **_: Any
) -> paddle.Tensor:
    """Return the losses of paddle.nn.functional.margin_cross_entropy, as its documentation defines them."""
    is_target = F.one_hot(label, logits.shape[1]) > 0
    targets = paddle.take_along_axis(logits, label.unsqueeze(1), 1).clip(-0.999, 0.999)
    targets = paddle.cos(margin1 * paddle.acos(targets) + margin2) - margin3
    return F.cross_entropy(scale * paddle.where(is_target, targets, logits), label, reduction="none")
