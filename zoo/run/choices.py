"""Choices that a recipe leaves open and that a few updates at the start of a run settle: PyTorch's memory format.

Rank 0 times an update in each of the modes to choose from (zoo/run/trial.py), unless it did so before on this machine
(zoo/run/choice_cache.py), and all ranks take the fastest. The result differs by rounding only, so a run that is
resumed keeps its mode.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from zoo.config.schema import Config
from zoo.data.batch import Field
from zoo.distributed import machine
from zoo.distributed.control_group import Group
from zoo.run import choice_cache
from zoo.run.trial import Timing
from zoo.trainer.plan import Mode
from zoo.trainer.world import World

TIE = 0.03  # below this relative difference the first mode is taken, so that noise does not decide
# Shorter runs have nothing to gain: a measurement takes a dozen updates, and on a CPU a run of so few operations ends
# within seconds.
MIN_UPDATES, MIN_FLOPS = 100, 5e11
MEASURED = "measured; kept for later runs"
DISTURBED = "measured while other programs kept the cores; not kept"
CACHED = "measured before on this machine"
TIMEOUT = 1800.0  # seconds that the other ranks wait for the measurement
KEEPING = ("framework", "compute", "level")  # a resumed run keeps its mode if these, and the kind of device, are equal


class Choice(NamedTuple):
    """The mode of a run.

    Attributes:
        mode: as requested, with what was open.
        origin: "measured", "cached", "resumed", or "default" without a measurement; None where nothing was open.
        seconds: of an update, by name of the mode, as it was measured; None without a measurement.
        notes: messages for the user.
    """

    mode: Mode
    origin: str | None = None
    seconds: Mapping[str, float] | None = None
    notes: tuple[str, ...] = ()

    @property
    def record(self) -> dict[str, Any] | None:
        """What the events `begin` and `resume` record of it."""
        return None if self.origin is None else {"origin": self.origin, "seconds": self.seconds}


class Work(NamedTuple):
    """What a run computes on this process.

    Attributes:
        updates: of the whole run.
        flops: floating-point operations of an update.
    """

    updates: int
    flops: float

    @property
    def is_worth_measuring(self) -> bool:
        return self.updates >= MIN_UPDATES and self.updates * self.flops >= MIN_FLOPS


def facts(
    world: World, group: Group, cfg: Config, mode: Mode, model: str, arch: Any, fields: Sequence[Field], batch: int
) -> dict[str, Any]:
    """Return what the speed of an update depends on, of types that JSON can represent. A collective call.

    Args:
        world: of this process.
        group: of the run.
        cfg: the recipe.
        mode: resolved.
        model: name of the model.
        arch: its complete architecture.
        fields: of a training sample.
        batch: samples of a micro-batch.
    """
    host, train = socket.gethostname(), cfg.train
    return {
        "framework": cfg.framework,
        "version": world.version,
        "device": world.device.replace(f":{world.cuda_index}", ""),
        "cpu": machine.cpu_name(),
        "processes": group.all_gather(host).count(host),
        "model": model,
        "arch": asdict(arch),
        "input": [[field.name, *field.shape] for field in fields],
        "batch": batch,
        "compute": mode.compute,
        "level": mode.level,
        "tf32": train.tf32,
        "cudnn_benchmark": train.cudnn_benchmark,
        "sync_bn": train.sync_bn,
        "checkpoint_activations": train.checkpoint_activations,
    }


def settle(
    candidates: Sequence[Mode],
    group: Group,
    work: Work,
    facts: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    measure: Callable[[], Timing],
) -> Choice:
    """Return the mode of a run, the same on every rank. A collective call.

    Args:
        candidates: modes to choose from, as World.candidates returns them.
        group: of the run.
        work: of the run on this process.
        facts: what the speed of an update depends on; with equal facts it is not measured again.
        events: of the run to resume; empty in a new one.
        measure: times an update of each candidate. Called on rank 0 at most.
    """
    if len(candidates) == 1:
        return Choice(candidates[0])
    with group.time_limit(TIMEOUT, "measuring updates"):
        mine = _settle(candidates, work, facts, events, measure) if group.rank == 0 else None
        mode, origin, seconds, notes = group.all_gather(mine)[0]
    return Choice(Mode(*mode), origin, seconds, tuple(notes))


def name_of(mode: Mode) -> str:
    """Return what tells a candidate from the others, as a value in a recipe."""
    return "true" if mode.channels_last else "false"


def fastest(seconds: Sequence[float]) -> int:
    """Return the index of the smallest number; 0 if it is hardly smaller than the first."""
    best = min(range(len(seconds)), key=seconds.__getitem__)
    return best if seconds[best] < seconds[0] * (1 - TIE) else 0


def _settle(
    candidates: Sequence[Mode],
    work: Work,
    facts: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    measure: Callable[[], Timing],
) -> Choice:
    kept = _recorded(events, facts)
    for candidate in candidates:
        if kept is not None and candidate.channels_last == kept:
            note = f"train.channels_last: {name_of(candidate)}, as this run did before"
            return Choice(candidate, "resumed", None, (note,))
    if not work.is_worth_measuring:
        return Choice(candidates[0], "default")
    seconds, origin, how, problem = choice_cache.read(facts, len(candidates)), "cached", CACHED, None
    if seconds is None:
        (seconds, busy), origin = measure(), "measured"
        how = DISTURBED if busy else MEASURED
        problem = None if busy else choice_cache.add(facts, seconds)
    chosen = fastest(seconds)
    note = f"{_describe(candidates, seconds, chosen)} ({how})"
    by_name = {name_of(mode): value for mode, value in zip(candidates, seconds, strict=True)}
    return Choice(candidates[chosen], origin, by_name, (note, problem) if problem else (note,))


def _recorded(events: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> bool | None:
    """Return channels_last of the run so far; None if there is none, or if the run goes on in another way now."""
    for event in reversed(events):
        if event["event"] in ("begin", "resume") and "channels_last" in event:
            same = all(event.get(key) == facts[key] for key in KEEPING)
            return event["channels_last"] if same and _kind(event.get("device")) == _kind(facts["device"]) else None
    return None


def _kind(device: Any) -> str:
    """Return cuda for `cuda:1 (NVIDIA H100)`."""
    return str(device).split(" ")[0].split(":")[0]


def _describe(candidates: Sequence[Mode], seconds: Sequence[float], chosen: int) -> str:
    other = 1 - chosen
    share = f"{seconds[chosen] / seconds[other]:.2f} of the time of {name_of(candidates[other])}"
    return f"train.channels_last: {name_of(candidates[chosen])}, {share}"
