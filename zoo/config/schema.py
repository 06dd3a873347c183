"""Settings of a run that all models share: the top level of a recipe, and its sections `train` and `optim`."""

import re
import typing
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from zoo.config.convert import convert
from zoo.config.suggestions import suggestion
from zoo.data.fields import Checked, Count, FilePath, Natural, NotNegative, Positive, Range, Share, Word


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

    def plain(self) -> str:
        return str(self)

    def __str__(self) -> str:
        number = f"{Decimal(self.value.numerator) / self.value.denominator:f}"
        return f"{number} {self.unit[:-1] if self.value == 1 else self.unit}"


@dataclass(frozen=True)
class GroupRule(Checked):
    """Rule of `optim.groups`: changes for the parameters whose whole canonical name matches a pattern."""

    match: str  # regular expression
    lr: NotNegative = 1.0  # factor of the learning rate
    decay: NotNegative = 1.0  # factor of the weight decay
    freeze: bool = False  # do not train them

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            re.compile(self.match)
        except re.error as error:
            raise ValueError(f"match: {self.match!r} is no regular expression: {error}") from None

    @classmethod
    def parse(cls, value: Any) -> "GroupRule":
        """Parse an item of the list in a recipe. Raises ValueError if it is none."""
        example, hints = "{match: 'layer[12].*', lr: 0.1}", typing.get_type_hints(cls)
        if not isinstance(value, dict) or "match" not in value:
            raise ValueError(f"expected keys such as {example}, got {value!r}")
        if value.keys() == {"match"}:
            raise ValueError(f"{value!r} changes nothing; give lr, decay or freeze, such as {example}")
        values = {}
        for key, item in value.items():
            if key not in hints:
                raise ValueError(f"unknown key {key!r}{suggestion(str(key), list(hints))}")
            try:
                values[key] = convert(item, hints[key])
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
        return cls(**values)

    def plain(self) -> dict[str, Any]:
        """Return what `parse` reads: the keys that are not the defaults."""
        defaults = asdict(GroupRule(self.match))
        return {key: value for key, value in asdict(self).items() if key == "match" or value != defaults[key]}

    def __str__(self) -> str:
        factors = ("learning rate", self.lr), ("weight decay", self.decay)
        changes = [f"{name} x {factor:g}" for name, factor in factors if factor != 1]
        return ", ".join(["not trained"] if self.freeze else changes or ["unchanged"])

    def matches(self, name: str) -> bool:
        return re.fullmatch(self.match, name) is not None


@dataclass(frozen=True)
class Train(Checked):
    """Section `train`: length of the run, batch sizes, precision, and what happens when."""

    epochs: Count | None = None  # length of the run, given by either epochs ...
    steps: Count | None = None  # ... or steps
    batch: Count = 16  # samples per process and micro-batch
    accumulate: Count = 1  # micro-batches per update and process
    global_batch: Count | None = None  # samples per update over all processes. If given, batch is an upper limit: the
    # largest micro-batch that divides the samples of a process evenly is taken, and accumulate follows from it
    eval_batch: Count = 16  # samples per process in an evaluation
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
    ema: Share | None = None  # decay of an exponential moving average of the weights, such as 0.9999, which is
    # evaluated and saved beside them, and selects the best checkpoint; null: none
    ema_warmup: bool = True  # the average forgets faster at first: decay (1 + t) / (10 + t) up to ema after t updates
    sync_bn: bool = False  # batch statistics over all processes
    fp16_allreduce: bool = False  # all-reduce gradients in fp16
    straggler_timeout: Count = 300  # seconds after which a process that stays behind the others is given up
    log_every: Duration = field(default=Duration.parse("20 steps"))
    eval_every: Duration = field(default=Duration.parse("1 epoch"))
    save_every: Duration = field(default=Duration.parse("1 epoch"))
    eval_train_samples: Natural = 0  # training samples whose metric each evaluation adds, to compare; 0: none
    early_stopping: Count | None = None  # evaluations in a row without a better main metric that end the run
    log_images: Natural = 8  # samples of each evaluation that TensorBoard shows, beside other images; 0: no images
    log_histograms: bool = False  # show the distributions of weights and gradients at each evaluation
    keep_checkpoints: Count = 3  # most recent checkpoints to keep, beside the best
    profile: Duration | None = None  # updates to profile, such as 20 steps, once at the start; null: none
    max_consecutive_skips: Count = 50  # stop after this many updates in a row that had no finite gradient

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("epochs: give the length of the run by either train.epochs or train.steps, not both")
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
class Optim(Checked):
    """Section `optim`: the learning rate schedule, and what all optimizers have in common.

    A file of zoo/optim extends it by the hyper-parameters of an optimizer; optim.name is the name of the file.

    Attributes:
        name: of the optimizer.
        slots: its tensors per parameter, such as a momentum.
        chosen_anew: keys whose value for one optimizer is none for another with another default.
    """

    name: ClassVar[str]
    slots: ClassVar[tuple[str, ...]]
    chosen_anew: ClassVar[tuple[str, ...]] = ("lr",)

    lr: NotNegative = 0.1  # at a global batch of base_batch; scaled linearly with the global batch
    base_batch: Count | None = 256  # null: lr is that of any global batch
    schedule: Word = "step"  # one of zoo/optim/schedules.py
    milestones: Annotated[
        tuple[float, ...], Range(0, above=True)
    ] = ()  # of schedule step: epochs (steps if the run has
    # train.steps) at which the learning rate is multiplied by gamma
    gamma: NotNegative = 0.1  # of the schedules step and, once per epoch (step if the run has train.steps), exponential
    power: NotNegative = 0.9  # of schedule poly
    pct_start: Annotated[float, Range(0, 1, above=True, below=True)] = 0.3  # of schedule one_cycle: the part of the
    # steps in which the learning rate rises, from lr / div_factor; it ends at lr / (div_factor * final_div_factor)
    div_factor: Annotated[float, Range(1)] = 25.0
    final_div_factor: Annotated[float, Range(1)] = 1e4
    min_lr: NotNegative = 0.0  # last value of the schedules linear, cosine and poly, at a global batch of base_batch
    min_lr_at: Literal["end", "last_step"] = "end"  # when min_lr is reached: one step after the last, or at the last
    update: Literal["step", "epoch"] = "step"  # epoch: the learning rate is constant within an epoch
    warmup: Duration = field(default=Duration.parse("0 steps"))  # linear, from warmup_start * lr
    warmup_start: NotNegative = 0.0
    warmup_offset: Literal[0, 1] | None = None  # 1: the warm-up is one step (or epoch) ahead, so its last one has the
    # whole lr; null: 1 if the rate would be 0 throughout an epoch (update epoch, warmup_start 0), else 0
    weight_decay: NotNegative = 1e-4
    groups: tuple[GroupRule, ...] = ()  # factors of learning rate and weight decay by patterns of parameter names
    clip_norm: Positive | None = None  # maximum L2 norm of the gradient over all parameters
    loss_scale: Literal["dynamic"] | Positive = "dynamic"  # in fp16; a number: it never changes
    initial_loss_scale: Positive | None = None  # of a dynamic one; default 65536
    clip_sharded: bool = True  # false: leave sharded parameters (a class matrix) out of the norm, and do not clip them

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_lr > self.lr:
            raise ValueError("min_lr: the last value of a schedule, so not above optim.lr")
        if self.loss_scale != "dynamic" and self.initial_loss_scale is not None:
            raise ValueError("initial_loss_scale: belongs to optim.loss_scale=dynamic; leave one of them out")


@dataclass(frozen=True)
class Upstream(Checked):
    """Section `upstream`: the published code whose training the recipe repeats.

    A recipe inherits it from its base. One that changes what is computed sets `upstream: null`.
    """

    repository: Word  # https address
    commit: Word  # 40 hexadecimal digits
    files: tuple[Word, ...]  # paths in the repository: the settings, and the code that they select
    train_samples: Count | None = None  # of its training split, for --plan where the data are not at hand

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"https://[^/\s]+/\S+", self.repository):
            raise ValueError(f"repository: expected an https address, got {self.repository!r}")
        if not re.fullmatch(r"[0-9a-f]{40}", self.commit):
            raise ValueError(f"commit: expected all 40 hexadecimal digits of a commit, got {self.commit!r}")
        if not self.files or any(not file or file.startswith("/") for file in self.files):
            raise ValueError("files: expected at least one path, relative to the root of the repository")


DEFAULT_NAMES = {"optim.name": "sgd"}  # of sections whose settings class a name selects, where a recipe has none


@dataclass(frozen=True)
class Config(Checked):
    """Recipe. The settings classes of `model`, `data`, `task` and `optim` belong to the model, data set, task and
    optimizer that it names."""

    model: Any
    data: Any
    task: Any
    train: Train
    optim: Optim
    framework: Literal["torch", "paddle", "mindspore"] = "torch"
    device: Word = "auto"  # auto, cpu, cuda, cuda:1, npu, npu:1
    seed: Natural = 1
    out: FilePath | None = None  # folder of the run; null: runs/<recipe>, runs/<recipe>-2, runs/<recipe>-3 ...
    weights: FilePath | None = None  # initial weights: a checkpoint folder, a .safetensors file, a published name
    fresh_head: bool = False  # initialize the classifier anew instead of loading it from `weights`
    weights_dir: FilePath | None = None  # folder of published weights; null: $ZOO_HOME/weights (docs/weights.md)
    target: Annotated[float, Range(0, 1, above=True)] | None = None  # of the main metric, as a fraction, for AI-Rank's
    # target_quality_time
    warmup_epochs: Natural = 0  # epochs that AI-Rank's avg_ips leaves out
    listeners: tuple[Word, ...] = ()  # further logs of the run: names of files of zoo/logs/listeners
    upstream: Upstream | None = None  # null: the recipe repeats nobody's
