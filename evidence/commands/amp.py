"""Time updates with --amp beside those in fp32 on a CPU, in turn: a row of a table.

oneDNN, with which PyTorch computes, reads ONEDNN_MAX_CPU_ISA once: fewer instructions need a process of their own.
"""

import os
from collections.abc import Callable

from zoo import program
from zoo.bench.commands.update import trainer_loop
from zoo.bench.interleave import interleave, median_ratio
from zoo.frameworks import FRAMEWORKS
from zoo.program import count
from zoo.run.job import assemble, join, sample_batch
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.table import table

RECIPES = ("tsm_demo", "resnet50_demo", "deeplabv3plus_demo", "arcface_demo")
WARM_UP = 2  # updates that are not measured


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = program.parser(__doc__)
    parser.add_argument("--framework", choices=FRAMEWORKS, default="torch", help="default torch")
    parser.add_argument("-n", "--count", type=count, default=15, metavar="N", help="updates of each; default 15")
    arguments = parser.parse_args(argv)
    ratios = [f"{ratio(recipe, arguments.framework, arguments.count):.2f}" for recipe in RECIPES]
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT")
    lines = table([(arguments.framework, limit, *ratios)], ("time with --amp / in fp32", "", *RECIPES), markdown=True)
    print("\n".join(lines))
    return 0


def ratio(recipe: str, framework: str, number: int) -> float:
    """Return the median over pairs of updates of the CPU time with --amp, divided by that in fp32."""
    updates = {amp: update(recipe, framework, amp) for amp in (True, False)}
    times = interleave({str(amp): call for amp, call in updates.items()}, number, warm_up=WARM_UP)
    return median_ratio(times["True"], times["False"]).cpu


def update(recipe: str, framework: str, amp: bool) -> Callable[[], None]:
    """Return an update of a recipe, on one batch."""
    request = resolve_recipe(Options(f"configs/{recipe}.yaml", amp=amp, framework=framework, device="cpu"))
    job = assemble(request, join(request, {}))
    return trainer_loop(job, sample_batch(job))
