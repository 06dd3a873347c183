"""The settings of a run that are the same for every model: the recipe's top level, `train:` and `optim:`."""

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal


@dataclass(frozen=True)
class Span:
    """A stretch of training: `2 epochs`, `0.5 epochs`, `500 steps`; a bare number means steps."""

    value: Fraction
    unit: str  # epochs or steps

    @classmethod
    def parse(cls, text: Any) -> "Span":
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(epochs?|steps?)?\s*", str(text))
        if not match or isinstance(text, bool):
            raise ValueError(f"expected a span such as '1 epoch' or '500 steps', got {text!r}")
        unit = "epochs" if (match.group(2) or "steps").startswith("epoch") else "steps"
        if unit == "steps" and Fraction(match.group(1)).denominator != 1:
            raise ValueError(f"steps are whole, got {text!r}")
        return cls(Fraction(match.group(1)), unit)

    def __str__(self) -> str:
        number = f"{Decimal(self.value.numerator) / self.value.denominator:f}"
        return f"{number} {self.unit[:-1] if self.value == 1 else self.unit}"


@dataclass(frozen=True)
class Train:
    """The `train:` section: how long, how much at once, in which precision, and what happens when."""

    epochs: int | None = None  # length of the run: this ...
    steps: int | None = None  # ... or this
    batch: int = 16  # samples per process and micro-step
    accumulate: int = 1  # micro-steps per update
    global_batch: int | None = None  # samples per update over all processes: batch becomes the largest size not
    # above itself that fits, accumulate what is left
    eval_batch: int = 16  # samples per process
    precision: Literal["fp32", "amp", "fp16", "bf16"] = "fp32"  # amp: the 16 bits that the framework does best here
    amp_level: Literal["O1", "O2", "O3"] | None = None  # of 16 bits; PyTorch O1, Paddle O1-2, MindSpore O1-3
    channels_last: bool | None = None  # memory layout; null: as the framework does best
    compile: bool | None = None  # torch.compile, Paddle's to_static, MindSpore's graph mode (null: that one)
    sync_bn: bool = False  # batch statistics over all processes
    fp16_allreduce: bool = False  # gradients travel between processes as fp16
    straggler_timeout: int = 300  # seconds to wait for a process that stays behind the others
    log_every: Span = Span.parse("20 steps")
    eval_every: Span = Span.parse("1 epoch")
    save_every: Span = Span.parse("1 epoch")
    keep: int = 3  # last checkpoints to keep, beside the best
    max_consecutive_skips: int = 50  # stop after this many updates in a row without a finite gradient

    def __post_init__(self):
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("epochs: a run's length is given by either train.epochs or train.steps, not both or none")
        for key in (
            "epochs",
            "steps",
            "batch",
            "accumulate",
            "global_batch",
            "eval_batch",
            "straggler_timeout",
            "keep",
            "max_consecutive_skips",
        ):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise ValueError(f"{key}: must be at least 1")
        if self.amp_level is not None and self.precision == "fp32":
            raise ValueError("amp_level: a level of 16-bit computing; ask for it with --amp or train.precision")
        for key in ("log_every", "eval_every", "save_every"):
            if getattr(self, key).value <= 0:
                raise ValueError(f"{key}: must be more than nothing")


@dataclass(frozen=True)
class Optim:
    """The `optim:` section: SGD with momentum, and its learning rate."""

    lr: float = 0.1  # at a global batch of base_batch; scaled in proportion
    base_batch: int = 256
    schedule: Literal["constant", "step", "cosine", "poly"] = "step"
    milestones: tuple[float, ...] = ()  # step: where the rate is multiplied by gamma; in the unit of the length
    gamma: float = 0.1
    power: float = 0.9  # poly
    min_lr: float = 0.0  # where cosine and poly end; at a global batch of base_batch, as lr
    warmup: Span = Span.parse("0 steps")  # linear from warmup_start * rate
    warmup_start: float = 0.0
    momentum: float = 0.9
    weight_decay: float = 1e-4
    clip_norm: float | None = None  # of the gradient over all parameters, L2
    clip_sharded: bool = True  # false: parameters split over processes (a class matrix) neither count
    # nor are clipped

    def __post_init__(self):
        for key in ("lr", "gamma", "power", "min_lr", "warmup_start", "momentum", "weight_decay"):
            if not 0 <= getattr(self, key) < float("inf"):
                raise ValueError(f"{key}: must be a finite number, not below 0")
        if self.min_lr and (self.min_lr > self.lr or self.schedule not in ("cosine", "poly")):
            raise ValueError("min_lr: where the schedules cosine and poly end, so not above optim.lr")
        if self.base_batch < 1:
            raise ValueError("base_batch: must be at least 1")
        if self.momentum >= 1:
            raise ValueError("momentum: must be below 1")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError("clip_norm: must be above 0, or null for no clipping")
        marks = (0.0,) + self.milestones
        if any(not before < after < float("inf") for before, after in zip(marks, marks[1:])):
            raise ValueError("milestones: must rise, from above 0")


@dataclass(frozen=True)
class Config:
    """A recipe. `model`, `data` and `task` hold the settings of the modules they name."""

    model: Any
    data: Any
    task: Any
    train: Train
    optim: Optim
    framework: Literal["torch", "paddle", "mindspore"] = "torch"
    device: str = "auto"  # auto, cpu, cuda, cuda:1, npu, npu:1
    seed: int = 1
    out: str | None = None  # folder of the run; default runs/<recipe>, -2, -3 ...
    weights: str | None = None  # start from these weights: a checkpoint folder or a .safetensors file
    fresh_head: bool = False  # with weights: leave their classifier out
    weights_dir: str = "weights"  # where published ImageNet weights lie or are put
    target: float | None = None  # of the main metric, as a fraction: stamps AI-Rank's target_quality_time
    warmup_epochs: int = 0  # epochs that AI-Rank's avg_ips leaves out

    def __post_init__(self):
        if self.seed < 0:
            raise ValueError("seed: must not be negative")
        if self.target is not None and not 0 < self.target <= 1:
            raise ValueError("target: a fraction in (0, 1], so 0.711 and not 71.1")
        if self.warmup_epochs < 0:
            raise ValueError("warmup_epochs: must not be negative")
