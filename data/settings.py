"""Settings that all data sets share: keys of the section `data` of every recipe."""

from dataclasses import dataclass
from typing import Annotated, Literal

from zoo.data import fields, mixing
from zoo.data.fields import Count, NotNegative, Positive, Probability, Range


@dataclass(frozen=True)
class LoaderSettings:
    """Settings that all data sets share."""

    workers: Annotated[int, Range(0)] | Literal["auto"] = 4  # processes that read ahead; 0: threads of this process;
    # auto: (cores - 1) / threads
    threads: Count = 2  # reading threads per process
    worker_memory_gb: Positive | None = 8.0  # gigabytes (10**9 bytes) of its own that a process that reads may hold
    # before all of them are started anew; null: no limit
    max_bad: Probability = 0.001  # a run stops when more than this fraction of an epoch's samples is unreadable
    eval_bad: Literal["error", "wrong"] = "error"  # an unreadable sample in an evaluation: stop, or count it as wrong
    loader: Literal["auto", "reference", "dali"] = "reference"  # what decodes images: dali gives the same samples with
    # nearly the same pixels; auto: dali where it is installed and decodes on the GPU
    dali_device: Literal["auto", "cpu", "gpu"] = "auto"  # where DALI decodes; auto: on the GPU of the run if it has one
    allow_missing_classes: bool = False  # let a run start although a class has no sample in one of the splits
    mixup: NotNegative = 0.0  # alpha of mixup, which blends each training sample with another one; 0: off
    cutmix: NotNegative = 0.0  # alpha of CutMix, which shows a part of another one; 0: off
    mix_prob: Probability = 1.0  # probability that a sample is mixed at all ...
    mix_switch: Probability = 0.5  # ... and then by CutMix, where both are on
    cache: str | None = None  # folder on a fast local disk for copies of the files that are read ...
    cache_gb: Positive = 100.0  # ... and how many gigabytes (10**9 bytes) it may hold
    checksum: Literal["sampled", "full"] = "sampled"  # how much the data checksum reads: some blocks of every large
    # file, or all bytes, which takes as long as reading the data set once

    def __post_init__(self) -> None:
        fields.check(self)
        mixing.check(self)
