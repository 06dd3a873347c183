"""Trainings of other projects by their own programs, on given batches, with records of what they compute."""

import importlib.util
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import numpy as np

from zoo.bench import upstream
from zoo.data import durable
from zoo.data.errors import UserError

Tensors = dict[str, np.ndarray]


class Work(NamedTuple):
    """The training of both sides.

    Attributes:
        files: of upstream, which the recipe names.
        dtype: name of numpy's type to compute in.
        masks: dropout masks in the order of their use.
        epochs: of as many updates each.
        lr: learning rate that the schedule scales.
        warmup: of the schedule, in epochs.
        milestones: of the schedule, in epochs.
        log: path of the file that receives what upstream prints.
        as_published: keep what differs from the recipe on purpose.
    """

    framework: str
    clones: str
    files: Sequence[str]
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
    """Recorder of a training, by hooks in its modules and backward passes; it supplies the dropout masks.

    Args:
        tensor: function of the framework that makes a tensor of an array.
    """

    def __init__(self, work: Work, tensor: Callable[[np.ndarray], Any]):
        self.work, self.tensor, self.masks = work, tensor, iter(work.masks)
        self.modules, self.curve = list[tuple[Any, Callable[[str], str]]](), Curve([], [], [], {}, {})

    def watch(self, module: Any, rename: Callable[[str], str] = str) -> Any:
        """Return a module, whose tensors belong to the model from its first call on; their names may be changed."""

        def begin(*_: Any) -> None:
            handle.remove()
            self.curve.initial.update(_tensors(module, rename))

        self.modules.append((module, rename))
        handle = module.register_forward_pre_hook(begin)
        return module

    def loader(self, make: Callable[[Any, Any], Any] = lambda *pair: pair) -> "Loader":
        """Return the loader of the batches, each of which is made of the tensors of an update's input and labels."""
        return Loader(self.work, lambda *arrays: make(*map(self.tensor, arrays)))

    def backward(self, loss: Any, backward: Callable[[Any], None]) -> None:
        """Call a framework's backward pass, and record the loss and the norm of the gradients."""
        self.curve.losses.append(loss.item())
        backward(loss)
        grads = [p.grad.numpy() for module, _ in self.modules for p in module.parameters() if p.grad is not None]
        self.curve.norms.append(float(sum(np.square(grad, dtype=np.float64).sum() for grad in grads)) ** 0.5)

    def dropout(self, x: Any, p: float, training: bool) -> Any:
        """Take the place of a framework's dropout, with the next mask."""
        if not training or p == 0:
            return x
        mask = next(self.masks).astype(self.work.dtype) / (1 - p)
        return x * self.tensor(mask.reshape(*x.shape[:2], *[1] * (x.ndim - 2)))

    def finish(self) -> Curve:
        """Return the record at the end of the training."""
        for module, rename in self.modules:
            self.curve.final.update(_tensors(module, rename))
        return self.curve


class Loader:
    """The batches as upstream's loaders return them: those of the next epoch whenever it is iterated over."""

    def __init__(self, work: Work, make: Callable[[np.ndarray, np.ndarray], Any]):
        self.work, self.make, self.numbers = work, make, iter(range(len(work.labels)))

    def __len__(self) -> int:
        return self.work.per_epoch

    def __iter__(self) -> Iterator[Any]:
        for _, number in zip(range(len(self)), self.numbers):
            yield self.make(self.work.inputs[number], self.work.labels[number])


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
        open(work.log, "a", encoding="utf-8", opener=durable.regular) as log,
        redirect_stdout(log),
        redirect_stderr(log),
        tempfile.TemporaryDirectory() as folder,
    ):
        os.chdir(folder)
        if work.framework == "torch" and importlib.util.find_spec("torchvision"):
            upstream.installed("torchvision")  # which looks for triton, the name of a folder of NVIDIA's
        recorder = RECORDERS[work.framework](work)
        try:
            program(work, recorder)
        except UserError:
            raise
        except (Exception, SystemExit) as error:  # of any kind, by another project's code
            traceback.print_exc(file=log)
            raise UserError(f"upstream's program failed, see {work.log}: {type(error).__name__}: {error}") from None
        return recorder.finish()


def record_torch(work: Work) -> Recorder:
    """Give PyTorch the type to compute in, let calls of CUDA do nothing, and start to record."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    def same(tensor: Any, *_: Any, **__: Any) -> Any:
        return tensor

    def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return recorder.dropout(x, p, training)

    recorder, backward = Recorder(work, torch.from_numpy), torch.Tensor.backward
    torch.set_default_dtype(getattr(torch, work.dtype))
    torch.manual_seed(0)
    replace(torch.Tensor, cuda=same, backward=lambda loss: recorder.backward(loss, backward))
    replace(torch.nn.Module, cuda=same)
    replace(torch.cuda, synchronize=MagicMock(), set_device=MagicMock())
    replace(torch.nn.functional, dropout=dropout, dropout2d=dropout)
    if not work.as_published:
        replace(torch.nn.utils, clip_grad_norm_=clip)
    register_optimizer_step_pre_hook(lambda optimizer, *_: recorder.curve.rates.append(optimizer.param_groups[0]["lr"]))
    return recorder


def record_paddle(work: Work) -> Recorder:
    """Give Paddle the type to compute in, keep it from choosing a GPU, and start to record."""
    import paddle

    def dropout(x: Any, p: float = 0.5, axis: None = None, training: bool = True, **_: Any) -> Any:
        return recorder.dropout(x, p, training)

    def step(optimizer: Any) -> None:
        recorder.curve.rates.append(optimizer.get_lr())
        update(optimizer)

    recorder, backward = Recorder(work, paddle.to_tensor), paddle.Tensor.backward
    update = paddle.optimizer.Optimizer.step
    dtype: Any = work.dtype
    paddle.set_default_dtype(dtype)
    paddle.seed(0)
    replace(paddle, set_device=lambda _: paddle.CPUPlace())
    replace(paddle.Tensor, backward=lambda loss: recorder.backward(loss, backward))
    replace(paddle.nn.functional, dropout=dropout)
    replace(paddle.optimizer.Optimizer, step=step)
    if not work.as_published:
        replace(paddle.nn.layer.norm, batch_norm=partial(batch_norm, paddle.nn.functional.batch_norm))
    return recorder


def replace(owner: Any, **attributes: Any) -> None:
    """Put functions in the place of those of a module or class."""
    for name, value in attributes.items():
        setattr(owner, name, value)


RECORDERS = {"torch": record_torch, "paddle": record_paddle}


def batch_norm(
    function: Callable[..., Any],
    x: Any,
    running_mean: Any,
    running_var: Any,
    *args: Any,
    momentum: float,
    **kwargs: Any,
) -> Any:
    """Normalize as Paddle's function, which takes momentum in fp32 and variance over n, but in fp64 and over n - 1."""
    count, rounded = x.size // x.shape[1], float(np.float32(momentum))
    before = running_mean.numpy(), running_var.numpy()
    result = function(x, running_mean, running_var, *args, momentum=momentum, **kwargs)
    for running, old, factor in zip((running_mean, running_var), before, (1, count / (count - 1))):
        new = (running.numpy() - rounded * old) / (1 - rounded)
        running.set_value(momentum * old + (1 - momentum) * factor * new)
    return result


def clip(parameters: Any, limit: float) -> None:
    """Clip the norm of gradients as torch.nn.utils.clip_grad_norm_, but without its 1e-6."""
    import torch

    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    factor = (limit / torch.nn.utils.get_total_norm(grads)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor)
