"""A run: its case, its state, and its measured values, read from its journal or from an AI-Rank log of others."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

COMPLETE, INCOMPLETE, FAILED, SKIPPED, MIXED = "complete", "incomplete", "failed", "skipped", "mixed"


class Case(NamedTuple):
    """What the repeats of a measurement have in common. None: not known.

    Attributes:
        model: name of the model.
        recipe: name of the recipe.
        variant: of the code, in a matrix that compares several.
        framework: name of the framework.
        precision: `fp32`, or with 16 bits the recipe's word, the type and the level: `amp (fp16 O1)`.
        batch: samples per card and micro-batch.
        accumulate: micro-batches per update.
        nodes: number of hosts.
        cards: number of processes, one per card.
        device: name of the accelerator or of the processor.
        counting: how the throughput was counted, one of the words of docs/benchmarking.md.
    """

    model: str | None = None
    recipe: str | None = None
    variant: str | None = None
    framework: str | None = None
    precision: str | None = None
    batch: int | None = None
    accumulate: int | None = None
    nodes: int | None = None
    cards: int | None = None
    device: str | None = None
    counting: str | None = None

    @property
    def global_batch(self) -> int | None:
        """Samples per update."""
        if self.batch is None or self.cards is None:
            return None
        return self.batch * self.cards * (self.accumulate or 1)


class Point(NamedTuple):
    """A value in the course of a run.

    Attributes:
        samples: trained on so far; None if not known.
        seconds: since the run began, stops of a resumed run included.
        value: loss, or main metric as a fraction.
    """

    samples: float | None
    seconds: float | None
    value: float


class StepTimes(NamedTuple):
    """Time of an update in milliseconds: quantiles, and each one of a speed run."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    every: tuple[float, ...] = ()


class Values(NamedTuple):
    """What was measured in a run; None where nothing was.

    Attributes:
        samples_per_s: throughput, counted as the case says.
        avg_ips: throughput of the whole run by the definition of AI-Rank, evaluations included.
        steps: time of an update.
        data_wait: share of the time spent waiting for data.
        device_memory, host_memory: peaks in bytes, of the fullest device and of all processes of the run.
        joules_per_sample: energy of all devices.
        watts: mean power of all devices.
        best: highest main metric of any evaluation, a fraction.
        best_epoch: where it was measured.
        time_to_target: seconds from the beginning to the evaluation that reached the target.
        target_epoch: of that evaluation.
        total_time: seconds from the beginning to the end.
        evaluations: number of evaluations.
    """

    samples_per_s: float | None = None
    avg_ips: float | None = None
    steps: StepTimes = StepTimes()
    data_wait: float | None = None
    device_memory: float | None = None
    host_memory: float | None = None
    joules_per_sample: float | None = None
    watts: float | None = None
    best: float | None = None
    best_epoch: float | None = None
    time_to_target: float | None = None
    target_epoch: float | None = None
    total_time: float | None = None
    evaluations: int = 0


class Run(NamedTuple):
    """A run.

    Attributes:
        path: folder of the run, or file of the log.
        state: COMPLETE, INCOMPLETE, FAILED, SKIPPED by a benchmark, or MIXED: complete, its method changed by a resume.
        remark: how far it came, why it failed or was skipped, or what a resume changed; empty for a complete run.
        case: what its repeats have in common.
        values: what was measured.
        metric: name of the main metric.
        target: of the main metric, a fraction.
        protocol: id of the way of sampling and evaluating.
        checksum: of the data set.
        compute: type of the numbers: fp32, fp16, bf16 or fp64.
        tf32: whether fp32 may be computed in TF32.
        flops_per_sample: of a forward pass.
        facts: other fields of the event `begin` by name, for the record: versions, commit, machine.
        settings: beside its case (tools/bench/report/settings.py), as they were at its begin.
        changed: names of the settings that resumes changed.
        losses: training loss.
        metrics: main metric of each evaluation.
    """

    path: str
    state: str
    remark: str
    case: Case
    values: Values
    metric: str | None = None
    target: float | None = None
    protocol: str | None = None
    checksum: str | None = None
    compute: str | None = None
    tf32: bool = True
    flops_per_sample: float | None = None
    facts: Mapping[str, Any] = MappingProxyType({})
    settings: Mapping[str, str] = MappingProxyType({})
    changed: Sequence[str] = ()
    losses: Sequence[Point] = ()
    metrics: Sequence[Point] = ()
