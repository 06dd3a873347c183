"""The training loop, and a run from its start to its end."""

from zoo.run.request import Request
from zoo.run.session import Run
from zoo.run.start import start


def execute(request: Request) -> Run:
    """Train, evaluate, time or only start, as requested; return the run, which is closed."""
    with start(request) as run:
        if request.check_only:
            run.console.print("checked: the run can start here; nothing was written")
        elif request.eval_only:
            run.evaluate_only()
        elif request.speed:
            from zoo.run import speed  # which a training does without

            speed.measure(run, request.speed, request.turns)
        else:
            train(run)
    return run


def train(run: Run) -> None:
    """Train until the last step, the target where --until-target is given, or a signal."""
    trainer, lr, settings = run.job.trainer, run.job.lr, run.config.train
    for step in run.steps():
        output = trainer.step(run.take(step), lr(step), step)
        done = step + 1  # updates
        stop = run.poll(done, output)
        if stop or run.due(settings.log_every, done):
            stop = run.log(done) or stop
        if stop or run.due(settings.save_every, done) or run.due(settings.eval_every, done):
            stop = run.save(done) or stop  # before the evaluation: nothing can be lost in it
        if run.due(settings.eval_every, done) and not stop:
            stop = run.evaluate(done)
        if stop:
            break
    run.finish()
