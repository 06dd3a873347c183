"""A recipe made real: data, schedule and trainer, assembled once for train.py and the tools alike."""
import time
from types import ModuleType
from typing import Any, Callable, List, Mapping, NamedTuple, Tuple

import data
import zoo
from data.batch import Noise
from data.errors import UserError
from zoo import tasks
from zoo.trainer import environ, group, launch, roll, schedule
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
    portion: schedule.Portion
    clock: schedule.Clock
    lr: Callable[[int], float]
    plan: Plan
    group: group.Group
    world: World
    trainer: Trainer

    @property
    def class_names(self) -> List[str]:
        """What a checkpoint tells of the classes; nothing where they are only numbers."""
        return [] if isinstance(self.val_set.classes, range) else list(self.val_set.classes)


def join(request: Request, variables: Mapping[str, str]) -> group.Group:
    """Meet the other processes of the run, all with the same recipe and code. Raises UserError."""
    launched, cfg = launch.detect(variables), request.config
    if launched.size > 1 and ":" in cfg.device:
        raise UserError(f"device: {cfg.device} is one for all {launched.size} processes; leave the number out, "
                        "each takes the one of its local rank")
    joined = group.connect(launched, cfg.train.patience)
    roll.same_recipe(joined, request.resolved)
    environ.prepare(joined)
    roll.same(joined, "the code (a digest of train.py, zoo and data)", roll.code_version() if joined.size > 1 else "")
    return joined


def assemble(request: Request, joined: group.Group) -> Job:
    """Load the data, then the framework, then build the trainer. Raises UserError, the cheap reasons first."""
    cfg = request.config
    portion = schedule.portion(cfg.train, joined.size)
    model, dataset = request.resolved["model.name"].value, data.find(request.resolved["data.name"].value)
    spec = zoo.find(model)
    task = tasks.find(spec.TASK)
    train_set, val_set = dataset.load(cfg.data)
    checksum, loaded_at = dataset.checksum(train_set, val_set), time.time()
    roll.same(joined, "the data set (its checksum)", checksum)
    arch = zoo.fit(spec, cfg.model, train_set.fields, len(train_set.classes))
    seen, least = portion.batch * (joined.size if cfg.train.sync_bn else 1), spec.least_batch(arch)
    if seen < least:
        raise UserError(f"train.batch: a normalisation of {model} sees one value per sample and channel, and needs "
                        f"{least} samples at least, not {seen}; make train.batch larger"
                        + ("" if cfg.train.sync_bn else " or share statistics over processes with train.sync_bn=true"))

    few = [name for name in getattr(spec, "SHARDS", ()) if spec.shapes(arch)[name][0] < joined.size]
    if few:
        raise UserError(f"{few[0]} has {spec.shapes(arch)[few[0]][0]} rows, fewer than there are processes "
                        f"({joined.size}); start fewer")

    backend, Net = zoo.load_trainer(cfg.framework), zoo.load_net(model, cfg.framework)
    address = joined.launch.address
    port = joined.gather(group.free_port(address) if joined.size > 1 and joined.rank == 0 else 0)[0]
    with joined.limit(group.DEADLINE, f"joining the processes of {cfg.framework} and a first all-reduce"):
        world = backend.start(joined.launch, cfg.device, port)
    clock, noise = schedule.clock(cfg.train, len(train_set), world.size), spec.noise(arch)

    def rule(name: str) -> Tuple[float, float]:
        factor, decay = spec.rule(arch, name)
        return factor, decay * cfg.optim.weight_decay

    train = cfg.train
    mode = world.settle(Mode(train.precision, train.amp_level, train.channels_last, train.compile))
    plan = Plan(fields=train_set.fields + tuple(source.field for source in noise),
                noise=tuple(source.name for source in noise), rule=rule, mode=mode,
                momentum=cfg.optim.momentum, clip_norm=cfg.optim.clip_norm, accumulate=portion.accumulate,
                sync_bn=train.sync_bn, compress=train.compress, output=task.output(cfg.task),
                clip_split=cfg.optim.clip_split, keep_fp32=getattr(spec, "KEEP_FP32", ()), seed=cfg.seed)
    trainer = backend.Trainer(Net, arch, task.objective(cfg.task), plan, world)
    report = match({param.name: param for param in trainer.params}, spec.shapes(arch))
    if not report.complete:
        raise UserError(f"zoo/{model}/{cfg.framework}.py does not hold the tensors that zoo/{model}/spec.py tells:\n"
                        f"{report}")
    return Job(cfg.framework, spec, task, train_set, val_set, checksum, loaded_at, arch, noise, portion, clock,
               schedule.rate(cfg.optim, cfg.train, clock), plan, joined, world, trainer)
