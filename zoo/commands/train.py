"""Train or evaluate any model of the zoo in any framework: python train.py -c configs/tsm_k400.yaml --amp"""

import os

from zoo.config import loader
from zoo.run import cli, schedule
from zoo.run.session import Run
from zoo.run.training import execute
from zoo.table import table, terminal_width


def main(argv: list[str]) -> int:
    """Run the command line and return the exit code; zoo/run/training.py has the loop."""
    arguments = cli.parse(argv)
    if arguments.list:
        rows = list(loader.shipped_recipes().items())
        print("\n".join(table(rows, ("recipe", "what it is"), width=terminal_width())))
        return 0
    request = cli.read(arguments)
    if arguments.print_config:
        print(loader.render(request.resolved), end="")
    elif arguments.plan:
        print(schedule.table(request, arguments.plan), end="")
    else:
        run = execute(request)
        if run.folder and request.resume and not run.exit_code and _wants_page(run):
            from zoo.visualization.page import page_line  # and what draws, which trainings do without

            print(page_line(run.folder), flush=True)
        run.job.world.exit_process(run.exit_code)  # where a framework does not end safely by itself
        return run.exit_code
    return 0


def _wants_page(run: Run) -> bool:
    """Return whether `zoo finetune`, which writes a page at the end, began the run, and there is none of this end."""
    begin = run.journal.last("begin") or {}
    is_old = run.first_step < run.last_step or not os.path.exists(os.path.join(run.folder or "", "report.html"))
    return is_old and "finetune" in begin.get("command", ())[1:2]
