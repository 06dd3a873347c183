"""Settings of a run that all models share: the top level of a recipe, and its sections `train` and `optim`."""

import re
import typing
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from zoo.data.convert import convert
from zoo.data.fields import (
    Checked,
    Count,
    Doc,
    FilePath,
    Natural,
    NotNegative,
    Positive,
    Range,
    SettingError,
    Share,
    Word,
)
from zoo.frameworks import Framework


@dataclass(frozen=True)
class Duration:
    """Length of a stretch of training: `2 epochs`, `0.5 epochs`, `500 steps`; a bare number means steps.

    Attributes:
        value: Number of epochs or steps; steps are whole.
    """

    NOUNS: ClassVar = ("a duration such as 1 epoch or 500 steps", "durations")

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

    NOUNS: ClassVar = ("a rule", "rules such as {match: 'layer[12].*', lr: 0.1}")

    match: Annotated[Word, Doc("Regular expression that the whole canonical name of a parameter matches.")]
    lr: Annotated[NotNegative, Doc("Factor of the learning rate.")] = 1.0
    decay: Annotated[NotNegative, Doc("Factor of the weight decay.")] = 1.0
    freeze: Annotated[bool, Doc("Do not train these parameters.")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            re.compile(self.match)
        except re.error as error:
            raise SettingError("match", f"{self.match!r} is no regular expression: {error}") from None

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
                from zoo.config.suggestions import suggestion  # for mistakes alone

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

    epochs: Annotated[Count | None, Doc("Length of the run in epochs; give either epochs or steps.")] = None
    steps: Annotated[Count | None, Doc("Length of the run in updates; give either epochs or steps.")] = None
    batch: Annotated[Count, Doc("Samples per process and micro-batch; with global_batch, an upper limit.")] = 16
    accumulate: Annotated[Count, Doc("Micro-batches per update and process.")] = 1
    global_batch: Annotated[
        Count | None, Doc("Samples per update over all processes, from which micro-batch and accumulate follow.")
    ] = None
    eval_batch: Annotated[Count, Doc("Samples per process and batch in an evaluation.")] = 16
    precision: Annotated[
        Literal["fp32", "fp64", "exact", "amp", "fp16", "bf16"],
        Doc(
            "Number format of the training; amp: fp16 or bf16, as suits framework and device; exact: fp64 with "
            "rounded gradients, in which the frameworks agree for hundreds of steps."
        ),
    ] = "fp32"
    amp_level: Annotated[
        Literal["O1", "O2", "O3"] | None,
        Doc("Level of mixed precision; PyTorch and Paddle have O1, MindSpore all."),
    ] = None
    channels_last: Annotated[
        bool | None, Doc("Keep images in the memory format channels_last, in PyTorch; null: true.")
    ] = None
    compile: Annotated[
        bool | Literal["reduce-overhead", "max-autotune"] | None,
        Doc(
            "Compile the model: torch.compile (true, or a mode of it), Paddle's to_static, MindSpore's graph "
            "mode; null: with MindSpore alone."
        ),
    ] = None
    tf32: Annotated[bool, Doc("On NVIDIA GPUs, multiply fp32 numbers in TF32: faster, but not comparable.")] = False
    cudnn_benchmark: Annotated[
        bool | None,
        Doc(
            "Let cuDNN time its kernels, so that runs are not repeatable to the last bit; null: in 16 bits and "
            "with tf32."
        ),
    ] = None
    deterministic: Annotated[
        bool,
        Doc(
            "Repeat a run on the same machine to the last bit, if need be by slower kernels; an operation "
            "without one is an error."
        ),
    ] = False
    eval_precision: Annotated[
        Literal["fp32", "amp"], Doc("Number format of evaluations; amp: the 16-bit type that the run trains in.")
    ] = "fp32"
    checkpoint_activations: Annotated[
        bool, Doc("Compute activations again in the backward pass instead of keeping them.")
    ] = False
    shard_optimizer: Annotated[
        bool, Doc("Divide the optimizer's state among the processes (ZeRO-1), in PyTorch; the results are the same.")
    ] = False
    ema: Annotated[
        Share | None,
        Doc(
            "Decay of an exponential moving average of the weights, which is evaluated and saved beside them "
            "and selects the best checkpoint; null: none."
        ),
    ] = None
    ema_warmup: Annotated[
        bool, Doc("Let the average forget faster at first: decay (1 + t) / (10 + t) up to ema after t updates.")
    ] = True
    sync_bn: Annotated[bool, Doc("Compute batch statistics over all processes.")] = False
    fp16_allreduce: Annotated[bool, Doc("All-reduce gradients in fp16.")] = False
    straggler_timeout: Annotated[
        Count, Doc("Seconds after which a process that stays behind the others is given up.")
    ] = 300
    log_every: Annotated[Duration, Doc("Time between two log lines.")] = field(default=Duration.parse("20 steps"))
    eval_every: Annotated[Duration, Doc("Time between two evaluations.")] = field(default=Duration.parse("1 epoch"))
    save_every: Annotated[Duration, Doc("Time between two checkpoints.")] = field(default=Duration.parse("1 epoch"))
    eval_train_samples: Annotated[
        Natural, Doc("Training samples whose metric each evaluation adds, to compare; 0: none.")
    ] = 0
    early_stopping: Annotated[
        Count | None, Doc("Evaluations in a row without a better main metric that end the run; null: never.")
    ] = None
    log_images: Annotated[
        Natural, Doc("Samples of each evaluation that TensorBoard shows, beside other images; 0: no images.")
    ] = 8
    log_histograms: Annotated[
        bool, Doc("Show the distributions of weights and gradients at each evaluation in TensorBoard.")
    ] = False
    keep_checkpoints: Annotated[Count, Doc("Most recent checkpoints to keep, beside the best.")] = 3
    profile: Annotated[Duration | None, Doc("Updates to profile, such as 20 steps, once at the start; null: none.")] = (
        None
    )
    max_consecutive_skips: Annotated[Count, Doc("Updates in a row without a finite gradient that end the run.")] = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.epochs is None) == (self.steps is None):
            wrong = "is missing" if self.epochs is None else "is given twice"
            raise SettingError("epochs", f"the length of the run {wrong}; give one of train.epochs and train.steps")
        if self.fp16_allreduce and self.precision in ("fp64", "exact"):
            raise SettingError("fp16_allreduce", "would round the gradients of precision fp64; leave one of them out")
        if self.amp_level is not None and self.precision in ("fp32", "fp64", "exact"):
            raise SettingError("amp_level", "needs 16-bit precision, such as train.precision=amp")
        if self.eval_precision == "amp" and self.precision in ("fp32", "fp64", "exact"):
            raise SettingError("eval_precision", "amp is the 16-bit type of the training, as with train.precision=amp")
        if self.tf32 and self.precision in ("fp64", "exact"):
            raise SettingError("tf32", "would round the products of precision fp64; leave one of them out")
        self._check_determinism()
        for key in ("log_every", "eval_every", "save_every"):
            if getattr(self, key).value <= 0:
                raise SettingError(key, "must be above 0")
        if self.profile and (self.profile.unit != "steps" or not self.profile.value):
            raise SettingError("profile", "expected a number of steps above 0, such as '20 steps'")

    def _check_determinism(self) -> None:
        if self.deterministic and self.cudnn_benchmark:
            raise SettingError(
                "cudnn_benchmark",
                "kernels that are chosen by timing them are not those of the next run; leave it out with deterministic",
            )
        if self.deterministic and self.compile == "max-autotune":
            raise SettingError(
                "compile",
                "max-autotune chooses kernels by timing them, which are not those of the next "
                "run; take true with deterministic",
            )


@dataclass(frozen=True)
class Optim(Checked):
    """Section `optim`: the learning rate schedule, and what all optimizers have in common.

    A file of zoo/optim extends it by the hyper-parameters of an optimizer; optim.name is the name of the file.

    Attributes:
        slots: its tensors per parameter, such as a momentum.
        chosen_anew: keys whose value for one optimizer is none for another with another default.
    """

    name: ClassVar[str]
    slots: ClassVar[tuple[str, ...]]
    chosen_anew: ClassVar[tuple[str, ...]] = ("lr",)

    lr: Annotated[
        NotNegative, Doc("Learning rate at a global batch of base_batch; it is scaled linearly with the global batch.")
    ] = 0.1
    base_batch: Annotated[
        Count | None, Doc("Global batch that lr and min_lr are for; null: they are those of any global batch.")
    ] = 256
    schedule: Annotated[Word, Doc("Learning-rate schedule, a class of zoo/optim/schedules.py.")] = "step"
    milestones: Annotated[
        tuple[float, ...],
        Range(low=0, open_low=True),
        Doc("Epochs (steps, if the run has train.steps) at which the schedule step multiplies by gamma."),
    ] = ()
    gamma: Annotated[
        NotNegative,
        Doc("Factor of the schedules step and, once per epoch (step, if the run has train.steps), exponential."),
    ] = 0.1
    power: Annotated[NotNegative, Doc("Exponent of the schedule poly.")] = 0.9
    pct_start: Annotated[
        float,
        Range(low=0, high=1, open_low=True, open_high=True),
        Doc("Fraction of the steps in which the schedule one_cycle rises."),
    ] = 0.3
    div_factor: Annotated[float, Range(low=1), Doc("Divisor of lr at the start of the schedule one_cycle.")] = 25.0
    final_div_factor: Annotated[
        float, Range(low=1), Doc("Divisor of the start's learning rate at the end of the schedule one_cycle.")
    ] = 1e4
    min_lr: Annotated[
        NotNegative, Doc("Last value of the schedules linear, cosine and poly, at a global batch of base_batch.")
    ] = 0.0
    min_lr_at: Annotated[
        Literal["end", "last_step"], Doc("When min_lr is reached; end: one step after the last one.")
    ] = "end"
    update: Annotated[
        Literal["step", "epoch"], Doc("How often the learning rate changes; epoch: it is constant within an epoch.")
    ] = "step"
    warmup: Annotated[Duration, Doc("Length of the linear warm-up.")] = field(default=Duration.parse("0 steps"))
    warmup_start: Annotated[NotNegative, Doc("Fraction of the learning rate that the warm-up starts from.")] = 0.0
    warmup_offset: Annotated[
        Literal[0, 1] | None,
        Doc(
            "Steps (or epochs) that the warm-up is ahead; 1: its last one has the whole learning rate; null: 1 "
            "where the rate would be 0 throughout an epoch, else 0."
        ),
    ] = None
    weight_decay: Annotated[
        NotNegative, Doc("Weight decay; L2 regularization, or decoupled where the optimizer has that.")
    ] = 1e-4
    groups: Annotated[
        tuple[GroupRule, ...],
        Doc("Rules that change learning rate and weight decay of parameters by patterns of their names."),
    ] = ()
    clip_norm: Annotated[
        Positive | None, Doc("Maximum L2 norm of the gradient over all parameters; null: no clipping.")
    ] = None
    loss_scale: Annotated[Literal["dynamic"] | Positive, Doc("Loss scale in fp16; a number never changes.")] = "dynamic"
    initial_loss_scale: Annotated[Positive | None, Doc("First value of a dynamic loss scale; null: 65536.")] = None
    clip_sharded: Annotated[bool, Doc("Clip sharded parameters (a class matrix) too and count them in the norm.")] = (
        True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_lr > self.lr:
            raise SettingError("min_lr", "the last value of a schedule, so not above optim.lr")
        if self.loss_scale != "dynamic" and self.initial_loss_scale is not None:
            raise SettingError("initial_loss_scale", "belongs to optim.loss_scale=dynamic; leave one of them out")


@dataclass(frozen=True)
class Upstream(Checked):
    """Section `upstream`: the published code whose training the recipe repeats.

    A recipe inherits it from its base. One that changes what is computed sets `upstream: null`.
    """

    repository: Annotated[Word, Doc("Address of the repository, with https.")]
    commit: Annotated[Word, Doc("All 40 hexadecimal digits of the commit.")]
    files: Annotated[tuple[Word, ...], Doc("Paths in the repository: the settings, and the code that they select.")]
    train_samples: Annotated[
        Count | None, Doc("Samples of its training split, for --plan where the data are not at hand.")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"https://[^/\s]+/\S+", self.repository):
            raise SettingError("repository", f"expected an https address, got {self.repository!r}")
        if not re.fullmatch(r"[0-9a-f]{40}", self.commit):
            raise SettingError("commit", f"expected all 40 hexadecimal digits of a commit, got {self.commit!r}")
        if not self.files or any(not file or file.startswith("/") for file in self.files):
            raise SettingError("files", "expected at least one path, relative to the root of the repository")


DEFAULT_NAMES = {"optim.name": "sgd"}  # of sections whose settings class a name selects, where a recipe has none


@dataclass(frozen=True)
class Config(Checked):
    """Recipe. The settings classes of `model`, `data`, `task` and `optim` belong to the model, data set, task and
    optimizer that it names."""

    model: Annotated[Any, Doc("Model and its architecture.")]
    data: Annotated[Any, Doc("Data set, its augmentation and how it is read.")]
    task: Annotated[Any, Doc("Loss and evaluation of the model's task.")]
    train: Annotated[Train, Doc("Length of the run, batch sizes, precision, and what happens when.")]
    optim: Annotated[Optim, Doc("Optimizer and learning-rate schedule.")]
    framework: Annotated[Framework, Doc("Framework that trains.")] = "torch"
    device: Annotated[
        Word,
        Doc("Device: auto, cpu, cuda, cuda:N, npu, npu:N, tpu, cuda:all or mps, of those that the framework has."),
    ] = "auto"
    seed: Annotated[Natural, Doc("Seed of weights, order, augmentation and dropout.")] = 1
    out: Annotated[
        FilePath | None, Doc("Folder of the run; null: runs/<recipe>, or the next free number behind it.")
    ] = None
    weights: Annotated[
        FilePath | None,
        Doc("Initial weights: a checkpoint folder, a .safetensors file or a published name; null: random."),
    ] = None
    fresh_head: Annotated[bool, Doc("Initialize the classifier anew instead of loading it from weights.")] = False
    weights_dir: Annotated[FilePath | None, Doc("Folder of published weights; null: $ZOO_HOME/weights.")] = None
    target: Annotated[
        Annotated[float, Range(low=0, high=1, open_low=True)] | None,
        Doc("Main metric, as a fraction, that AI-Rank's target_quality_time counts up to."),
    ] = None
    warmup_epochs: Annotated[Natural, Doc("Epochs that AI-Rank's avg_ips leaves out.")] = 0
    listeners: Annotated[tuple[Word, ...], Doc("Further logs of the run: names of files of zoo/logs/listeners.")] = ()
    upstream: Annotated[Upstream | None, Doc("Published code whose training the recipe repeats; null: nobody's.")] = (
        None
    )
