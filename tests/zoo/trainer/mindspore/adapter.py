"""MindSpore behind what the common cases need beside the trainer interface; see tests/zoo/trainer/torch/adapter.py."""

from types import SimpleNamespace

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn

import zoo.trainer.mindspore as backend
from tests.zoo.trainer.mindspore.tiny import Identity, Linear, Tiny
from zoo.trainer.mindspore import model as names
from zoo.trainer.mindspore import ops, start
from zoo.trainer.mindspore.partial_fc import Margin, ParameterShard
from zoo.trainer.mindspore.update import build_objective, scalar
from zoo.trainer.plan import Mode, ParamGroup, Plan
from zoo.trainer.world import Launch

__all__ = ["Identity", "Linear", "Tiny", "Trainer", "start"]

FRAMEWORK = "mindspore"
WORLD = start(Launch(), "cpu")  # the device must be set before the first computation
FP32_MODES = (Mode("fp32", None, False, False), Mode("fp32", None, False, True))
FP64_MODES = tuple(mode._replace(compute="fp64") for mode in FP32_MODES)
SIXTEEN_BIT_MODES = tuple(Mode("fp16", level, False, True) for level in ("O1", "O2", "O3"))
CHECKPOINTED_MODES = FP32_MODES[1:]
PRODUCT_RTOL = 1e-5  # of a sum of products in 16 bits, over chunks
RECOMPUTED_RTOL = 0.0  # of an update with checkpointed activations
GRADIENT_ATOL = 5e-6  # its batch normalization's gradient is less exact on a CPU
DEVICE = r"cpu \(.*\)"
RESOLVED_MODES = {
    Mode("fp32"): Mode("fp32", None, False, True),
    Mode("fp64"): Mode("fp64", None, False, True),
    Mode("exact", None, None, False): Mode("fp64", None, False, False, True),
    Mode("fp32", "O2", False, False): Mode("fp32", None, False, False),
    Mode("amp"): Mode("fp16", "O1", False, True),
    Mode("fp16", "O3", None, True): Mode("fp16", "O3", False, True),
}
REFUSED_MODES = {
    Mode("bf16"): "no bf16 .*use fp16",
    Mode("fp32", None, True): "channels_last",
    Mode("fp32", None, None, "reduce-overhead"): "train.compile: reduce-overhead is a mode of torch.compile",
}
REFUSED_DEVICES = (
    "tpu",
    "gpu",
    "cpu:1",
    "cuda:x",
    "npu:99",
    "cuda:99",
    *([] if mindspore.hal.is_available("GPU") else ["cuda", "cuda:0"]),
)


def set_compile(compile: bool) -> None:
    """Choose graph mode or pynative mode, which belongs to the process."""
    mindspore.set_context(mode=mindspore.GRAPH_MODE if compile else mindspore.PYNATIVE_MODE)


class Trainer(backend.Trainer):
    """A trainer among others of another mode: a run has one trainer, these cases have many."""

    def step(self, *arguments, **options):
        set_compile(self.mode.compile)
        return super().step(*arguments, **options)

    def predict(self, *arguments, **options):
        set_compile(self.mode.compile)
        return super().predict(*arguments, **options)

    def predict_frame(self, *arguments, **options):
        set_compile(self.mode.compile)
        return super().predict_frame(*arguments, **options)


def make_loss_scale_dynamic(trainer, initial: float) -> None:
    """Do nothing: a CPU has fp16, with which the loss scale is dynamic."""


def make_loss_scale_static(trainer, initial: float) -> None:
    """Do nothing: a CPU has fp16, so the plan's loss scale counts."""


def batch_norm(dimensions: int, channels: int):
    return nn.SequentialCell({2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[dimensions](channels))


def load_tensors(model, arrays: dict[str, np.ndarray]) -> None:
    tensors = names.named_tensors(model)
    for name, array in arrays.items():
        tensors[name].set_data(Tensor(array))


def shapes(model) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in names.named_tensors(model).items()}


def submodules(model) -> list[str]:
    return [name for name, _ in model.cells_and_names()]


def saved_bytes(trainer, batch: dict[str, np.ndarray]) -> None:
    """MindSpore does not tell; the cases of MindSpore alone count the operators of the graph."""


def statistics(model) -> dict[str, np.ndarray]:
    return {name: tensor.asnumpy() for name, tensor in names.named_tensors(model).items() if ".running_" in name}


def run(function, *arrays: np.ndarray) -> np.ndarray:
    set_compile(False)
    return function(*map(Tensor, arrays)).asnumpy()


def set_train(model, train: bool):
    return model.set_train(train)


def to_array(tensor) -> np.ndarray:
    return tensor.asnumpy()


def to_tensor(array: np.ndarray):
    return Tensor(array)


def forward(trainer, batch: dict[str, np.ndarray], train: bool) -> list[np.ndarray]:
    set_compile(trainer.mode.compile)
    device_batch = trainer.to_device(batch)
    image, *masks = (device_batch[name] for name in trainer.inputs)
    outputs = trainer.train_forward(trainer.preprocess(image), *masks) if train else trainer.predictor(image)
    return [to_array(output) for output in (outputs if isinstance(outputs, tuple) else (outputs,))]


def loss_of_logits(objective, logits: list[np.ndarray], label: np.ndarray, mode: Mode | None = None) -> tuple:
    mode = mode or FP32_MODES[0]
    set_compile(mode.compile)
    plan = Plan((), (), lambda name: ParamGroup(1.0, 0.0), mode)
    objective, label = build_objective(objective, None, plan), Tensor(label)

    def loss(*tensors):
        return objective(tensors, label)

    positions = tuple(range(len(logits)))
    total, gradients = mindspore.value_and_grad(loss, positions)(*map(Tensor, logits))
    return float(total), float(objective.count({"label": label})), *(gradient.asnumpy() for gradient in gradients)


def gradient(function, x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    set_compile(False)
    source = Tensor(x)

    def weighted_sum(x):
        y = function(x)
        return (y * Tensor(weight)).sum(), y

    (_, y), to_x = mindspore.value_and_grad(weighted_sum, has_aux=True)(source)
    assert np.array_equal(source.asnumpy(), x)
    return y.asnumpy(), to_x.asnumpy()


def margin_loss(x, weight, labels, settings, mode) -> tuple[float, np.ndarray, np.ndarray]:
    set_compile(mode.compile)
    arch = SimpleNamespace(num_classes=len(weight), embedding=weight.shape[1])
    plan = Plan((), (), lambda name: ParamGroup(1.0, 0.0), mode, seed=1)
    objective = Margin(settings, arch, plan, WORLD)
    objective.parameter_shard.values.set_data(Tensor(weight))
    (micro_batch,) = objective.begin([{"label": Tensor(labels.astype(np.int32))}], 0)
    loss, to_x, to_weight = objective(Tensor(x), *(micro_batch[name] for name in objective.targets))
    return float(loss.asnumpy()), to_x.asnumpy(), to_weight.asnumpy()


def target_logits(cosines: np.ndarray, settings, norms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    set_compile(False)
    averages = tuple(Parameter(scalar(value), name) for name, value in settings.statistics.items())
    quality = settings.quality(ops, Tensor(norms), averages)
    value, slope = settings.margin(ops, Tensor(cosines), quality)
    return value.asnumpy(), slope.asnumpy()


def choose_rows(classes, count, width, rate, seed, rank, size, step):
    set_compile(False)
    plan = Plan((), (), lambda name: ParamGroup(1.0, 0.0), seed=seed)
    shard = ParameterShard(
        "head.weight", count, width, rate, plan, SimpleNamespace(rank=rank, size=size, device_type="cpu")
    )
    chosen = {
        name: array.asnumpy() for name, array in shard.sample_rows(Tensor(classes.astype(np.int32)), step).items()
    }
    assert shard.slots[0].shape == shard.values.shape
    return tuple(shard.values.shape), chosen["target_rows"], chosen.get("index")
