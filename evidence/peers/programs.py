"""Main programs of other projects, with the settings of a recipe's upstream, on the batches of a given training.

Model, optimizer, schedule and loop run as they are. What computes nothing of a training is replaced: data sets, logs,
evaluations, checkpoints, and calls of CUDA.
"""

import os
import shlex
import sys
from typing import Any
from unittest.mock import MagicMock

import numpy as np

from evidence.peers import copies
from evidence.peers.curves import Recorder, Work, replace
from evidence.peers.updates import PADDLEVIDEO_PACKAGES, segmentation_sample
from zoo.bench import upstream
from zoo.models.arcface.spec import HEAD_WEIGHT

NVIDIA = "DeepLearningExamples/PyTorch/Classification/ConvNets"
TORCHVISION = "vision/references/classification"
ARCFACE = "insightface/recognition/arcface_torch"


def command_line(path: str, program: str, changes: str) -> list[str]:
    """Return the arguments that a script or page of upstream gives a program, followed by options that precede them."""
    with open(path, encoding="utf-8") as file:
        text = file.read().replace("\\\n", " ")
    return shlex.split(text.partition(f"{program} ")[2].partition("\n")[0]) + changes.split()


def replace_modules(*names: str) -> None:
    """Let modules be imported that are not installed and compute nothing here."""
    for name in names:
        sys.modules[name] = MagicMock()


def nvidia(work: Work, recorder: Recorder) -> None:
    """Run the launch.py of NVIDIA's ResNet-50 as the script of 90 epochs on a DGX-1 does; without CUDA, AMP is off."""
    import runpy

    root = os.path.join(work.clones, NVIDIA)
    replace_modules("dllogger", "pynvml")
    main = upstream.load(root, "main")
    main.set_affinity = MagicMock()
    executor = main.Executor

    main.Executor = lambda model, *args, **kwargs: executor(recorder.watch(model), *args, **kwargs)
    main.get_synthetic_loader = lambda *_, **__: (recorder.loader(), work.per_epoch)
    changes = (
        f"--epochs {work.epochs} --warmup {work.warmup} --lr {work.lr!r} --num_classes {work.arch.num_classes} "
        f"--batch-size {work.batch} --optimizer-batch-size {work.batch} --data-backend synthetic --workspace . "
        "--training-only --no-checkpoints"
    )
    script = os.path.join(root, "resnet50v1.5/training/AMP/DGX1V_resnet50_AMP_90E.sh")
    sys.argv = ["launch.py", *command_line(script, "./launch.py", changes)]
    runpy.run_path(os.path.join(root, "launch.py"), run_name="__main__")


def torchvision(work: Work, recorder: Recorder) -> None:
    """Run train.py of torchvision's reference for classification with its own defaults, as its README trains ResNet."""
    import torch

    train = upstream.load(os.path.join(work.clones, TORCHVISION), "train")
    model = train.torchvision.models.get_model
    train.torchvision.models.get_model = lambda *args, **kwargs: recorder.watch(model(*args, **kwargs))
    train.load_data = lambda *_: (MagicMock(classes=range(work.arch.num_classes)), *[MagicMock()] * 3)
    train.evaluate = MagicMock()
    torch.utils.data.DataLoader = lambda *_, **__: recorder.loader()  # type: ignore[misc,assignment]
    changes = f"--model resnet{work.arch.depth} --device cpu --batch-size {work.batch} --epochs {work.epochs}"
    schedule = f"--lr {work.lr!r} --lr-step-size {work.milestones[0]}"
    train.main(train.get_args_parser().parse_args(f"{changes} {schedule}".split()))


def mit_han_lab(work: Work, recorder: Recorder) -> None:
    """Run main.py of temporal-shift-module as its script for Kinetics does, or its README for Something-Something."""
    import torch

    root = os.path.join(work.clones, "temporal-shift-module")
    replace_modules("tensorboardX")
    main = upstream.load(root, "main")
    model = main.TSN
    main.TSN = lambda *args, **kwargs: recorder.watch(model(*args, **kwargs))
    main.dataset_config.return_dataset = lambda *_: (work.arch.num_classes, "", "", "", "")
    main.TSNDataSet = main.save_checkpoint = MagicMock()
    main.validate = lambda *_: 0.0
    main.accuracy = lambda *_, **__: [torch.zeros(())] * 2  # which today's PyTorch refuses to compute
    loader = recorder.loader(lambda clips, labels: (clips.flatten(1, 2), labels))
    torch.utils.data.DataLoader = lambda *_, **__: loader  # type: ignore[misc,assignment]
    changes = (
        f"--epochs {work.epochs} --lr {work.lr!r} --lr_steps {' '.join(map(str, work.milestones))} "
        f"--batch-size {work.batch} --num_segments {work.arch.segments} --dropout {work.arch.dropout} "
        "--pretrain none --root_log log --root_model model"
    )
    data = "something" if work.files[0] == "README.md" else "kinetics"
    arguments = command_line(os.path.join(root, work.files[0]), f"main.py {data} RGB", changes)
    sys.argv = ["main.py", data, "RGB", *arguments]
    main.main()


def insightface(work: Work, recorder: Recorder) -> None:
    """Run train_v2.py of arcface_torch with the settings of glint360k_r100, of which fp16 is off."""
    import torch
    from torch import distributed
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    root, begin = os.path.join(work.clones, ARCFACE), distributed.init_process_group
    replace_modules("mxnet", "eval", "torch.utils.tensorboard")
    distributed.init_process_group = lambda *_, **__: begin("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    for name in ("configs.base", "configs.glint360k_r100"):
        upstream.load(root, name)
    train = upstream.load(root, "train_v2")
    config = train.get_config("configs/glint360k_r100")
    config.update(network=f"r{work.arch.depth}", num_classes=work.arch.num_classes, fp16=False, output=".")
    config.update(batch_size=work.batch, num_epoch=work.epochs, num_image=work.per_epoch * work.batch)
    config.update(lr=work.lr, warmup_epoch=work.warmup)
    backbone, classifier = train.get_model, train.PartialFC_V2
    train.get_config = lambda _: config
    train.get_model = lambda *args, **kwargs: recorder.watch(backbone(*args, **kwargs))
    train.PartialFC_V2 = lambda *args: recorder.watch(classifier(*args), lambda _: HEAD_WEIGHT)
    train.get_dataloader = lambda *_: recorder.loader()
    train.CallBackLogging = train.CallBackVerification = MagicMock()
    wrappers: Any = torch.nn.parallel
    parallel = wrappers.DistributedDataParallel
    wrappers.DistributedDataParallel = lambda device_ids, **kwargs: parallel(**kwargs)
    schedule: Any = torch.optim.lr_scheduler.LRScheduler
    begin_schedule = schedule.__init__
    schedule.__init__ = lambda self, optimizer, last_epoch, **_: begin_schedule(
        self, optimizer, last_epoch
    )  # `verbose`
    if not work.as_published:
        train.fp16_compress_hook = default_hooks.allreduce_hook
    train.main(MagicMock())


def mmsegmentation(work: Work, recorder: Recorder) -> None:
    """Run mmengine's Runner as a configuration of deeplabv3plus_r50-d8 has it; BatchNorm replaces SyncBN."""
    import torch

    copies.replace_operators(torch.nn.Identity)
    engine, segmentation = upstream.installed("mmengine"), upstream.installed("mmseg")
    upstream.installed("mmseg.models")
    engine.registry.init_default_scope("mmseg")
    config = engine.Config.fromfile(os.path.join(os.path.dirname(segmentation.__file__), ".mim", work.files[0]))
    config.model.pretrained = None
    config.model["data_preprocessor"] = {"type": "mmengine.BaseDataPreprocessor"}
    revert = upstream.installed("mmengine.model").revert_sync_batchnorm
    config.optim_wrapper.optimizer.lr = work.lr
    config.train_cfg = {"type": "IterBasedTrainLoop", "max_iters": len(work.labels), "val_interval": 10**9}
    config.param_scheduler[0].end = len(work.labels)
    config.default_hooks = {"sampler_seed": None, "checkpoint": None}
    for name in ("dataloader", "cfg", "evaluator"):
        config[f"val_{name}"] = config[f"test_{name}"] = None
    config.update(train_dataloader={"dataset": {}}, work_dir=".", randomness={"seed": 0})  # it gets the batches below
    runner = engine.runner.Runner.from_cfg(config)
    runner.model = recorder.watch(revert(runner.model))

    def batch(images: Any, labels: Any) -> dict[str, Any]:
        return {"inputs": images, "data_samples": [segmentation_sample(one) for one in labels.long()]}

    if not work.as_published:
        losses = upstream.installed("mmseg.models.losses.cross_entropy_loss")
        losses.weight_reduce_loss = lambda loss, avg_factor, **_: loss.sum() / avg_factor
    batches: Any = list(recorder.loader(batch))
    runner._train_dataloader = torch.utils.data.DataLoader(batches, batch_size=None)
    runner.train()


def paddlevideo(work: Work, recorder: Recorder) -> None:
    """Run train_model of paddlevideo/tasks/train.py as tsm_k400_frames.yaml configures it, without pretrained weights.

    Only the modules of this model are imported: the packages also import those of all others, with what they need.
    """
    import paddle

    root, modeling, array = os.path.join(work.clones, "PaddleVideo"), "paddlevideo.modeling", paddle.Tensor.numpy
    replace(paddle.Tensor, numpy=lambda tensor: np.atleast_1d(array(tensor)))  # which had no tensors of 0 dimensions
    packages = [f"{modeling}.{name}" for name in PADDLEVIDEO_PACKAGES]
    copies.declare_packages(root, ["paddlevideo", "paddlevideo.tasks", modeling, *packages])
    replace_modules("paddlevideo.loader", "paddlevideo.loader.builder")
    recognizer = "framework.recognizers.recognizer2d"
    for name in ("backbones.resnet_tsm", "heads.tsm_head", "losses.cross_entropy_loss", recognizer):
        upstream.load(root, f"{modeling}.{name}")
    train = upstream.load(root, "paddlevideo.tasks.train")
    path = os.path.join(root, work.files[0])
    config = upstream.load(root, "paddlevideo.utils.config").get_config(path, show=False)
    config.MODEL.backbone.update(pretrained=None, depth=work.arch.depth, num_seg=work.arch.segments)
    config.MODEL.head.update(num_classes=work.arch.num_classes, drop_ratio=work.arch.dropout)
    rate = config.OPTIMIZER.learning_rate
    values = [value / rate["values"][0] * work.lr for value in rate["values"]]
    rate.update(boundaries=work.milestones, values=values)
    config.update(epochs=work.epochs)
    model = train.build_model
    train.build_model = lambda config: recorder.watch(model(config))
    train.build_dataloader = lambda *_, **__: recorder.loader(lambda clips, labels: [clips, labels.unsqueeze(1)])
    train.save = MagicMock()
    train.train_model(config, parallel=False, validate=False)
