"""Settings of a run that all models share: the top level of a recipe, and its sections `train` and `optim`."""

import re
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from zoo.config.param_groups import GroupRule
from zoo.data.fields import Range


@dataclass(frozen=True)
class Duration:
    """Length of a stretch of training: `2 epochs`, `0.5 epochs`, `500 steps`; a bare number means steps.

    Attributes:
        value: Number of epochs or steps; steps are whole.
        unit: "epochs" or "steps".
    """

    value: Fraction
    unit: str

    @classmethod
    def parse(cls, text: Any) -> "Duration":
        """Parse a value of a recipe. Raises ValueError if it is not a duration."""
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(epochs?|steps?)?\s*", str(text))
        if not match or isinstance(text, bool):
            raise ValueError(f"expected a duration such as '1 epoch' or '500 steps', got {text!r}")
        unit = "epochs" if (match.group(2) or "steps").startswith("epoch") else "steps"
        if unit == "steps" and Fraction(match.group(1)).denominator != 1:
            raise ValueError(f"steps are whole, got {text!r}")
        return cls(Fraction(match.group(1)), unit)

    def __str__(self) -> str:
        number = f"{Decimal(self.value.numerator) / self.value.denominator:f}"
        return f"{number} {self.unit[:-1] if self.value == 1 else self.unit}"


@dataclass(frozen=True)
class Train:
    """Section `train`: length of the run, batch sizes, precision, and what happens when."""

    epochs: int | None = None  # length of the run, given by either epochs ...
    steps: int | None = None  # ... or steps
    batch: int = 16  # samples per process and micro-batch
    accumulate: int = 1  # micro-batches per update and process
    global_batch: int | None = None  # samples per update over all processes. If given, batch is an upper limit: the
    # largest micro-batch that divides the samples of a process evenly is taken, and accumulate follows from it
    eval_batch: int = 16  # samples per process in an evaluation
    precision: Literal["fp32", "fp64", "exact", "amp", "fp16", "bf16"] = "fp32"  # amp: fp16 or bf16, as suits
    # framework and device; exact: fp64, with rounded gradients, in which the frameworks agree for hundreds of steps
    amp_level: Literal["O1", "O2", "O3"] | None = None  # with 16 bits; PyTorch has O1, Paddle O1-2, MindSpore O1-3
    channels_last: bool | None = None  # memory format, in PyTorch; null: true
    compile: bool | Literal["reduce-overhead", "max-autotune"] | None = None  # torch.compile, or one of its modes;
    # Paddle's to_static, MindSpore's graph mode; null: MindSpore alone
    tf32: bool = False  # on NVIDIA GPUs, multiply fp32 numbers in TF32 (10 bits of mantissa): faster, not comparable
    cudnn_benchmark: bool | None = None  # let cuDNN time its kernels, so that runs are not repeatable to the last bit;
    # null: in 16 bits and with tf32
    deterministic: bool = False  # repeat a run on the same machine to the last bit, if need be by slower kernels; what
    # has no such kernel is an error
    eval_precision: Literal["fp32", "amp"] = "fp32"  # amp: evaluate in the 16-bit type that the run trains in
    checkpoint_activations: bool = False  # compute activations again in the backward pass instead of keeping them
    shard_optimizer: bool = False  # each process holds the optimizer's state of a share of the parameters,
    # updates these and sends them to the others (ZeRO-1), in PyTorch; the results are the same
    ema: float | None = None  # decay of an exponential moving average of the weights, such as 0.9999, which is
    # evaluated and saved beside them, and selects the best checkpoint; null: none
    ema_warmup: bool = True  # the average forgets faster at first: decay (1 + t) / (10 + t) up to ema after t updates
    sync_bn: bool = False  # batch statistics over all processes
    fp16_allreduce: bool = False  # all-reduce gradients in fp16
    straggler_timeout: int = 300  # seconds after which a process that stays behind the others is given up
    log_every: Duration = field(default=Duration.parse("20 steps"))
    eval_every: Duration = field(default=Duration.parse("1 epoch"))
    save_every: Duration = field(default=Duration.parse("1 epoch"))
    eval_train_samples: int = 0  # training samples whose metric each evaluation adds, to compare; 0: none
    early_stopping: int | None = None  # evaluations in a row without a better main metric that end the run
    log_images: int = 8  # samples of each evaluation that TensorBoard shows, beside other images; 0: no images
    log_histograms: bool = False  # show the distributions of weights and gradients at each evaluation
    keep_checkpoints: int = 3  # most recent checkpoints to keep, beside the best
    profile: Duration | None = None  # updates to profile, such as 20 steps, once at the start; null: none
    max_consecutive_skips: int = 50  # stop after this many updates in a row that had no finite gradient

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("epochs: give the length of the run by either train.epochs or train.steps, not both")
        for key in (
            "epochs",
            "steps",
            "batch",
            "accumulate",
            "global_batch",
            "eval_batch",
            "straggler_timeout",
            "early_stopping",
            "keep_checkpoints",
            "max_consecutive_skips",
        ):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise ValueError(f"{key}: must be at least 1")
        if self.ema is not None and not 0 <= self.ema < 1:
            raise ValueError("ema: the share that an update keeps must be at least 0 and below 1, such as 0.9999")
        for key in ("eval_train_samples", "log_images"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key}: must not be negative")
        if self.fp16_allreduce and self.precision in ("fp64", "exact"):
            raise ValueError("fp16_allreduce: would round the gradients of precision fp64; leave one of them out")
        if self.amp_level is not None and self.precision in ("fp32", "fp64", "exact"):
            raise ValueError("amp_level: needs 16-bit precision; give --amp or train.precision")
        if self.eval_precision == "amp" and self.precision in ("fp32", "fp64", "exact"):
            raise ValueError("eval_precision: amp is the 16-bit type of the training; give --amp or train.precision")
        if self.tf32 and self.precision in ("fp64", "exact"):
            raise ValueError("tf32: would round the products of precision fp64; leave one of them out")
        self._check_determinism()
        for key in ("log_every", "eval_every", "save_every"):
            if getattr(self, key).value <= 0:
                raise ValueError(f"{key}: must be above 0")
        if self.profile and (self.profile.unit != "steps" or not self.profile.value):
            raise ValueError("profile: expected a number of steps above 0, such as '20 steps'")

    def _check_determinism(self) -> None:
        if self.deterministic and self.cudnn_benchmark:
            raise ValueError(
                "cudnn_benchmark: kernels that are chosen by timing them are not those of the next run; "
                "leave it out with deterministic"
            )
        if self.deterministic and self.compile == "max-autotune":
            raise ValueError(
                "compile: max-autotune chooses kernels by timing them, which are not those of the next "
                "run; take true with deterministic"
            )


@dataclass(frozen=True)
class Optim:
    """Section `optim`: the learning rate schedule, and what all optimizers have in common.

    A file of zoo/optim extends it by the hyper-parameters of an optimizer; optim.name is the name of the file.

    Attributes:
        name: of the optimizer.
        slots: its tensors per parameter, such as a momentum.
    """

    name: ClassVar[str]
    slots: ClassVar[tuple[str, ...]]

    lr: float = 0.1  # at a global batch of base_batch; scaled linearly with the global batch
    base_batch: int | None = 256  # null: lr is that of any global batch
    schedule: str = "step"  # one of zoo/optim/schedules.py
    milestones: tuple[float, ...] = ()  # of schedule step: epochs (steps if the run has train.steps) at which
    # the learning rate is multiplied by gamma
    gamma: float = 0.1  # of the schedules step and, once per epoch (step if the run has train.steps), exponential
    power: float = 0.9  # of schedule poly
    pct_start: Annotated[float, Range(0, 1, above=True, below=True)] = 0.3  # of schedule one_cycle: the part of the
    # steps in which the learning rate rises, from lr / div_factor; it ends at lr / (div_factor * final_div_factor)
    div_factor: Annotated[float, Range(1)] = 25.0
    final_div_factor: Annotated[float, Range(1)] = 1e4
    min_lr: float = 0.0  # last value of the schedules linear, cosine and poly, at a global batch of base_batch
    min_lr_at: Literal["end", "last_step"] = "end"  # when min_lr is reached: one step after the last, or at the last
    update: Literal["step", "epoch"] = "step"  # epoch: the learning rate is constant within an epoch
    warmup: Duration = field(default=Duration.parse("0 steps"))  # linear, from warmup_start * lr
    warmup_start: float = 0.0
    warmup_offset: Literal[0, 1] = 0  # 1: the warm-up is one step (or epoch) ahead, so its last one has the whole lr
    weight_decay: float = 1e-4
    groups: tuple[GroupRule, ...] = ()  # factors of learning rate and weight decay by patterns of parameter names
    clip_norm: float | None = None  # maximum L2 norm of the gradient over all parameters
    loss_scale: Literal["dynamic"] | float = "dynamic"  # in fp16; a number: it never changes
    initial_loss_scale: float | None = None  # of a dynamic one; default 65536
    clip_sharded: bool = True  # false: leave sharded parameters (a class matrix) out of the norm, and do not clip them

    def __post_init__(self) -> None:
        for key in ("lr", "gamma", "power", "min_lr", "warmup_start", "weight_decay"):
            if not 0 <= getattr(self, key) < float("inf"):
                raise ValueError(f"{key}: must be a finite number, not below 0")
        if self.min_lr > self.lr:
            raise ValueError("min_lr: the last value of a schedule, so not above optim.lr")
        if self.base_batch is not None and self.base_batch < 1:
            raise ValueError("base_batch: must be at least 1")
        if self.loss_scale != "dynamic" and self.initial_loss_scale is not None:
            raise ValueError("initial_loss_scale: belongs to optim.loss_scale=dynamic; leave one of them out")
        for key in ("loss_scale", "initial_loss_scale"):
            if getattr(self, key) not in ("dynamic", None) and not 0 < getattr(self, key) < float("inf"):
                raise ValueError(f"{key}: must be a finite number above 0")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError("clip_norm: must be above 0, or null for no clipping")
        if any(not before < after < float("inf") for before, after in pairwise((0.0, *self.milestones))):
            raise ValueError("milestones: must increase, from above 0")


@dataclass(frozen=True)
class Upstream:
    """Section `upstream`: the published code whose training the recipe repeats.

    A recipe inherits it from its base. One that changes what is computed sets `upstream: null`.
    """

    repository: str  # https address
    commit: str  # 40 hexadecimal digits
    files: tuple[str, ...]  # paths in the repository: the settings, and the code that they select
    train_samples: int | None = None  # of its training split, for --plan where the data are not at hand

    def __post_init__(self) -> None:
        if not re.fullmatch(r"https://[^/\s]+/\S+", self.repository):
            raise ValueError(f"repository: expected an https address, got {self.repository!r}")
        if not re.fullmatch(r"[0-9a-f]{40}", self.commit):
            raise ValueError(f"commit: expected all 40 hexadecimal digits of a commit, got {self.commit!r}")
        if not self.files or any(not file or file.startswith("/") for file in self.files):
            raise ValueError("files: expected at least one path, relative to the root of the repository")
        if self.train_samples is not None and self.train_samples < 1:
            raise ValueError("train_samples: must be at least 1")


DEFAULT_NAMES = {"optim.name": "sgd"}  # of sections whose settings class a name selects, where a recipe has none


@dataclass(frozen=True)
class Config:
    """Recipe. The settings classes of `model`, `data`, `task` and `optim` belong to the model, data set, task and
    optimizer that it names."""

    model: Any
    data: Any
    task: Any
    train: Train
    optim: Optim
    framework: Literal["torch", "paddle", "mindspore"] = "torch"
    device: str = "auto"  # auto, cpu, cuda, cuda:1, npu, npu:1
    seed: int = 1
    out: str | None = None  # folder of the run; null: runs/<recipe>, runs/<recipe>-2, runs/<recipe>-3 ...
    weights: str | None = None  # initial weights: a checkpoint folder or a .safetensors file
    fresh_head: bool = False  # initialize the classifier anew instead of loading it from `weights`
    weights_dir: str = "weights"  # folder of published ImageNet weights, which are downloaded to it
    target: float | None = None  # target of the main metric, as a fraction, for AI-Rank's target_quality_time
    warmup_epochs: int = 0  # epochs that AI-Rank's avg_ips leaves out
    listeners: tuple[str, ...] = ()  # further logs of the run: names of files of zoo/logs/listeners
    upstream: Upstream | None = None  # null: the recipe repeats nobody's

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError("seed: must not be negative")
        if self.target is not None and not 0 < self.target <= 1:
            raise ValueError("target: must be a fraction in (0, 1], such as 0.711")
        if self.warmup_epochs < 0:
            raise ValueError("warmup_epochs: must not be negative")
