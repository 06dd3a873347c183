"""Trainings of other projects by their own programs, on given batches, with records of what they compute.

Each function calls the main program of a project, whose model, optimizer, schedule and loop run as they are. What
computes nothing of a training is replaced: data sets, logs, evaluations, checkpoints, and calls of CUDA.
"""

import importlib.util
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import numpy as np

from zoo.bench.peers import upstream
from zoo.bench.peers.updates import segmentation_sample
from zoo.data.errors import UserError
from zoo.models.arcface.spec import HEAD_WEIGHT

NVIDIA = "DeepLearningExamples/PyTorch/Classification/ConvNets"
TORCHVISION = "vision/references/classification"
ARCFACE = "insightface/recognition/arcface_torch"
MMSEG = ".mim/configs/deeplabv3plus/deeplabv3plus_r50-d8_4xb2-80k_cityscapes-512x1024.py"
Tensors = dict[str, np.ndarray]


class Work(NamedTuple):
    """What both sides train.

    Attributes:
        clones: folder of the copies of other projects.
        dtype: name of numpy's type to compute in.
        inputs: the model's input of each update.
        labels: of each update.
        masks: dropout masks in the order of their use.
        epochs: of as many updates each.
        lr: learning rate that the schedule scales.
        warmup: of the schedule, in epochs.
        milestones: of the schedule, in epochs.
        arch: the model's architecture.
        log: path of the file that receives what upstream prints.
        as_published: whether to keep what differs from the recipe on purpose.
    """

    clones: str
    dtype: str
    inputs: Sequence[np.ndarray]
    labels: Sequence[np.ndarray]
    masks: Sequence[np.ndarray]
    epochs: int
    lr: float
    warmup: int
    milestones: Sequence[int]
    arch: Any
    log: str
    as_published: bool = True

    @property
    def batch(self) -> int:
        """Samples of an update."""
        return len(self.labels[0])

    @property
    def per_epoch(self) -> int:
        """Updates of an epoch."""
        return len(self.labels) // self.epochs


class Curve(NamedTuple):
    """A training: numbers of each update, and tensors before the first one and after the last one."""

    rates: list[float]
    losses: list[float]
    norms: list[float]
    initial: Tensors
    final: Tensors


class Recorder:
    """Records a training: watches the modules that it trains and every backward pass, and gives the dropout masks."""

    def __init__(self, work: Work):
        import torch
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self.masks, self.modules = iter(work.masks), list[tuple[Any, Callable[[str], str]]]()
        self.curve = Curve([], [], [], {}, {})
        tensors: Any = torch.Tensor
        backward = tensors.backward
        tensors.backward = lambda loss: self._record(loss, backward)
        register_optimizer_step_pre_hook(self._before_step)
        for name in ("dropout", "dropout2d"):
            setattr(torch.nn.functional, name, self._dropout)

    def watch(self, module: Any, rename: Callable[[str], str] = str) -> Any:
        """Return a module, whose tensors belong to the model from its first call on; their names may be changed."""

        def begin(*_: Any) -> None:
            handle.remove()
            self.curve.initial.update(_tensors(module, rename))

        self.modules.append((module, rename))
        handle = module.register_forward_pre_hook(begin)
        return module

    def finish(self) -> Curve:
        """Return the record at the end of the training."""
        for module, rename in self.modules:
            self.curve.final.update(_tensors(module, rename))
        return self.curve

    def _record(self, loss: Any, backward: Callable[..., None]) -> None:
        self.curve.losses.append(loss.item())
        backward(loss)
        grads = [p.grad for module, _ in self.modules for p in module.parameters() if p.grad is not None]
        self.curve.norms.append(float(sum(float((grad.double() ** 2).sum()) for grad in grads)) ** 0.5)

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        self.curve.rates.append(optimizer.param_groups[0]["lr"])

    def _dropout(self, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        import torch

        if not training or p == 0:
            return x
        mask = torch.from_numpy(next(self.masks)).to(x.dtype)
        return x * (mask.reshape(*x.shape[:2], *[1] * (x.dim() - 2)) / (1 - p))


class Loader:
    """The batches as upstream's loaders return them: those of the next epoch whenever it is iterated over.

    Args:
        work: has the batches.
        make: function of an update's input and labels, as tensors, that returns a batch.
    """

    def __init__(self, work: Work, make: Callable[[Any, Any], Any] = lambda *pair: pair):
        self.work, self.make, self.numbers = work, make, iter(range(len(work.labels)))

    def __len__(self) -> int:
        return self.work.per_epoch

    def __iter__(self) -> Iterator[Any]:
        import torch

        for _, number in zip(range(len(self)), self.numbers):
            yield self.make(*(torch.from_numpy(arrays[number]) for arrays in (self.work.inputs, self.work.labels)))


def _tensors(module: Any, rename: Callable[[str], str]) -> Tensors:
    state = module.state_dict()
    return {rename(name): tensor.detach().contiguous().numpy().copy() for name, tensor in state.items()}


def train(program: Callable[[Work, Recorder], None], work: Work) -> Curve:
    """Run the program of a project in this process, which is fit for nothing else afterwards.

    Raises:
        UserError: the copy of the project, or something that it needs, is not installed; or the program fails.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with (
        open(work.log, "a", encoding="utf-8") as log,
        redirect_stdout(log),
        redirect_stderr(log),
        tempfile.TemporaryDirectory() as folder,
    ):
        os.chdir(folder)
        if importlib.util.find_spec("torchvision"):
            upstream.installed("torchvision")  # before upstream imports it: its operators have to be declared
        recorder = _prepare(work)
        try:
            program(work, recorder)
        except UserError:
            raise
        except (Exception, SystemExit) as error:  # of any kind, by another project's code
            traceback.print_exc(file=log)
            raise UserError(f"upstream's program failed, see {work.log}: {type(error).__name__}: {error}") from None
        return recorder.finish()


def _prepare(work: Work) -> Recorder:
    """Give PyTorch the type to compute in, let calls of CUDA do nothing, and start to record."""
    import torch

    def same(tensor: Any, *_: Any, **__: Any) -> Any:
        return tensor

    torch.set_default_dtype(getattr(torch, work.dtype))
    torch.manual_seed(0)
    torch.Tensor.cuda = torch.nn.Module.cuda = same  # type: ignore[method-assign,assignment]
    torch.cuda.synchronize = torch.cuda.set_device = lambda *_: None  # type: ignore[assignment]
    if not work.as_published:
        torch.nn.utils.clip_grad_norm_ = clip  # type: ignore[assignment]
    return Recorder(work)


def clip(parameters: Any, limit: float) -> None:
    """Clip the norm of gradients as torch.nn.utils.clip_grad_norm_, but without its 1e-6."""
    import torch

    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    factor = (limit / torch.nn.utils.get_total_norm(grads)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor)


def command_line(path: str, program: str, changes: str) -> list[str]:
    """Return the arguments that a shell script of upstream gives its program, followed by options that precede them."""
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
    main.get_synthetic_loader = lambda *_, **__: (Loader(work), work.per_epoch)
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
    torch.utils.data.DataLoader = lambda *_, **__: Loader(work)  # type: ignore[misc,assignment]
    changes = f"--model resnet{work.arch.depth} --device cpu --batch-size {work.batch} --epochs {work.epochs}"
    schedule = f"--lr {work.lr!r} --lr-step-size {work.milestones[0]}"
    train.main(train.get_args_parser().parse_args(f"{changes} {schedule}".split()))


def mit_han_lab(work: Work, recorder: Recorder) -> None:
    """Run main.py of temporal-shift-module as its script for 8 frames of Kinetics does, without pretrained weights."""
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
    loader = Loader(work, lambda clips, labels: (clips.flatten(1, 2), labels))
    torch.utils.data.DataLoader = lambda *_, **__: loader  # type: ignore[misc,assignment]
    changes = (
        f"--epochs {work.epochs} --lr {work.lr!r} --lr_steps {' '.join(map(str, work.milestones))} "
        f"--batch-size {work.batch} --num_segments {work.arch.segments} --dropout {work.arch.dropout} "
        "--pretrain none --root_log log --root_model model"
    )
    script = os.path.join(root, "scripts/train_tsm_kinetics_rgb_8f.sh")
    sys.argv = ["main.py", *command_line(script, "main.py", changes)]
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
    train.get_dataloader = lambda *_: Loader(work)
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
    """Run mmengine's Runner as deeplabv3plus_r50-d8 of Cityscapes configures it; BatchNorm replaces SyncBN."""
    import torch

    upstream.replace_operators(torch.nn.Identity)
    engine, segmentation = upstream.installed("mmengine"), upstream.installed("mmseg")
    upstream.installed("mmseg.models")
    engine.registry.init_default_scope("mmseg")
    config = engine.Config.fromfile(os.path.join(os.path.dirname(segmentation.__file__), MMSEG))
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
    batches: Any = list(Loader(work, batch))
    runner._train_dataloader = torch.utils.data.DataLoader(batches, batch_size=None)
    runner.train()
