"""Train or evaluate any model of the zoo in any framework: python train.py -c configs/tsm_k400.yaml --amp"""

import errno
import os
import sys
import time

from data.errors import UserError
from data.stream import Bad, open_evaluation, open_training
from zoo.config import loader
from zoo.distributed import consistency
from zoo.logs import airank
from zoo.logs.journal import Journal, Silent
from zoo.logs.throughput import Throughput
from zoo.run import checkpoint, cli, directory, restore, schedule, sharded_checkpoint
from zoo.run.evaluate import evaluate
from zoo.run.job import Job, assemble, join
from zoo.run.prefetch import BadSampleTracker, Prefetcher
from zoo.run.signals import Stop

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main(argv: list[str] | None = None) -> int:
    group = None
    try:
        arguments = cli.parse(argv)
        request = cli.read(arguments)
        if arguments.print_config or arguments.plan:
            print(cli.plan(request, arguments.plan) if arguments.plan else loader.render(request.resolved), end="")
            return 0
        group = join(request, os.environ)
        job = assemble(request, group)
        code = run(arguments, request, job)
        job.world.close()
        group.close()
        job.world.exit_process(code)
        return code
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            error = UserError(
                f"the run's folder cannot be written to: {error.strerror}. What was saved before is "
                "whole; make room and go on with --resume"
            )
        known = isinstance(error, UserError)
        if group:
            group.fail(str(error) if known else f"{type(error).__name__}: {error}")
        if not known:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2


def run(arguments, request: cli.Request, job: Job) -> int:
    cfg, recipe = request.config, loader.render(request.resolved)
    trainer, group, clock, plan, train = job.trainer, job.group, job.clock, job.plan, cfg.train
    first_rank = group.rank == 0

    from zoo.logs.console import Console  # here: reader processes import this file too, and print nothing
    from zoo.logs.tensorboard import Scalars

    last = min(clock.steps, arguments.max_steps or clock.steps)
    console = Console(last, None if first_rank else open(os.devnull, "w"))
    first, origin = restore.restore(cfg, job, request.resume, console.say)
    consistency.assert_same(group, "the step to go on from", first)
    folder = None
    if first_rank and not arguments.eval_only:
        folder = directory.open_folder(request.resume, cfg.out, request.recipe, recipe)
    facts = {
        "framework": cfg.framework,
        "device": job.world.device,
        **plan.mode._asdict(),
        **job.batch_plan._asdict(),
        "launcher": group.launch.kind,
        "global_batch": clock.global_batch,
        "steps": clock.steps,
        "lr": job.lr(0),
        "plan": schedule.describe(job.batch_plan, cfg.optim),
        "weights": origin,
        "classes": len(job.val_set.classes),
        "outputs": job.arch.num_classes,
        "parameters": sum(p.size for p in trainer.params if not p.statistic),
        "train_samples": len(job.train_set),
        "val_samples": len(job.val_set),
        "checksum": job.checksum,
    }
    present = consistency.describe_ranks(group, job.world.device, cfg.framework)
    if group.size > 1:
        console.roll(group.launch.kind, present)
    console.describe(facts, request.changed, job.train_set.notes)

    def measure(report):
        stream = open_evaluation(job.val_set, cfg.seed, train.eval_batch, group.rank, group.size)
        began = time.perf_counter()
        trainer.sync_batch_stats()
        result = evaluate(trainer, stream, job.val_set, job.task.Metric(job.val_set, cfg.task), group, report)
        return {"accuracy": result[job.task.PRIMARY], **result, "seconds": time.perf_counter() - began}

    if arguments.eval_only:
        console({"event": "eval", **measure(lambda bad: console({"event": "bad", **vars(bad)}))})
        return 0

    with (
        Journal(folder, [console, Scalars(folder), airank.Writer(folder, cfg.target, cfg.warmup_epochs)])
        if first_rank
        else Silent()
    ) as journal:
        if request.resume and first >= last and journal.has("end"):
            console.say(f"{folder} is complete at step {first}: nothing to do")
            return 0
        if request.resume and first_rank:
            journal.add("resume", step=first, path=checkpoint.latest(folder))
        if not journal.has("begin"):
            journal.add("load", at=job.loaded_at, checksum=job.checksum, train_samples=len(job.train_set))
            journal.add("begin", **facts)
        parts = plan.accumulate
        stream = open_training(
            job.train_set,
            cfg.seed,
            job.batch_plan.batch,
            first * parts,
            last * parts,
            group.rank,
            group.size,
            job.dropout_masks,
        )
        feed, account = (
            Prefetcher(stream, trainer),
            BadSampleTracker(job.train_set, lambda bad: journal.add("bad", **vars(bad))),
        )
        stop, throughput = Stop(), Throughput()
        for done in range(first + 1, last + 1):  # updates done after this one
            lr = job.lr(done - 1)
            group.set_status(f"reading the data of step {done}")
            device_batch = [next(feed) for _ in range(parts)]
            group.set_status(f"computing step {done}")
            output = trainer.step(device_batch, lr, done - 1)
            throughput.add(clock.global_batch)
            console.tick(done)
            # Asked once per step: a signal may come to any rank at any moment, and all stop after the same step.
            told = group.all_gather({"stop": stop.wished, "bad": [vars(bad) for bad in feed.unreadable()]})
            account.add([Bad(**bad) for each in told for bad in each["bad"]])
            wished = next((each["stop"] for each in told if each["stop"]), None) if done < last else None
            ending = done == last or wished is not None
            if ending or clock.due(train.log_every, done):
                numbers = trainer.read(output)
                numbers["loss"] = sum(group.all_gather(numbers["loss"]))
                journal.add(
                    "train",
                    step=done,
                    epoch=float(clock.epochs(done)),
                    lr=lr,
                    **numbers,
                    **throughput.read(feed.waited),
                )
                if numbers["consecutive_skips"] >= train.max_consecutive_skips:
                    raise UserError(
                        f"no finite gradient in the last {numbers['consecutive_skips']:.0f} updates, up to step {done} "
                        f"(loss {numbers['loss']}, lr {lr:g}, loss scale {numbers['scale']:g}); "
                        f"{consistency.nonfinite_report(group, trainer)}. Lower optim.lr, warm up, or train in fp32"
                    )
            throughput.pause()
            improved, evaluated = False, done == last or clock.due(train.eval_every, done)
            if evaluated:
                best, result = journal.best(), measure(lambda bad: journal.add("bad", **vars(bad)))
                improved = best is None or result["accuracy"] > best
                journal.add("eval", step=done, epoch=float(clock.epochs_done(train.eval_every, done)), **result)
            saving = ending or clock.due(train.save_every, done)
            if saving:
                trainer.sync_batch_stats()
            group.set_status(f"saving step {done}")
            if group.all_gather(saving or improved)[0] if evaluated else saving:  # rank 0 knows what the best was
                record = {
                    **facts,
                    "classes": job.class_names,
                    "epoch": float(clock.epochs(done)),
                    "metrics": journal.last("eval"),
                    "recipe": recipe,
                }
                path = sharded_checkpoint.save_checkpoint(group, trainer, folder, done, record, improved, train.keep)
                journal.add("save", step=done, path=path, best=improved)
            throughput.resume()
            if wished is not None:
                console.say(f"stopped by signal {wished} after saving; go on with --resume {folder}")
                return 128 + wished
        if not journal.has("end"):
            journal.add("end", step=last, epoch=float(clock.epochs_done(train.eval_every, last)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
