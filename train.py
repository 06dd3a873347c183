"""Train or evaluate any model of the zoo in any framework: python train.py -c configs/tsm_k400.yaml --amp"""
import os
import sys
import time
from typing import List, Optional

from data.errors import UserError
from data.stream import open_evaluation, open_training
from zoo.trainer import airank, checkpoint, cli, config, runs, start
from zoo.trainer.evaluate import evaluate
from zoo.trainer.feed import Feed
from zoo.trainer.job import assemble
from zoo.trainer.journal import Journal
from zoo.trainer.meter import Meter
from zoo.trainer.signals import Stop


def main(argv: Optional[List[str]] = None) -> int:
    try:
        return run(cli.parse(argv))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def run(arguments) -> int:
    request = cli.read(arguments)
    cfg, recipe = request.config, config.render(request.resolved)
    if arguments.print_config:
        print(recipe, end="")
        return 0
    job = assemble(request, os.environ)
    trainer, world, clock, plan, train = job.trainer, job.world, job.clock, job.plan, cfg.train

    from zoo.trainer.console import Console  # here: reader processes import this file too, and print nothing
    from zoo.trainer.tensorboard import Scalars
    last = min(clock.steps, arguments.max_steps or clock.steps)
    console = Console(last)
    first, origin = start.restore(cfg, job, request.resume, console.say)
    folder = None if arguments.eval_only else runs.open_folder(request.resume, cfg.out, request.recipe, recipe)
    facts = {"framework": cfg.framework, "device": world.device, **plan.mode._asdict(), "ranks": world.size,
             "batch": train.batch, "accumulate": plan.accumulate, "global_batch": clock.global_batch,
             "steps": clock.steps, "lr": job.lr(0), "weights": origin, "classes": len(job.val_set.classes),
             "outputs": job.arch.num_classes, "parameters": sum(p.size for p in trainer.params if not p.statistic),
             "train_samples": len(job.train_set), "val_samples": len(job.val_set), "checksum": job.checksum}
    console.describe(facts, request.changed)

    def measure(report):
        stream = open_evaluation(job.val_set, cfg.seed, train.eval_batch, world.rank, world.size)
        began = time.perf_counter()
        result = evaluate(trainer, stream, job.val_set, job.task.Metric(job.val_set.views), world, report)
        return {"accuracy": result[job.task.PRIMARY], **result, "seconds": time.perf_counter() - began}

    if folder is None:
        console({"event": "eval", **measure(lambda bad: console({"event": "bad", **vars(bad)}))})
        return 0

    with Journal(folder, [console, Scalars(folder), airank.Writer(folder, cfg.target, cfg.warmup_epochs)]) as journal:
        if request.resume and first >= last and journal.has("end"):
            console.say(f"{folder} is complete at step {first}: nothing to do")
            return 0
        if request.resume:
            journal.add("resume", step=first, path=checkpoint.latest(folder))
        if not journal.has("begin"):
            journal.add("load", at=job.loaded_at, checksum=job.checksum, train_samples=len(job.train_set))
            journal.add("begin", **facts)
        stream = open_training(job.train_set, cfg.seed, train.batch, first * plan.accumulate, last * plan.accumulate,
                               world.rank, world.size, job.noise)
        feed = Feed(stream, trainer, job.train_set, lambda bad: journal.add("bad", **vars(bad)))
        stop, meter = Stop(), Meter()
        for done in range(first + 1, last + 1):  # updates done after this one
            lr = job.lr(done - 1)
            receipt = trainer.step([next(feed) for _ in range(plan.accumulate)], lr)
            meter.add(clock.global_batch)
            console.tick(done)
            stopping = done < last and stop.wished is not None  # asked once: a signal may come at any moment
            ending = done == last or stopping
            if ending or clock.due(train.log_every, done):
                numbers = trainer.read(receipt)
                journal.add("train", step=done, epoch=float(clock.epochs(done)), lr=lr, **numbers,
                            **meter.lap(feed.waited))
                if numbers["stuck"] >= train.max_stuck:
                    raise UserError(f"no finite gradient in the last {numbers['stuck']:.0f} updates, up to step {done} "
                                    f"(loss {numbers['loss']}, lr {lr:g}, loss scale {numbers['scale']:g}); "
                                    f"{trainer.diagnose()}. Lower optim.lr, warm up, or train in fp32")
            meter.pause()
            improved = False
            if done == last or clock.due(train.eval_every, done):
                best, result = journal.best(), measure(lambda bad: journal.add("bad", **vars(bad)))
                improved = best is None or result["accuracy"] > best
                journal.add("eval", step=done, epoch=float(clock.epochs_done(train.eval_every, done)), **result)
            if ending or improved or clock.due(train.save_every, done):
                record = {**facts, "classes": list(job.val_set.classes), "epoch": float(clock.epochs(done)),
                          "metrics": journal.last("eval"), "recipe": recipe}
                path = checkpoint.save_checkpoint(folder, done, trainer.dump(), record, improved, train.keep)
                journal.add("save", step=done, path=path, best=improved)
            meter.go_on()
            if stopping:
                console.say(f"stopped by signal {stop.wished} after saving; go on with --resume {folder}")
                return stop.code
        if not journal.has("end"):
            journal.add("end", step=last, epoch=float(clock.epochs_done(train.eval_every, last)))
    world.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
