"""Assembly of a recipe: data, schedule and trainer, for train.py and the tools alike."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from zoo import tasks
from zoo.config.schema import Config, GroupRule, Optim
from zoo.data import order
from zoo.data.batch import DropoutMask, Field, collate
from zoo.data.errors import UserError
from zoo.distributed import environment
from zoo.distributed import group as groups
from zoo.distributed.group import Group
from zoo.models import Spec, folder, load_model_class, load_spec, resolve_arch
from zoo.optim.ema import Ema
from zoo.run import checkpoint, schedule
from zoo.run.dataset import Data, load_data, resolve_class_weights
from zoo.run.request import Request
from zoo.tasks import Task
from zoo.trainer import load_backend
from zoo.trainer.plan import Arithmetic, Mode, ParamGroup, Plan
from zoo.trainer.protocol import DeviceBatch, Trainer
from zoo.trainer.state import STATISTICS
from zoo.trainer.update import INITIAL_SCALE
from zoo.trainer.world import BEGIN_TIMEOUT, World
from zoo.weights.files import is_onnx
from zoo.weights.match import match_state_dict

EXAMPLES = 3  # names in a message


class Job(NamedTuple):
    """Everything a run works with; complete, and never changed afterwards.

    Attributes:
        framework: one of FRAMEWORKS, or exported.ONNX for an exported model, whose `trainer` can only predict.
        loss: section `task:`, with numbers in place of balanced class weights.
        lr: learning rate of a step, counted from 0.
        notes: what optim.groups changes and how classes are weighted, for the user.
    """

    framework: str
    model: str
    spec: Spec
    arch: Any
    data: Data
    loss: Any
    batch_plan: schedule.BatchPlan
    clock: schedule.Clock
    lr: Callable[[int], float]
    notes: tuple[str, ...]
    plan: Plan
    group: Group
    world: World
    trainer: Trainer

    @property
    def train_set(self) -> Any:
        return self.data.train_set

    @property
    def val_set(self) -> Any:
        return self.data.val_set

    @property
    def task(self) -> Task:
        return tasks.load_task(self.loss.task)

    @property
    def dropout_masks(self) -> tuple[DropoutMask, ...]:
        return self.spec.dropout_masks(self.arch)

    @property
    def class_names(self) -> list[str]:
        """Class names for checkpoints; empty where the classes are only numbers."""
        return [] if isinstance(self.val_set.classes, range) else list(self.val_set.classes)


def join(request: Request, variables: Mapping[str, str]) -> Group:
    """Connect the processes of the run and check that all have the same recipe and code.

    Args:
        variables: the environment, which tells the launcher.
    """
    launch, cfg = environment.detect(variables), request.config
    if launch.size > 1 and ":" in cfg.device:
        raise UserError(
            f"device: {cfg.device} is a single device for {launch.size} processes; leave the number out, "
            "each process takes the device of its local rank"
        )
    group = Group(launch)
    if launch.size > 1:
        from zoo.distributed import rendezvous  # which a single process does without

        group = rendezvous.connect(launch, cfg.train.straggler_timeout)
    groups.assert_same_recipe(group, request.resolved)
    environment.prepare(group)
    version = groups.code_version() if group.size > 1 else ""
    groups.assert_same(group, "the code (a digest of train.py, zoo and data)", version)
    return group


def load(request: Request, group: Group) -> Data:
    """Load the data of a recipe, after what is cheap to check."""
    cfg = request.config
    if cfg.train.shard_optimizer and cfg.framework != "torch":
        raise UserError(f"train.shard_optimizer: only PyTorch has it, not {cfg.framework}; leave it out")
    schedule.batch_plan(cfg.train, group.size)  # raises UserError
    evaluated = None
    if request.eval_only:
        evaluated = (request.resume and checkpoint.latest(request.resume)) or cfg.weights or ""
    return load_data(request.resolved["data.name"].value, cfg.data, group, evaluated)


def assemble(
    request: Request, group: Group, loaded: Data | None = None, kept: Mapping[str, Any] = MappingProxyType({})
) -> Job:
    """Load the data, then the framework, then build the trainer.

    Args:
        kept: what the run to resume keeps, as resume.begun returns it.
    """
    cfg, train = request.config, request.config.train
    loaded = loaded or load(request, group)
    batch_plan = schedule.batch_plan(train, group.size)
    model, dataset = request.resolved["model.name"].value, request.resolved["data.name"].value
    spec = load_spec(model)
    fields, classes = loaded.train_set.fields, len(loaded.train_set.classes)
    _check_task(cfg.task.task, model, dataset, loaded.train_set, loaded.val_set)
    arch = resolve_arch(spec, cfg.model, fields, classes)
    loss, weighting = resolve_class_weights(cfg.task, loaded.train_set, arch.num_classes)
    _check_batch_norm(cfg, spec, arch, model, batch_plan.batch, group.size)
    _check_sharding(spec, arch, group.size)
    notes = *describe_groups(cfg.optim.groups, spec.shapes(arch)), *weighting
    if is_onnx(cfg.weights):
        from zoo.run import exported  # which most runs do without

        framework, world = exported.ONNX, exported.start(group.launch, cfg.device)
        plan, trainer, _ = exported.build(cfg.weights, cfg, model, arch, fields, world)
    else:
        framework, world, mode = cfg.framework, _start_backend(cfg, model, group), _mode(request, kept)
        plan, trainer = build_trainer(replace(cfg, task=loss), model, arch, fields, world, mode, batch_plan.accumulate)
    clock = schedule.clock(train, len(loaded.train_set), world.size)
    lr = schedule.lr_schedule(cfg.optim, train, clock)
    return Job(framework, model, spec, arch, loaded, loss, batch_plan, clock, lr, notes, plan, group, world, trainer)


def _check_task(wanted: str, model: str, name: str, train_set: Any, val_set: Any) -> None:
    labels = {field.name: field.shape for field in train_set.fields}["label"]
    task = "face" if hasattr(val_set, "sets") else ("classify", "multilabel", "segment")[min(len(labels), 2)]
    if wanted in tasks.OWN and task != wanted:
        raise UserError(
            f"data.name: {name} has samples for the task {task}, but {model} is a model for the task {wanted}; "
            "choose another data set" + (", or data.kind" if name == "synthetic" else "")
        )


def _check_batch_norm(cfg: Config, spec: Spec, arch: Any, model: str, batch: int, world_size: int) -> None:
    samples, required = batch * (world_size if cfg.train.sync_bn else 1), spec.min_batch_size(arch)
    if samples < required:
        raise UserError(
            f"train.batch: a batch normalization of {model} sees one value per sample and channel, and needs "
            f"{required} samples at least, not {samples}; make train.batch larger"
            + ("" if cfg.train.sync_bn else " or share statistics over processes with train.sync_bn=true")
        )


def _check_sharding(spec: Spec, arch: Any, world_size: int) -> None:
    for name in spec.SHARDED_PARAMETERS:
        rows = spec.shapes(arch)[name][0]
        if rows < world_size:
            raise UserError(f"{name} has {rows} rows, fewer than there are processes ({world_size}); start fewer")


def _start_backend(cfg: Config, model: str, group: Group) -> World:
    backend = load_backend(cfg.framework)
    load_model_class(model, cfg.framework)  # a model that this framework lacks is reported before the processes join
    port = 0
    if group.size > 1:
        from zoo.distributed.rendezvous import free_port

        port = group.all_gather(0 if group.rank else free_port(group.launch.address))[0]
    with group.time_limit(BEGIN_TIMEOUT, f"joining the processes of {cfg.framework} and a first all-reduce"):
        return backend.start(group.launch, cfg.device, port)


def _mode(request: Request, kept: Mapping[str, Any]) -> Mode:
    """Return the mode that the recipe asks for; a resumed run keeps its memory format, since the two round apart."""
    train, channels_last = request.config.train, request.config.train.channels_last
    if channels_last is None and not request.eval_only and kept.get("framework") == request.config.framework:
        channels_last = kept["channels_last"]
    return Mode(train.precision, train.amp_level, channels_last, train.compile)


def _loss_scale(optim: Optim) -> float:
    if optim.loss_scale == "dynamic":
        return optim.initial_loss_scale or INITIAL_SCALE
    return optim.loss_scale


def build_trainer(
    cfg: Config,
    model: str,
    arch: Any,
    fields: tuple[Field, ...],
    world: World,
    mode: Mode,
    accumulate: int = 1,
    output: Any = None,
) -> tuple[Plan, Trainer]:
    """Build the trainer of a model, to train or to predict; its weights are not loaded yet.

    Args:
        fields: of a training sample of the data set; the model's input comes first.
        mode: as requested; the plan has it resolved.
        output: specification of what `predict` returns; None for that of the task.
    """
    spec = load_spec(model)
    task, dropout_masks = tasks.load_task(cfg.task.task), spec.dropout_masks(arch)
    resolved = world.resolve_mode(mode)
    benchmark = cfg.train.cudnn_benchmark
    fast = (resolved.is_mixed or cfg.train.tf32) and not cfg.train.deterministic
    world.set_arithmetic(Arithmetic(cfg.train.tf32, fast if benchmark is None else benchmark, cfg.train.deterministic))
    plan = Plan(
        fields=fields + tuple(mask.field for mask in dropout_masks),
        dropout_masks=tuple(mask.name for mask in dropout_masks),
        param_group=param_groups(spec, arch, cfg.optim),
        mode=resolved,
        loss_scale=_loss_scale(cfg.optim),
        dynamic_loss_scale=cfg.optim.loss_scale == "dynamic",
        optimizer=cfg.optim,
        ema=Ema(cfg.train.ema, cfg.train.ema_warmup) if cfg.train.ema is not None else None,
        shard_optimizer=cfg.train.shard_optimizer,
        clip_norm=cfg.optim.clip_norm,
        accumulate=accumulate,
        sync_bn=cfg.train.sync_bn,
        fp16_allreduce=cfg.train.fp16_allreduce,
        output=output or task.output(cfg.task),
        clip_sharded=cfg.optim.clip_sharded,
        fp32_modules=spec.FP32_MODULES,
        checkpointed_modules=spec.checkpointed_modules(arch) if cfg.train.checkpoint_activations else (),
        eval_mixed=cfg.train.eval_precision == "amp" and resolved.is_mixed,
        seed=cfg.seed,
    )
    Model = load_model_class(model, cfg.framework)
    trainer = load_backend(cfg.framework).Trainer(Model, arch, cfg.task, plan, world)
    report = match_state_dict({param.name: param for param in trainer.params}, spec.shapes(arch))
    if not report.complete:
        files = folder(model)
        raise UserError(f"{files}/{cfg.framework}.py does not define the tensors that {files}/spec.py lists:\n{report}")
    return plan, trainer


def sample_batch(job: Job) -> DeviceBatch:
    """Return a micro-batch of the first training samples on the device, for updates that are timed or compared."""
    rows = []
    for index in range(job.batch_plan.batch):
        row = job.train_set.sample(index % len(job.train_set), order.generator(0, "bench", index))
        masks = {mask.name: mask.sample(order.generator(0, mask.name, index)) for mask in job.dropout_masks}
        rows.append({**row, **masks})
    return job.trainer.to_device(collate(rows, len(rows)))


def param_groups(spec: Spec, arch: Any, optim: Optim) -> Callable[[str], ParamGroup]:
    """Return the hyper-parameters of a parameter as a function of its canonical name.

    The factors of all rules that match a name are multiplied with each other and with those of the specification.
    """

    @cache  # asked for at every update
    def param_group(name: str) -> ParamGroup:
        lr_scale, decay_scale = spec.lr_and_decay_scale(arch, name)
        for rule in optim.groups:
            if rule.matches(name):
                lr_scale, decay_scale = lr_scale * (0 if rule.freeze else rule.lr), decay_scale * rule.decay
        return ParamGroup(lr_scale, decay_scale * optim.weight_decay)

    return param_group


def describe_groups(rules: Sequence[GroupRule], shapes: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """Return a line about each rule: the parameters that it matches and what it does.

    Args:
        shapes: of all tensors of the model, by canonical name.
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items() if not name.endswith(STATISTICS)}
    lines, frozen = [], set()
    for rule in rules:
        matched = [name for name in sizes if rule.matches(name)]
        if not matched:
            names = list(sizes)
            raise UserError(
                f"optim.groups: {rule.match!r} matches no parameter as a whole; there are "
                f"{', '.join(names[:EXAMPLES])} and {len(names) - EXAMPLES} more, up to {names[-1]}"
            )
        if rule.freeze or rule.lr == 0:
            frozen.update(matched)
        elements = sum(sizes[name] for name in matched)
        lines.append(f"optim.groups: {rule.match}: {len(matched)} parameters, {elements:,} elements: {rule}")
    if frozen == sizes.keys():
        raise UserError("optim.groups: no parameter is left to train; freeze fewer")
    return tuple(lines)
