"""Train or evaluate any model of the zoo in any framework: python train.py -c configs/tsm_k400.yaml --amp"""

import sys

from data.errors import UserError
from zoo.config import loader
from zoo.run import cli, speed
from zoo.run.session import Run, start


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    arguments = cli.parse(argv)
    try:
        request = cli.read(arguments)
        if arguments.print_config:
            print(loader.render(request.resolved), end="")
        elif arguments.plan:
            print(cli.plan(request, arguments.plan), end="")
        else:
            with start(request) as run:
                if request.eval_only:
                    run.evaluate_only()
                elif request.speed:
                    speed.measure(run, request.speed, request.turns)
                else:
                    train(run)
            return run.exit_code
        return 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def train(run: Run) -> None:
    """Train until the last step, the target where --until-target is given, or a signal."""
    trainer, lr, settings = run.job.trainer, run.job.lr, run.config.train
    for step in run.steps():
        output = trainer.step(run.batches.take(), lr(step), step)
        done = step + 1  # updates
        stop = run.poll(done)
        if stop or run.due(settings.log_every, done):
            run.log(done, output)
        if stop or run.due(settings.save_every, done) or run.due(settings.eval_every, done):
            run.save(done)  # before the evaluation: nothing can be lost in it
        if run.due(settings.eval_every, done) and not stop:
            stop = run.evaluate(done)
        if stop:
            break
    run.finish()


def cli_main() -> None:
    """Run the console command zoo-train."""
    sys.exit(main())


if __name__ == "__main__":
    cli_main()
