"""Updates of other projects' training loops.

Each function imports its framework and the peer's model, repeats the statements of its training loop, and returns an
update on the batch of the job that waits for its loss; the peers' code is nowhere in this project.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from evidence.peers import copies
from zoo.bench import upstream

MMSEG_CONFIG = ".mim/configs/_base_/models/deeplabv3plus_r50-d8.py"
PADDLEVIDEO_PACKAGES = ("backbones", "heads", "losses", "framework", "framework.recognizers")


def mit_han_lab(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    """Return an update of temporal-shift-module: model, policies of the optimizer and `train` of main.py.

    DataParallel, the copies to a GPU and the accuracy, whose code today's PyTorch refuses, are left out.
    """
    import torch

    folder, arch = os.path.join(clones, "temporal-shift-module"), job.arch
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
    import torch

    copies.replace_operators(torch.nn.Identity)
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
    samples = [segmentation_sample(labels) for labels in batch["label"].long()]

    def step() -> None:
        losses, _ = model.parse_losses(model.loss(images, samples))
        wrapper.update_params(losses)
        losses.item()

    return step


def segmentation_sample(labels: Any) -> Any:
    """Return labels (H, W) as a sample of mmsegmentation."""
    shape = tuple(labels.shape)
    structures = upstream.installed("mmseg.structures")
    sample = structures.SegDataSample(metainfo={"img_shape": shape, "ori_shape": shape, "pad_shape": shape})
    sample.gt_sem_seg = upstream.installed("mmengine.structures").PixelData(data=labels[None])
    return sample


def insightface(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    """Return an update of recognition/arcface_torch: backbone, PartialFC_V2 and the statements of train_v2.py.

    DistributedDataParallel is left out: with one process it only costs time. PartialFC_V2 needs a process group, and
    calls `cuda()`, which does nothing here where PyTorch has no GPU.
    """
    import torch
    from torch import distributed

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
    import torch

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


def paddlevideo(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    """Return an update of the recognizer of tsm_k400_frames.yaml, with the statements of paddlevideo/tasks/train.py.

    Only the modules of this model are imported: the packages also import those of all others, with what they need.
    """
    import paddle

    arch, root = job.arch, os.path.join(clones, "PaddleVideo")
    modeling = [f"paddlevideo.modeling.{name}" for name in PADDLEVIDEO_PACKAGES]
    copies.declare_packages(root, ["paddlevideo", "paddlevideo.modeling", *modeling])
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
    import paddle

    root, margin = os.path.join(clones, "PLSC"), job.trainer.objective.settings
    sys.modules["paddle.fluid"] = paddle.fluid = paddle.base  # type: ignore[attr-defined]
    sys.modules["paddle.fluid.framework"] = paddle.base.framework
    copies.declare_packages(root, ["plsc", "plsc.models", "plsc.loss"])
    model = upstream.load(root, "plsc.models.iresnet").IResNet50(
        class_num=job.arch.num_classes, pfc_config={"model_parallel": False, "sample_ratio": 1.0}
    )
    criterion = upstream.load(root, "plsc.loss.marginloss").MarginLoss(margin.m1, margin.m2, margin.m3, margin.scale)
    if not paddle.device.is_compiled_with_cuda():
        paddle.nn.functional.margin_cross_entropy = margin_cross_entropy  # type: ignore[assignment]
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
    logits: Any, label: Any, margin1: float, margin2: float, margin3: float, scale: float, **_: Any
) -> Any:
    """Return the losses of paddle.nn.functional.margin_cross_entropy, as its documentation defines them."""
    import paddle
    import paddle.nn.functional as F

    is_target = F.one_hot(label, logits.shape[1]) > 0
    targets = paddle.take_along_axis(logits, label.unsqueeze(1), 1).clip(-0.999, 0.999)
    targets = paddle.cos(margin1 * paddle.acos(targets) + margin2) - margin3
    return F.cross_entropy(scale * paddle.where(is_target, targets, logits), label, reduction="none")


def mindcv(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    """Return an update of mindcv: resnet50 and what its `create_trainer` makes of it, mindspore's Model, in graph mode.

    `Model.train` runs its training network on each batch; so does this loop. By mindcv's defaults it neither computes
    the norm of the gradient nor skips an update that is not finite; this trainer does both.
    """
    import mindspore

    network = upstream.installed("mindcv.models").create_model("resnet50", num_classes=job.arch.num_classes)
    loss = upstream.installed("mindcv.loss").create_loss("CE", label_smoothing=0.1)
    optimizer = upstream.installed("mindcv.optim").create_optimizer(
        network.trainable_params(), opt="momentum", lr=1e-3, weight_decay=1e-4, momentum=0.9
    )
    model = upstream.installed("mindcv.utils").create_trainer(
        network, loss, optimizer, set(), "O0", None, "fixed", loss_scale=1.0, drop_overflow_update=False
    )
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    train_network = model._train_network
    train_network.set_train()
    images = mindspore.Tensor(job.trainer.preprocess(batch["image"]).asnumpy())
    labels = batch["label"].astype(mindspore.int32)

    def step() -> None:
        train_network(images, labels).asnumpy()

    return step


def flax(clones: str, job: Any, batch: Any) -> Callable[[], None]:
    """Return an update of examples/imagenet: its ResNet50 and the statements of train_step in train.py, by pmap."""
    import jax
    import jax.numpy as jnp
    import optax
    from flax.training import common_utils, train_state

    class TrainState(train_state.TrainState):
        batch_stats: Any

    folder, classes = os.path.join(clones, "flax/examples/imagenet"), job.arch.num_classes
    model = upstream.load(folder, "models").ResNet50(num_classes=classes, dtype=jnp.float32)
    arrays = {"image": job.trainer.network.preprocess(batch["image"]), "label": batch["label"]}
    arrays = jax.tree.map(lambda array: array[None], arrays)  # an axis for the devices
    variables = jax.jit(model.init)({"params": jax.random.key(0)}, arrays["image"][0, :1])
    optimizer = optax.sgd(1e-3, momentum=0.9, nesterov=True)
    state = TrainState.create(
        apply_fn=model.apply, params=variables["params"], tx=optimizer, batch_stats=variables["batch_stats"]
    )

    def cross_entropy(logits: Any, labels: Any) -> Any:
        return jnp.mean(optax.softmax_cross_entropy(logits, common_utils.onehot(labels, num_classes=classes)))

    def train_step(state: Any, batch: Any) -> tuple[Any, Any]:
        def loss_fn(params: Any) -> tuple[Any, Any]:
            variables = {"params": params, "batch_stats": state.batch_stats}
            logits, new_state = state.apply_fn(variables, batch["image"], mutable=["batch_stats"])
            l2 = sum(jnp.sum(x**2) for x in jax.tree.leaves(params) if x.ndim > 1)
            return cross_entropy(logits, batch["label"]) + 1e-4 * 0.5 * l2, (new_state, logits)

        (_, (new_state, logits)), gradients = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
        gradients = jax.lax.pmean(gradients, "batch")
        hits = jnp.mean(jnp.argmax(logits, -1) == batch["label"])
        metrics = jax.lax.pmean({"loss": cross_entropy(logits, batch["label"]), "accuracy": hits}, "batch")
        statistics = jax.lax.pmean(new_state["batch_stats"], "batch")
        return state.apply_gradients(grads=gradients, batch_stats=statistics), metrics

    compiled = jax.pmap(train_step, in_axes=(None, 0), out_axes=(None, 0), axis_name="batch")

    def step() -> None:
        nonlocal state
        state, metrics = compiled(state, arrays)
        float(metrics["loss"][0])

    return step
