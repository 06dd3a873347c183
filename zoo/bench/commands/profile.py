"""Profile updates of a recipe in any framework: the operators that take longest, and a trace for a browser."""

import os
import shutil
import tempfile

from zoo import program
from zoo.bench.commands.update import trainer_loop
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.commands.options import add_recipe_arguments, request_of
from zoo.program import count
from zoo.run import profiling
from zoo.run.job import Job, assemble, join, sample_batch
from zoo.run.resume import restore
from zoo.trainer.world import TRACE

EPILOG = """\
The updates are those of training on one batch that stays on the device: forward and backward pass, clipping, optimizer.
Reading data is not part of them (zoo bench data measures it). The first updates, which compile and choose kernels,
are left out. Operators are sorted by their own time, on a GPU that of its kernels; MindSpore's by type.
A run profiles its own updates with -o train.profile=20.

A trace opens in https://ui.perfetto.dev or chrome://tracing.

examples
  %(prog)s -c tsm_demo
  %(prog)s -c configs/reports/tsm_torch_airank.yaml --amp --trace trace.json \\
      -o data.name=synthetic -o data.kind=clip -o model.pretrained=null"""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    for option in ("trace", "json"):
        require_new(getattr(arguments, option), f"--{option}")
    request = request_of(arguments)
    job = assemble(request, join(request, {}))
    restore(request.config, job, None, print)
    report = profile(job, arguments.count, arguments.trace)
    report["operators"] = report["operators"][: arguments.rows]
    print_report(profiling.describe(report, arguments.rows), report, arguments.json)
    job.group.close()
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add_recipe_arguments(parser)
    add = parser.add_argument
    add("-n", "--count", type=count, default=10, metavar="N", help="updates to profile; default 10")
    add("--rows", type=count, default=profiling.ROWS, metavar="N", help="operators to list; default 10")
    add("--trace", metavar="FILE", help="write a trace of all operators to a new file")
    add_json_argument(parser)
    return parser


def profile(job: Job, count: int, trace: str | None = None) -> profiling.Report:
    """Profile updates on one batch; trace: path of a file that receives the trace.

    Returns:
        Device, precision, samples per update, and all operators with their own milliseconds per update, largest first.
    """
    update = trainer_loop(job, sample_batch(job))
    for _ in range(profiling.WARM_UP):
        update()
    profiler = job.world.profiler()
    with tempfile.TemporaryDirectory() as folder:
        profiler.start(folder)
        for _ in range(count):
            update()
        operators = profiler.stop()
        if trace:
            shutil.copy(os.path.join(folder, TRACE), trace)
    return profiling.report(job, operators, count)
