"""Plan of a trainer: how it computes, and how it updates each parameter."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zoo.data.batch import Field
from zoo.optim import load_settings
from zoo.optim.ema import Ema
from zoo.tasks import load_task
from zoo.trainer.update import INITIAL_SCALE


class Mode(NamedTuple):
    """Precision, memory format and compilation of a run; None leaves the choice to the framework and the device.

    Attributes:
        compute: "fp32", "fp64", "fp16" or "bf16"; in a request also "amp", the device's usual 16-bit type, and "exact",
            fp64 with rounded gradients. In fp64, nothing in an update or a prediction is rounded to fp32.
        level: 16-bit operations: O1 convolutions and matrix products, O2 all but normalizations, O3 all.
            None in a resolved mode means that there are none.
        channels_last: memory format of images and convolution weights.
        compile: compile the model (torch.compile, to_static, graph mode); in PyTorch also a mode of torch.compile,
            reduce-overhead or max-autotune.
        rounds_gradients: with fp64, round gradients (zoo/trainer/update.py). In it, differences of 1e-16 between
            frameworks vanish; otherwise they would grow from update to update.
    """

    compute: str
    level: str | None = None
    channels_last: bool | None = None
    compile: bool | str | None = None
    rounds_gradients: bool = False

    @property
    def is_fp64(self) -> bool:
        return self.compute == "fp64"

    @property
    def is_mixed(self) -> bool:
        """Whether some operations compute in 16 bits."""
        return self.compute not in ("fp32", "fp64")


class Arithmetic(NamedTuple):
    """Liberties of a library with fp32 numbers on a GPU; it holds for the whole process.

    Attributes:
        tf32: multiply fp32 matrices and convolve in TF32.
        cudnn_benchmark: let cuDNN choose its kernels by timing them, so that repeated runs may differ in the last bit.
        deterministic: use kernels alone whose results are the same bits in every run.
    """

    tf32: bool = False
    cudnn_benchmark: bool = False
    deterministic: bool = False


class ParamGroup(NamedTuple):
    """Hyper-parameters of a parameter.

    Attributes:
        lr_scale: factor of the learning rate; 0 freezes the parameter.
        weight_decay: L2 penalty, added to the clipped gradient.
    """

    lr_scale: float
    weight_decay: float


_FP32 = Mode("fp32", None, False, False)


@dataclass(frozen=True)
class Plan:
    """Everything that a compiled step must know beforehand.

    Attributes:
        fields: of a training batch: first the model's input, then the objective's targets, then the dropout masks.
        dropout_masks: names of the fields that are dropout masks, in the order of the model's arguments.
        param_group: hyper-parameters of each parameter, by canonical name. A batch normalization whose weight and
            bias are both frozen uses its running statistics.
        mode: as resolved by World.resolve_mode.
        loss_scale: initial value of the loss scale, which fp16 alone uses.
        dynamic_loss_scale: adapt the loss scale; otherwise it never changes.
        optimizer: section `optim` of a recipe, whose class in zoo/optim has the formula.
        ema: moving average of weights and running statistics; None for none.
        shard_optimizer: each rank holds the slots of some parameters alone and updates these for all ranks.
        clip_norm: largest norm of the gradient; None does not clip.
        sync_bn: normalize training batches with statistics over all ranks, not over each rank's own samples.
        fp16_allreduce: all-reduce gradients in fp16.
        clip_sharded: include the gradients of sharded parameters in the norm, and clip them too.
        fp32_modules: names of the model's modules that compute in fp32 in every mode.
        checkpointed_modules: names of the model's modules whose activations the backward pass computes again.
        eval_mixed: predict in the mode's 16-bit type; otherwise in fp32, or fp64.
        seed: of the sampling within a step, together with the step's number.
        output: what makes predictions of the model's outputs: an Output of zoo/tasks.
    """

    fields: tuple[Field, ...]
    dropout_masks: tuple[str, ...]
    param_group: Callable[[str], ParamGroup]
    mode: Mode = _FP32
    loss_scale: float = INITIAL_SCALE
    dynamic_loss_scale: bool = True
    optimizer: Any = field(default_factory=lambda: load_settings("sgd")())
    ema: Ema | None = None
    shard_optimizer: bool = False
    clip_norm: float | None = None
    accumulate: int = 1
    sync_bn: bool = False
    fp16_allreduce: bool = False
    clip_sharded: bool = True
    fp32_modules: tuple[str, ...] = ()
    checkpointed_modules: tuple[str, ...] = ()
    eval_mixed: bool = False
    seed: int = 0
    output: Any = field(default_factory=lambda: load_task("classify").output({}))

    @property
    def first_scale(self) -> float:
        """Loss scale of the first update: 1 where nothing computes in fp16."""
        return self.loss_scale if self.mode.compute == "fp16" else 1.0

    @property
    def adapts_scale(self) -> bool:
        return self.dynamic_loss_scale and self.mode.compute == "fp16"

    def is_frozen(self, name: str) -> bool:
        lr_scale, _ = self.param_group(name)
        return lr_scale == 0
