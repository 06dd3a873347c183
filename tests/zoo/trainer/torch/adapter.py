"""PyTorch behind what the common cases need beside the trainer interface; every framework's adapter has these names."""

from types import SimpleNamespace

import numpy as np
import torch

from tests.zoo.trainer.torch.tiny import Identity, Linear, Tiny
from zoo.trainer.plan import Mode, ParamGroup, Plan
from zoo.trainer.torch import Trainer, ops, start
from zoo.trainer.torch import model as names
from zoo.trainer.torch.partial_fc import Margin, ParameterShard
from zoo.trainer.torch.trainer import build_objective
from zoo.trainer.world import Launch

__all__ = ["Identity", "Linear", "Tiny", "Trainer", "start"]

FRAMEWORK = "torch"
WORLD = start(Launch(), "cpu")
FP32_MODES = (Mode("fp32", None, True, False), Mode("fp32", None, False, False))  # those that a CPU has
FP64_MODES = tuple(mode._replace(compute="fp64") for mode in FP32_MODES)
SIXTEEN_BIT_MODES = (Mode("bf16", "O1", True, False), Mode("fp16", "O1", True, False))
CHECKPOINTED_MODES = FP32_MODES
GRADIENT_ATOL = 1e-7
PRODUCT_RTOL = 1e-5  # of a sum of products in 16 bits, over chunks
RECOMPUTED_RTOL = 0.0  # of an update with checkpointed activations
DEVICE = rf"cpu \({torch.get_num_threads()} threads.*\)"
RESOLVED_MODES = {  # on a CPU
    Mode("fp32"): Mode("fp32", None, True, False),
    Mode("fp64"): Mode("fp64", None, True, False),
    Mode("exact", None, False): Mode("fp64", None, False, False, True),
    Mode("fp32", "O1", False, True): Mode("fp32", None, False, True),
    Mode("amp"): Mode("bf16", "O1", True, False),
    Mode("bf16"): Mode("bf16", "O1", True, False),
    Mode("fp16", "O1", False, True): Mode("fp16", "O1", False, True),
    Mode("fp32", None, True, "max-autotune"): Mode("fp32", None, True, "max-autotune"),
}
REFUSED_MODES = {
    Mode("amp", "O2"): "there is no O2",
    Mode("bf16", "O3"): "there is no O3",
    Mode("fp32", None, None, "reduce-overhead"): "train.compile: .*CUDA graphs.* use true",
}
REFUSED_DEVICES = ("tpu", "gpu", "cuda:x", "npu:0", "cuda:99", *([] if torch.cuda.is_available() else ["cuda"]))


def make_loss_scale_dynamic(trainer, initial: float) -> None:
    """Do nothing: a CPU has fp16, with which the loss scale is dynamic."""


def make_loss_scale_static(trainer, initial: float) -> None:
    """Do nothing: a CPU has fp16, so the plan's loss scale counts."""


def batch_norm(dimensions: int, channels: int):
    """Return a model of one batch normalization over (N, C, ...) with so many dimensions after the channels."""
    return torch.nn.Sequential({2: torch.nn.BatchNorm2d, 3: torch.nn.BatchNorm3d}[dimensions](channels))


def load_tensors(model, arrays: dict[str, np.ndarray]) -> None:
    """Load any of a model's tensors by canonical name."""
    tensors = names.named_tensors(model)
    with torch.no_grad():
        for name, array in arrays.items():
            tensors[name].copy_(torch.from_numpy(array))


def shapes(model) -> dict[str, tuple[int, ...]]:
    """Return canonical name -> shape, in the order of the model's tensors."""
    return {name: tuple(tensor.shape) for name, tensor in names.named_tensors(model).items()}


def submodules(model) -> list[str]:
    return [name for name, _ in model.named_modules()]


def saved_bytes(trainer, batch: dict[str, np.ndarray]) -> int:
    """Return the bytes of the tensors that a forward pass saves for the backward pass, those of the model excepted."""
    saved, kept = {}, {tensor.data_ptr() for tensor in trainer.tensors.values()}

    def pack(tensor):
        if tensor.data_ptr() not in kept:
            saved[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    device_batch = trainer.to_device(batch)
    trainer.train_mode()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = trainer.train_forward(trainer.preprocess(device_batch[trainer.input_name]))
    assert output.requires_grad
    return sum(saved.values())


def statistics(model) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in names.named_tensors(model).items() if ".running_" in name}


def run(function, *arrays: np.ndarray) -> np.ndarray:
    """Apply a function of tensors without gradients."""
    with torch.no_grad():
        return function(*map(torch.from_numpy, arrays)).numpy()


def set_train(model, train: bool):
    return model.train(train)


def to_array(tensor) -> np.ndarray:
    return tensor.detach().numpy()


def to_tensor(array: np.ndarray):
    return torch.from_numpy(array)


def forward(trainer, batch: dict[str, np.ndarray], train: bool) -> list[np.ndarray]:
    """Return the model's outputs for a training batch, as the trainer computes them in training or in evaluation."""
    device_batch = trainer.to_device(batch)
    inputs = [trainer.preprocess(device_batch[trainer.input_name])]
    if train:
        trainer.train_mode()
        inputs += [device_batch[name] for name in trainer.plan.dropout_masks]
        outputs = trainer.train_forward(*inputs)
    else:
        trainer.model.eval()
        outputs = trainer.eval_forward(*inputs)
    return [to_array(output) for output in (outputs if isinstance(outputs, tuple) else (outputs,))]


def loss_of_logits(objective, logits: list[np.ndarray], label: np.ndarray, mode: Mode | None = None) -> tuple:
    """Return total and count of an objective without parameters, and the total's gradients by the logits."""
    plan = Plan((), (), lambda name: ParamGroup(1.0, 0.0), mode or FP32_MODES[0])
    objective, batch = build_objective(objective, None, plan), {"label": torch.from_numpy(label)}
    tensors = [torch.from_numpy(array).requires_grad_() for array in logits]
    total = objective.total(tuple(tensors), batch["label"])
    total.backward()
    return float(total.detach()), float(objective.count(batch)), *(tensor.grad.numpy() for tensor in tensors)


def gradient(function, x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return function(x) and the gradient of (function(x) * weight).sum() with respect to x."""
    source = torch.from_numpy(x.copy()).requires_grad_()
    y = function(source)
    (y * torch.from_numpy(weight)).sum().backward()
    assert np.array_equal(source.detach().numpy(), x)  # the input is left alone
    return y.detach().numpy(), source.grad.numpy()


def margin_loss(x, weight, labels, settings, mode) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the margin objective's loss, summed over samples, and its gradients by embeddings and class matrix."""
    arch = SimpleNamespace(num_classes=len(weight), embedding=weight.shape[1])
    objective = Margin(settings, arch, SimpleNamespace(seed=1, mode=mode), WORLD)
    objective.shard.values.data.copy_(torch.from_numpy(weight))
    output = torch.from_numpy(x).requires_grad_()
    (micro_batch,) = objective.begin([{"label": torch.from_numpy(labels)}], 0)
    loss = objective.total(output, micro_batch["target_rows"])
    loss.backward()
    return float(loss.detach()), output.grad.numpy(), objective.shard.values.grad.numpy()


def target_logits(cosines: np.ndarray, settings, norms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the target's cosines with their margin, for embeddings of these lengths, and the derivative."""
    averages = tuple(torch.tensor(value) for value in settings.statistics.values())
    quality = settings.quality(ops, torch.from_numpy(norms), averages)
    value, slope = settings.margin(ops, torch.from_numpy(cosines), quality)
    return value.numpy(), slope.numpy()


def choose_rows(classes, count, width, rate, seed, rank, size, step):
    """Return the shape of a rank's rows of a sharded class matrix, where `classes` lie among the rows that update
    `step` uses (-1: not on this rank), and which rows those are (None: all)."""
    world = SimpleNamespace(rank=rank, size=size, torch_device=torch.device("cpu"))
    shard = ParameterShard(count, width, rate, seed, world)
    if rate < 1:
        shard.sample_rows(classes, step)
    local = shard.rows_of(torch.from_numpy(classes)).numpy()
    return tuple(shard.values.shape), local, None if shard.index is None else shard.index.numpy()
