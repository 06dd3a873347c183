"""A recipe made real: data, schedule and trainer, assembled once for train.py and the tools alike."""
import time
from types import ModuleType
from typing import Any, Callable, Mapping, NamedTuple, Tuple

import data
import zoo
from data.batch import Noise
from data.errors import UserError
from zoo import tasks
from zoo.trainer import launch, schedule
from zoo.trainer.cli import Request
from zoo.trainer.protocol import Mode, Plan, Trainer, World
from zoo.weights.match import match


class Job(NamedTuple):
    """What a run works with; arch and plan are complete, and nothing of it changes any more."""
    framework: str
    spec: ModuleType
    task: ModuleType
    train_set: Any
    val_set: Any
    checksum: str
    loaded_at: float  # Unix seconds
    arch: Any
    noise: Tuple[Noise, ...]
    clock: schedule.Clock
    lr: Callable[[int], float]
    plan: Plan
    world: World
    trainer: Trainer


def assemble(request: Request, environ: Mapping[str, str]) -> Job:
    """Load the data, then the framework, then build the trainer. Raises UserError, the cheap reasons first."""
    cfg = request.config
    launched = launch.detect(environ)
    model, dataset = request.resolved["model.name"].value, data.find(request.resolved["data.name"].value)
    spec = zoo.find(model)
    task = tasks.find(spec.TASK)
    train_set, val_set = dataset.load(cfg.data)
    checksum, loaded_at = dataset.checksum(train_set, val_set), time.time()
    arch = zoo.fit(spec, cfg.model, train_set.fields, len(train_set.classes))

    backend, Net = zoo.load_trainer(cfg.framework), zoo.load_net(model, cfg.framework)
    world = backend.start(launched, cfg.device)
    clock, noise = schedule.clock(cfg.train, len(train_set), world.size), spec.noise(arch)

    def rule(name: str) -> Tuple[float, float]:
        factor, decay = spec.rule(arch, name)
        return factor, decay * cfg.optim.weight_decay

    train = cfg.train
    mode = world.settle(Mode(train.precision, train.amp_level, train.channels_last, train.compile))
    plan = Plan(fields=train_set.fields + tuple(source.field for source in noise),
                noise=tuple(source.name for source in noise), rule=rule, mode=mode,
                momentum=cfg.optim.momentum, clip_norm=cfg.optim.clip_norm, accumulate=train.accumulate)
    trainer = backend.Trainer(Net, arch, task.objective(cfg.task), plan, world)
    report = match({param.name: param for param in trainer.params}, spec.shapes(arch))
    if not report.complete:
        raise UserError(f"zoo/{model}/{cfg.framework}.py does not hold the tensors that zoo/{model}/spec.py tells:\n"
                        f"{report}")
    return Job(cfg.framework, spec, task, train_set, val_set, checksum, loaded_at, arch, noise, clock,
               schedule.rate(cfg.optim, cfg.train, clock), plan, world, trainer)
