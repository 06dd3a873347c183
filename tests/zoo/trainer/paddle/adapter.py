"""Paddle behind what the common cases need beside the trainer interface; see tests/zoo/trainer/torch/adapter.py."""

import os
from types import SimpleNamespace

import numpy as np
import paddle
from paddle.base import core

from tests.zoo.trainer.paddle.tiny import Identity, Linear, Tiny
from zoo.trainer.paddle import Trainer, batchnorm, ops, start
from zoo.trainer.paddle import model as names
from zoo.trainer.paddle.partial_fc import Margin, ParameterShard
from zoo.trainer.paddle.trainer import build_objective
from zoo.trainer.plan import Mode, ParamGroup, Plan
from zoo.trainer.update import LossScaler
from zoo.trainer.world import Launch

__all__ = ["Identity", "Linear", "Tiny", "Trainer", "start"]

FRAMEWORK = "paddle"
ON_CPU = not paddle.device.get_available_custom_device()  # else on the device of tests/card/paddle
WORLD = start(Launch(), "cpu" if ON_CPU else "npu")
FP32_MODES = (Mode("fp32", None, False, False), Mode("fp32", None, False, True))
FP64_MODES = tuple(mode._replace(compute="fp64") for mode in FP32_MODES[:1])
SIXTEEN_BIT_MODES = () if ON_CPU else (Mode("fp16", "O1", False, False), Mode("bf16", "O1", False, False))
CHECKPOINTED_MODES = FP32_MODES[:1]
GRADIENT_ATOL = 1e-7
PRODUCT_RTOL = 1e-3  # of a sum of products in 16 bits, over chunks: each is rounded to fp16
RECOMPUTED_RTOL = 0.0  # of an update with checkpointed activations
DEVICE = rf"cpu \({os.environ['OMP_NUM_THREADS']} threads\)"
RESOLVED_MODES = {
    Mode("fp32"): Mode("fp32", None, False, False),
    Mode("fp64"): Mode("fp64", None, False, False),
    Mode("exact"): Mode("fp64", None, False, False, True),
    Mode("fp32", "O2", False, True): Mode("fp32", None, False, True),
}
REFUSED_MODES = {
    Mode("amp"): "--framework torch",
    Mode("fp16"): "no 16-bit",
    Mode("bf16"): "silently",
    Mode("fp32", None, True): "channels_last",
    Mode("fp64", None, True): "channels_last",
    Mode("exact", None, None, True): "train.compile",
    Mode("fp32", None, None, "max-autotune"): "train.compile: max-autotune is a mode of torch.compile",
}
if not ON_CPU:
    DEVICE = "npu:0"
    RESOLVED_MODES = {
        Mode("fp32", "O2", False, True): Mode("fp32", None, False, True),
        Mode("amp"): Mode("fp16", "O1", False, False),
        Mode("bf16", None, False, True): Mode("bf16", "O1", False, True),
    }
    REFUSED_MODES = {
        Mode("fp16", "O2"): "its O2 would round nothing more",
        Mode("fp64"): "fp64 is for CPUs and GPUs, not for npu:0; use --device cpu",
        Mode("exact"): "fp64 is for CPUs and GPUs, not for npu:0; use --device cpu",
    }
REFUSED_DEVICES = ("tpu", "gpu", "cpu:0", "cuda:x", "npu:99", "cuda:99")


def make_loss_scale_dynamic(trainer, initial: float) -> None:
    """Make the loss scale dynamic, as it is in fp16, which a CPU lacks."""
    scaler = trainer.scaler
    trainer.scaler = LossScaler(scaler.ops, scaler.tensor, True, initial)


def make_loss_scale_static(trainer, initial: float) -> None:
    """Give the trainer the loss scale that it would have in fp16, which a CPU lacks."""
    scaler = trainer.scaler
    trainer.scaler = LossScaler(scaler.ops, scaler.tensor, False, initial)


def batch_norm(dimensions: int, channels: int):
    return converted(paddle.nn.Sequential({2: paddle.nn.BatchNorm2D, 3: paddle.nn.BatchNorm3D}[dimensions](channels)))


def converted(model):
    """Convert the batch normalizations of a model as the trainer does."""
    if batchnorm.updates_biased_variance(paddle.CPUPlace()):
        batchnorm.convert_batchnorm(model)
    return model


def load_tensors(model, arrays: dict[str, np.ndarray]) -> None:
    tensors, transposed = names.named_tensors(converted(model)), names.transposed(model)
    for name, array in arrays.items():
        names.copy_into(tensors[name], array, name in transposed)


def shapes(model) -> dict[str, tuple[int, ...]]:
    transposed = names.transposed(model)
    return {
        name: tuple(tensor.shape[::-1] if name in transposed else tensor.shape)
        for name, tensor in names.named_tensors(model).items()
    }


def submodules(model) -> list[str]:
    return [name for name, _ in model.named_sublayers()]


def saved_bytes(trainer, batch: dict[str, np.ndarray]) -> int:
    """Return the bytes that a forward pass allocates and keeps, while there may be a backward pass."""
    inputs = [trainer.preprocess(trainer.to_device(batch)[trainer.input_name])]
    trainer.train_mode()
    before = core.host_memory_stat_current_value("Allocated", 0)
    output = trainer.train_forward(inputs)
    assert not output.stop_gradient
    return core.host_memory_stat_current_value("Allocated", 0) - before


def statistics(model) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in names.named_tensors(model).items() if ".running_" in name}


def run(function, *arrays: np.ndarray) -> np.ndarray:
    with paddle.no_grad():
        return function(*map(paddle.to_tensor, arrays)).numpy()


def set_train(model, train: bool):
    (model.train if train else model.eval)()
    return model


def to_array(tensor) -> np.ndarray:
    return tensor.numpy()


def to_tensor(array: np.ndarray):
    return paddle.to_tensor(array)


def forward(trainer, batch: dict[str, np.ndarray], train: bool) -> list[np.ndarray]:
    device_batch = trainer.to_device(batch)
    inputs = [trainer.preprocess(device_batch[trainer.input_name])]
    if train:
        trainer.train_mode()
        inputs += [device_batch[name] for name in trainer.plan.dropout_masks]
        outputs = trainer.train_forward(inputs)
    else:
        trainer.model.eval()
        outputs = trainer.eval_forward(inputs)
    return [to_array(output) for output in (outputs if isinstance(outputs, tuple) else (outputs,))]


def loss_of_logits(objective, logits: list[np.ndarray], label: np.ndarray, mode: Mode | None = None) -> tuple:
    plan = Plan((), (), lambda name: ParamGroup(1.0, 0.0), mode or FP32_MODES[0])
    objective, batch = build_objective(objective, None, plan), {"label": paddle.to_tensor(label)}
    tensors = [paddle.to_tensor(array, stop_gradient=False) for array in logits]
    total = objective.total(tuple(tensors), batch["label"])
    total.backward()
    return float(total), float(objective.count(batch)), *(tensor.grad.numpy() for tensor in tensors)


def gradient(function, x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    source = paddle.to_tensor(x, stop_gradient=False)
    y = function(source)
    (y * paddle.to_tensor(weight)).sum().backward()
    assert np.array_equal(source.numpy(), x)
    return y.numpy(), source.grad.numpy()


def margin_loss(x, weight, labels, settings, mode) -> tuple[float, np.ndarray, np.ndarray]:
    arch = SimpleNamespace(num_classes=len(weight), embedding=weight.shape[1])
    objective = Margin(settings, arch, Plan((), (), lambda name: ParamGroup(1.0, 0.0), mode), WORLD)
    objective.shard.values.set_value(weight)
    output = paddle.to_tensor(x, stop_gradient=False)
    (micro_batch,) = objective.begin([{"label": paddle.to_tensor(labels)}], 0)
    loss = objective.total(output, micro_batch["target_rows"])
    loss.backward()
    return float(loss), output.grad.numpy(), objective.shard.values.grad.numpy()


def target_logits(cosines: np.ndarray, settings, norms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    averages = tuple(paddle.full((), value) for value in settings.statistics.values())
    quality = settings.quality(ops, paddle.to_tensor(norms), averages)
    value, slope = settings.margin(ops, paddle.to_tensor(cosines), quality)
    return value.numpy(), slope.numpy()


def choose_rows(classes, count, width, rate, seed, rank, size, step):
    shard = ParameterShard(count, width, rate, seed, SimpleNamespace(rank=rank, size=size))
    local = shard.sample_rows(paddle.to_tensor(classes), step).numpy()
    return tuple(shard.values.shape), local, None if shard.index is None else shard.index.numpy()
