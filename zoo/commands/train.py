"""Train or evaluate any model of the zoo in any framework: python train.py -c configs/tsm_k400.yaml --amp"""

from zoo.config import loader
from zoo.run import cli, schedule
from zoo.run.training import execute
from zoo.table import table


def main(argv: list[str]) -> int:
    """Run the command line and return the exit code; zoo/run/training.py has the loop."""
    arguments = cli.parse(argv)
    if arguments.list:
        print("\n".join(table(list(loader.shipped_recipes().items()), ("recipe", "what it is"))))
        return 0
    request = cli.read(arguments)
    if arguments.print_config:
        print(loader.render(request.resolved), end="")
    elif arguments.plan:
        print(schedule.table(request, arguments.plan), end="")
    else:
        run = execute(request)
        run.job.world.exit_process(run.exit_code)  # where a framework does not end safely by itself
        return run.exit_code
    return 0
