"""A recipe made real: data, schedule and trainer, assembled once for train.py and the tools alike."""

import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import data
from data.batch import DropoutMask, Field
from data.errors import UserError
from zoo import tasks
from zoo.config.schema import Config
from zoo.distributed import consistency, control_group, environment, launchers
from zoo.models import load_model_class, load_spec, resolve_arch
from zoo.run import schedule
from zoo.run.cli import Request
from zoo.trainer import load_backend
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
    dropout_masks: tuple[DropoutMask, ...]
    batch_plan: schedule.BatchPlan
    clock: schedule.Clock
    lr: Callable[[int], float]
    plan: Plan
    group: control_group.Group
    world: World
    trainer: Trainer

    @property
    def class_names(self) -> list[str]:
        """What a checkpoint tells of the classes; nothing where they are only numbers."""
        return [] if isinstance(self.val_set.classes, range) else list(self.val_set.classes)


def join(request: Request, variables: Mapping[str, str]) -> control_group.Group:
    """Meet the other processes of the run, all with the same recipe and code. Raises UserError."""
    launched, cfg = launchers.detect(variables), request.config
    if launched.size > 1 and ":" in cfg.device:
        raise UserError(
            f"device: {cfg.device} is one for all {launched.size} processes; leave the number out, "
            "each takes the one of its local rank"
        )
    joined = control_group.connect(launched, cfg.train.straggler_timeout)
    consistency.assert_same_recipe(joined, request.resolved)
    environment.prepare(joined)
    consistency.assert_same(
        joined, "the code (a digest of train.py, zoo and data)", consistency.code_version() if joined.size > 1 else ""
    )
    return joined


def assemble(request: Request, joined: control_group.Group) -> Job:
    """Load the data, then the framework, then build the trainer. Raises UserError, the cheap reasons first."""
    cfg = request.config
    batch_plan = schedule.batch_plan(cfg.train, joined.size)
    model, dataset = request.resolved["model.name"].value, data.find(request.resolved["data.name"].value)
    spec = load_spec(model)
    task = tasks.find(spec.TASK)
    train_set, val_set = dataset.load(cfg.data)
    checksum, loaded_at = dataset.checksum(train_set, val_set), time.time()
    consistency.assert_same(joined, "the data set (its checksum)", checksum)
    arch = resolve_arch(spec, cfg.model, train_set.fields, len(train_set.classes))
    seen, least = batch_plan.batch * (joined.size if cfg.train.sync_bn else 1), spec.min_batch_size(arch)
    if seen < least:
        raise UserError(
            f"train.batch: a normalisation of {model} sees one value per sample and channel, and needs "
            f"{least} samples at least, not {seen}; make train.batch larger"
            + ("" if cfg.train.sync_bn else " or share statistics over processes with train.sync_bn=true")
        )

    few = [name for name in spec.SHARDED_PARAMETERS if spec.shapes(arch)[name][0] < joined.size]
    if few:
        raise UserError(
            f"{few[0]} has {spec.shapes(arch)[few[0]][0]} rows, fewer than there are processes "
            f"({joined.size}); start fewer"
        )

    backend = load_backend(cfg.framework)
    load_model_class(model, cfg.framework)  # a model that this framework lacks is reported before the processes join
    address = joined.launch.address
    port = joined.all_gather(control_group.free_port(address) if joined.size > 1 and joined.rank == 0 else 0)[0]
    with joined.limit(control_group.DEADLINE, f"joining the processes of {cfg.framework} and a first all-reduce"):
        world = backend.start(joined.launch, cfg.device, port)
    clock = schedule.clock(cfg.train, len(train_set), world.size)
    train = cfg.train
    mode = Mode(train.precision, train.amp_level, train.channels_last, train.compile)
    plan, trainer = build_trainer(cfg, model, arch, train_set.fields, world, mode, batch_plan.accumulate)
    return Job(
        cfg.framework,
        spec,
        task,
        train_set,
        val_set,
        checksum,
        loaded_at,
        arch,
        spec.dropout_masks(arch),
        batch_plan,
        clock,
        schedule.rate(cfg.optim, cfg.train, clock),
        plan,
        joined,
        world,
        trainer,
    )


def build_trainer(
    cfg: Config, model: str, arch: Any, fields: tuple[Field, ...], world: World, mode: Mode, accumulate: int = 1
) -> tuple[Plan, Trainer]:
    """Build the trainer of a model, to train or to predict; its weights are not loaded yet.

    Args:
        cfg: the recipe.
        model: name of the model.
        arch: its complete architecture.
        fields: of a training sample of the data set; the model's input comes first.
        world: of the framework cfg.framework.
        mode: as requested; the plan has it resolved.
        accumulate: micro-batches per update.

    Raises:
        UserError: the mode is impossible here, or the model's file does not hold the tensors of its spec.
    """
    spec = load_spec(model)
    task, dropout_masks = tasks.find(spec.TASK), spec.dropout_masks(arch)

    def param_group(name: str) -> tuple[float, float]:
        lr_scale, decay_scale = spec.lr_and_decay_scale(arch, name)
        return lr_scale, decay_scale * cfg.optim.weight_decay

    plan = Plan(
        fields=fields + tuple(mask.field for mask in dropout_masks),
        dropout_masks=tuple(mask.name for mask in dropout_masks),
        param_group=param_group,
        mode=world.resolve_mode(mode),
        momentum=cfg.optim.momentum,
        clip_norm=cfg.optim.clip_norm,
        accumulate=accumulate,
        sync_bn=cfg.train.sync_bn,
        fp16_allreduce=cfg.train.fp16_allreduce,
        output=task.output(cfg.task),
        clip_sharded=cfg.optim.clip_sharded,
        fp32_modules=spec.FP32_MODULES,
        seed=cfg.seed,
    )
    Model = load_model_class(model, cfg.framework)
    trainer = load_backend(cfg.framework).Trainer(Model, arch, task.objective(cfg.task), plan, world)
    report = match({param.name: param for param in trainer.params}, spec.shapes(arch))
    if not report.complete:
        raise UserError(
            f"zoo/models/{model}/{cfg.framework}.py does not define the tensors that zoo/models/{model}/spec.py "
            f"lists:\n{report}"
        )
    return plan, trainer
