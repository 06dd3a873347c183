"""Settings that all data sets share: keys of the section `data` of every recipe."""

from dataclasses import dataclass
from typing import Literal

from zoo.data import mixing


@dataclass(frozen=True)
class LoaderSettings:
    """Settings that all data sets share."""

    workers: int | Literal["auto"] = 4  # processes that read ahead; 0: threads of this process; auto: as suits
    threads: int = 2  # reading threads per process
    worker_memory_gb: float | None = 8.0  # gigabytes (10**9 bytes) of its own that a process that reads may hold before
    # all of them are started anew; null: no limit
    max_bad: float = 0.001  # a run stops when more than this fraction of an epoch's samples is unreadable
    eval_bad: Literal["error", "wrong"] = "error"  # an unreadable sample in an evaluation: stop, or count it as wrong
    loader: Literal["auto", "reference", "dali"] = "reference"  # what decodes images: dali gives the same samples with
    # nearly the same pixels; auto: the faster one for the first samples
    dali_device: Literal["auto", "cpu", "gpu"] = "auto"  # where DALI decodes; auto: on the GPU of the run if it has one
    allow_missing_classes: bool = False  # let a run start although a class has no sample in one of the splits
    mixup: float = 0.0  # alpha of mixup, which blends each training sample with another one; 0: off
    cutmix: float = 0.0  # alpha of CutMix, which shows a part of another one; 0: off
    mix_prob: float = 1.0  # probability that a sample is mixed at all ...
    mix_switch: float = 0.5  # ... and then by CutMix, where both are on
    cache: str | None = None  # folder on a fast local disk for copies of the files that are read ...
    cache_gb: float = 100.0  # ... and how many gigabytes (10**9 bytes) it may hold
    checksum: Literal["sampled", "full"] = "sampled"  # how much the data checksum reads: some blocks of every large
    # file, or all bytes, which takes as long as reading the data set once

    def __post_init__(self):
        if self.workers != "auto" and self.workers < 0:
            raise ValueError("workers: must not be negative")
        if self.threads < 1:
            raise ValueError("threads: must be at least 1")
        if self.worker_memory_gb is not None and not self.worker_memory_gb > 0:
            raise ValueError("worker_memory_gb: must be above 0, or null for no limit")
        if not 0 <= self.max_bad <= 1:
            raise ValueError("max_bad: must be a fraction between 0 and 1")
        mixing.check(self)
        if not self.cache_gb > 0:
            raise ValueError("cache_gb: must be above 0")
