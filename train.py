"""Train or evaluate any model of the zoo in any framework: python train.py -c configs/tsm_k400.yaml --amp"""
import os
import sys
import time
from typing import List, Optional

import data
import zoo
from data.errors import UserError
from data.stream import open_evaluation, open_training
from zoo import tasks
from zoo.trainer import airank, checkpoint, cli, config, launch, runs, schedule, start
from zoo.trainer.evaluate import evaluate
from zoo.trainer.feed import Feed
from zoo.trainer.journal import Journal
from zoo.trainer.meter import Meter
from zoo.trainer.protocol import Plan
from zoo.trainer.signals import Stop

FIND = {"model": ("model.name", lambda name: zoo.find(name).Arch),
        "data": ("data.name", lambda name: data.find(name).Settings),
        "task": ("model.name", lambda name: tasks.find(zoo.find(name).TASK).Settings)}


def main(argv: Optional[List[str]] = None) -> int:
    try:
        return run(cli.parse(argv))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def run(arguments) -> int:
    request = cli.read(arguments, FIND)
    cfg, resume, recipe = request.config, request.resume, config.render(request.resolved)
    if arguments.print_config:
        print(recipe, end="")
        return 0

    # What to train on what. No framework is loaded before the data is known to be there.
    launched = launch.detect(os.environ)
    spec, dataset = (kind.find(request.resolved[key].value) for kind, key in ((zoo, "model.name"), (data, "data.name")))
    task = tasks.find(spec.TASK)
    train_set, val_set = dataset.load(cfg.data)
    checksum, loaded_at = dataset.checksum(train_set, val_set), time.time()
    arch = zoo.fit(spec, cfg.model, train_set.fields, len(train_set.classes))
    folder = None if arguments.eval_only else runs.open_folder(resume, cfg.out, request.recipe, recipe)

    # One trainer, all of whose step is fixed beforehand.
    backend, Net = zoo.load_trainer(cfg.framework), zoo.load_net(request.resolved["model.name"].value, cfg.framework)
    world = backend.start(launched, cfg.device)
    clock, noise = schedule.clock(cfg.train, len(train_set), world.size), spec.noise(arch)
    lr = schedule.rate(cfg.optim, cfg.train, clock)

    def rule(name):
        factor, decay = spec.rule(arch, name)
        return factor, decay * cfg.optim.weight_decay

    plan = Plan(fields=train_set.fields + tuple(source.field for source in noise),
                noise=tuple(source.name for source in noise), rule=rule, compute=world.precision(cfg.train.precision),
                momentum=cfg.optim.momentum, clip_norm=cfg.optim.clip_norm, accumulate=cfg.train.accumulate,
                channels_last=cfg.train.channels_last, compile=cfg.train.compile)
    trainer = backend.Trainer(Net, arch, task.objective(cfg.task), plan, world)

    from zoo.trainer.console import Console  # here: reader processes import this file too, and print nothing
    from zoo.trainer.tensorboard import Scalars
    last = min(clock.steps, arguments.max_steps or clock.steps)
    console = Console(last)
    first, origin = start.restore(cfg, spec, trainer, resume, val_set.classes, console.say)
    facts = {"framework": cfg.framework, "device": world.device, "compute": plan.compute, "ranks": world.size,
             "batch": cfg.train.batch, "accumulate": cfg.train.accumulate, "global_batch": clock.global_batch,
             "steps": clock.steps, "lr": lr(0), "weights": origin, "classes": len(val_set.classes),
             "outputs": arch.num_classes, "parameters": sum(param.size for param in trainer.params if not param.statistic),
             "train_samples": len(train_set), "val_samples": len(val_set), "checksum": checksum}
    console.describe(facts, request.changed)

    def measure(report):
        stream = open_evaluation(val_set, cfg.seed, cfg.train.eval_batch, world.rank, world.size)
        began = time.perf_counter()
        result = evaluate(trainer, stream, val_set, task.Metric(val_set.views), world, report)
        return {"accuracy": result[task.PRIMARY], **result, "seconds": time.perf_counter() - began}

    if folder is None:
        console({"event": "eval", "epoch": float(clock.epochs(first)),
                 **measure(lambda bad: console({"event": "bad", **vars(bad)}))})
        return 0

    with Journal(folder, [console, Scalars(folder), airank.Writer(folder, cfg.target, cfg.warmup_epochs)]) as journal:
        if resume:
            journal.add("resume", step=first, path=checkpoint.latest(folder))
        if not journal.has("begin"):
            journal.add("load", at=loaded_at, checksum=checksum, train_samples=len(train_set), val_samples=len(val_set))
            journal.add("begin", **facts)
        stream = open_training(train_set, cfg.seed, cfg.train.batch, first * plan.accumulate, last * plan.accumulate,
                               world.rank, world.size, noise)
        feed = Feed(stream, trainer, train_set, lambda bad: journal.add("bad", **vars(bad)))
        stop, meter, train = Stop(), Meter(), cfg.train
        for done in range(first + 1, last + 1):  # updates done after this one
            rate = lr(done - 1)
            receipt = trainer.step([next(feed) for _ in range(plan.accumulate)], rate)
            meter.add(clock.global_batch)
            console.tick(done)
            ending = done == last or stop.wished is not None
            if ending or clock.due(train.log_every, done):
                numbers = trainer.read(receipt)
                journal.add("train", step=done, epoch=float(clock.epochs(done)), lr=rate, **numbers,
                            **meter.lap(feed.waited))
                if numbers["stuck"] >= train.max_stuck:
                    raise UserError(f"no finite gradient in the last {numbers['stuck']:.0f} updates, up to step {done} "
                                    f"(loss {numbers['loss']}, lr {rate:g}, loss scale {numbers['scale']:g}); "
                                    f"{trainer.diagnose()}. Lower optim.lr, warm up, or train in fp32")
            meter.pause()
            improved = False
            if done == last or clock.due(train.eval_every, done):
                best, result = journal.best(), measure(lambda bad: journal.add("bad", **vars(bad)))
                improved = best is None or result["accuracy"] > best
                journal.add("eval", step=done, epoch=float(clock.epochs_done(train.eval_every, done)), **result)
            if ending or improved or clock.due(train.save_every, done):
                record = {**facts, "classes": list(val_set.classes), "epoch": float(clock.epochs(done)),
                          "metrics": journal.last("eval"), "recipe": recipe}
                path = checkpoint.save_checkpoint(folder, done, trainer.dump(), record, improved, train.keep)
                journal.add("save", step=done, path=path, best=improved)
            meter.go_on()
            if stop.wished is not None and done < last:
                console.say(f"stopped by signal {stop.wished} after saving; go on with --resume {folder}")
                return stop.code
        if not journal.has("end"):
            journal.add("end", step=last, epoch=float(clock.epochs_done(train.eval_every, last)))
    world.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
