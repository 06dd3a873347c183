"""The proof with two processes: a few updates of two micro-batches each, whose gradients and statistics are shared."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.compare import causes, opinions, proof, updates
from zoo.compare.findings import Finding, opinion_findings, optimizer_findings
from zoo.config.schema import Config
from zoo.data.batch import Batch
from zoo.parity.differences import Event, Records, distance, events
from zoo.parity.record import Record, empty
from zoo.run import checkpoint, resume
from zoo.run.job import Job
from zoo.trainer.state import ema_key, with_averages

COUNT = 2  # processes
UPDATES = 2
MICRO_BATCHES = 2  # of an update, at least: gradients are reduced once
TOLERANCE = {"fp64": 1e-8, "fp32": 1e-3}  # of the largest value of a kind: between two frameworks
AFTER_GRADIENT = ("change", "optimizer", "ema")  # parts of an update that an optimizer makes of a gradient
MEAN_TOLERANCE = 1e-6  # relative: of a mean over ranks


def record(
    job: Job,
    cfg: Config,
    compute: str,
    weights: proof.Tensors,
    batches: Sequence[Batch],
    run: str,
    other: str | None = None,
) -> Record:
    """Run the updates; called by all ranks.

    Args:
        batches: this rank's micro-batches of UPDATES updates, at least.
        run: folder for a checkpoint.
        other: folder with the checkpoint of another framework, from which this one goes on.
    """
    count = max(job.plan.accumulate, MICRO_BATCHES)
    lr, weights = proof.peak_lr(job), proof.varied(weights)
    trainer: Any = proof.make_trainer(job, cfg, compute, count)
    trainer.load_state_dict(with_averages(weights, job.plan))
    result = empty(job.framework, compute, causes.settings_of(job, cfg, weights, batches[0], lr))
    result.files.update(causes.files_of(trainer, cfg.task))
    result.passes["training"] = []
    result.settings["opinions"] = [list(opinion) for opinion in opinions.of_recipe(job, cfg)]
    for number in range(UPDATES):
        part = batches[number * count : (number + 1) * count]
        on_device = [trainer.to_device(batch) for batch in part]
        updates.add_update(result, job, trainer, on_device, lr, number)
        if number == 0 and opinions.is_judged(job, trainer):
            loss, gradients = result.steps[0]["loss"], trainer.gradients()
            found = opinions.of_loss(job, trainer, weights, gradients, on_device, part, loss)
            result.settings["opinions"] += [[what, [*_places(result), *result.files["objective"]]] for what in found]
    result.settings["apart"] = [*_unequal(job, trainer), *_not_the_mean(job, trainer, run)]
    part = [trainer.to_device(batch) for batch in batches[:count]]
    result.settings["continued"] = _continued(job, trainer, part, lr, other or run)
    return result


def _unequal(job: Job, trainer: Any) -> Iterator[str]:
    """Yield what should be the same on all ranks and is not."""
    own = {param.name for param in trainer.params if param.is_statistic or param.rows}
    state = trainer.state_dict()
    shared = [key for key in state if not any(key == name or key.endswith(f"/{name}") for name in own)]
    checksums = {key: zlib.crc32(state[key].tobytes()) for key in shared}
    everywhere = job.group.all_gather(checksums)
    for key, checksum in everywhere[0].items():
        if any(other[key] != checksum for other in everywhere):
            yield f"{key} differs between processes after {UPDATES} updates"
            return


def _not_the_mean(job: Job, trainer: Any, run: str) -> Iterator[str]:
    """Save a checkpoint; yield a running statistic that is not the mean over ranks then."""
    names = [param.name for param in trainer.params if param.is_statistic]
    names += [ema_key(name) for name in names if job.plan.ema]
    before = {name: np.array(trainer.state_dict()[name], np.float64) for name in names}
    sums = job.group.sum(before)
    facts = {"classes": [], "weights": "", "global_batch": 0}
    checkpoint.save_shared(job.group, trainer, None if job.group.rank else run, UPDATES, facts, 1, {})
    job.group.all_gather(None)  # until rank 0 has written it
    after = trainer.state_dict()
    for name in names:
        mean = sums[name] / job.group.size
        if not np.allclose(after[name], mean, rtol=MEAN_TOLERANCE, atol=MEAN_TOLERANCE * np.abs(mean).max()):
            yield f"{name} is not the mean over processes before a checkpoint or an evaluation"
            return


def _continued(job: Job, trainer: Any, micro_batches: Sequence[Any], lr: float, run: str) -> list[str]:
    """Update the weights, go on from a run's checkpoint and do it again; return what differs on a rank, if anything."""
    trainer.step(micro_batches, lr, UPDATES)
    expected = {key: np.array(value) for key, value in trainer.state_dict().items()}
    path = checkpoint.latest(run) or ""
    resume.load(path, trainer, trainer.plan, 0, (), print)
    trainer.step(micro_batches, lr, UPDATES)
    largest: dict[str, float] = {}
    for key, value in expected.items():
        kind = key.rpartition("/")[0]
        largest[kind] = max(largest.get(kind, 0.0), float(np.abs(value).max(initial=0)))
    tolerance = TOLERANCE["fp64" if trainer.mode.is_fp64 else "fp32"]
    apart = [
        f"{key} differs after an update that goes on from {path}"
        for key, value in trainer.state_dict().items()
        if not np.abs(value - expected[key]).max(initial=0) <= tolerance * largest[key.rpartition("/")[0]]
    ]
    return [what for of_rank in job.group.all_gather(apart[:1]) for what in of_rank][:1]


def findings(records: Records) -> list[Finding]:
    """Compare the records of several frameworks, and each with the formulas."""
    found = _noted(records, "apart")
    for title, each in records.items():
        found += optimizer_findings(title, each)
    # One that goes on from the weights of another, which are wrong, is not at fault.
    found = found or _differences(records) or _noted(records, "continued")
    return [
        finding._replace(what=f"with {COUNT} processes, {finding.what}")
        for finding in found + opinion_findings(records)
    ]


def _noted(records: Records, setting: str) -> list[Finding]:
    return [
        Finding((title,), what, tuple(_places(each)), "")
        for title, each in records.items()
        for what in each.settings[setting]
    ]


def _differences(records: Records) -> list[Finding]:
    """Return a finding for the first tensor that differs."""
    if len(records) < 2:
        return []
    order = events(records)
    scales: dict[tuple[str, str], float] = {}
    for event in order:
        kind = event.stage, event.part
        largest = max(float(np.abs(records[title].get(key)).max(initial=0)) for title, key in event.keys.items())
        scales[kind] = max(scales.get(kind, 0.0), largest)
    precision = max((each.precision for each in records.values()), key=TOLERANCE.__getitem__)
    noise = _noise(records, order, scales, TOLERANCE[precision])
    for event in order:
        if event.name in noise and event.part in AFTER_GRADIENT:
            continue
        scale, (first, *others) = scales[event.stage, event.part], event.keys
        apart = [each for each in others if not distance(records, event, first, each) <= TOLERANCE[precision] * scale]
        if apart:
            suspects = (
                (first,) if len(apart) == len(others) > 1 else tuple(apart) if len(others) > 1 else (first, *apart)
            )
            largest = max(distance(records, event, first, each) for each in apart)
            what = f"{event.stage}: {event.part} of {event.name or 'the model'} differs by {largest / scale:.1e}"
            places = [place for title in suspects for place in _places(records[title])]
            return [Finding(suspects, what, tuple(dict.fromkeys(places)), "")]
    return []


def _noise(
    records: Records, order: Sequence[Event], scales: Mapping[tuple[str, str], float], tolerance: float
) -> set[str]:
    """Return the parameters whose gradient is 0 but for rounding, such as a bias before a normalization.

    Optimizers that divide by its size, such as AdamW, make updates of it that say nothing.
    """
    largest: dict[str, float] = {}
    for event in order:
        if event.part == "gradient":
            values = [np.abs(records[title].get(key)).max(initial=0) for title, key in event.keys.items()]
            relative = float(max(values)) / (scales[event.stage, event.part] or 1.0)
            largest[event.name] = max(largest.get(event.name, 0.0), relative)
    return {name for name, relative in largest.items() if relative <= tolerance}


def _places(each: Record) -> list[str]:
    files: Mapping[str, list[str]] = each.files
    return [*files["trainer"], *files["update"], *files["shards"], *files["ranks"]]
