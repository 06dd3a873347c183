"""Profile updates of a recipe in PyTorch: the operators that take longest, and a trace for a browser."""

import argparse
import json
import sys
from typing import Any

from data.errors import UserError
from tools.bench import sample_batch, trainer_loop
from tools.new_file import require_new
from zoo.run import cli, restore
from zoo.run.job import Job, assemble, join

EPILOG = """\
The updates are those of training on one batch that stays on the device: forward and backward pass, clipping, optimizer.
Reading data is not part of them (tools/bench.py data measures it). The first updates, which compile and choose kernels,
are left out. Operators are sorted by their own time on the device; on a CPU by their own CPU time.

A trace opens in https://ui.perfetto.dev or chrome://tracing.

examples
  python tools/profiler.py -c configs/tsm_demo.yaml
  python tools/profiler.py -c configs/reports/tsm_torch_airank.yaml --amp --trace trace.json \\
      -o data.name=synthetic -o data.kind=clip -o model.pretrained=null"""
WARM_UP = 5  # updates before the profile
ROWS = 10
NAME_WIDTH = 70  # characters


def cli_main() -> None:
    """Run as the command zoo-profiler."""
    sys.exit(main())


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_recipe_arguments(parser, ("amp", "device"))
    add = parser.add_argument
    add("-n", "--count", type=int, default=10, metavar="N", help="updates to profile; default 10")
    add("--rows", type=int, default=ROWS, metavar="N", help=f"operators to list; default {ROWS}")
    add("--trace", metavar="FILE", help="write a trace of all operators to a new file")
    add("--json", metavar="FILE", help="write the operators to a new file, too")
    arguments = parser.parse_args(argv)
    try:
        for option in ("count", "rows"):
            if getattr(arguments, option) < 1:
                raise UserError(f"--{option}: must be at least 1")
        for option in ("trace", "json"):
            require_new(getattr(arguments, option), f"--{option}")
        request = cli.request(
            arguments.config, arguments.override, amp=arguments.amp, device=arguments.device, framework="torch"
        )
        if request.config.framework != "torch":
            raise UserError("framework: this program profiles PyTorch; leave -o framework out")
        job = assemble(request, join(request, {}))
        restore.restore(request.config, job, None, print)
        report = profile(job, arguments.count, arguments.trace)
        report["operators"] = report["operators"][: arguments.rows]
        print("\n".join(describe(report)))
        if arguments.json:
            with open(arguments.json, "x", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
        job.group.close()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


def profile(job: Job, count: int, trace: str | None = None) -> dict[str, Any]:
    """Profile updates on one batch.

    Args:
        job: the assembled recipe, in PyTorch.
        count: updates to profile.
        trace: path of a file that receives the trace; None for no trace.

    Returns:
        Device, precision, samples per update, and all operators with their own milliseconds per update, largest first.
    """
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    update = trainer_loop(job, sample_batch(job))
    for _ in range(WARM_UP):
        update()
    on_device = job.world.cuda_index is not None
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_device
    with torch_profile(activities=activities) as profiler:
        for _ in range(count):
            update()
    if trace:
        profiler.export_chrome_trace(trace)
    own_time = "self_device_time_total" if on_device else "self_cpu_time_total"
    operators = [
        {"name": event.key, "ms": getattr(event, own_time) / 1000 / count, "calls": event.count / count}
        for event in profiler.key_averages()
        if getattr(event, own_time) > 0 and _is_work(event, on_device)
    ]
    operators.sort(key=lambda operator: -operator["ms"])
    return {
        "device": job.world.device,
        "compute": job.plan.mode.compute,
        "samples": job.clock.global_batch,
        "updates": count,
        "ms": sum(operator["ms"] for operator in operators),
        "operators": operators,
    }


def _is_work(event: Any, on_device: bool) -> bool:
    """Return whether an entry counts: on a GPU its kernels and copies, not the operators that have launched them."""
    return not event.is_user_annotation and (event.device_type.name != "CPU" or not on_device)


def describe(report: dict[str, Any]) -> list[str]:
    """Return the lines of a report."""
    total = report["ms"]
    return [
        f"{report['compute']} on {report['device']}: {total:.2f} ms per update of {report['samples']} samples, "
        f"mean of {report['updates']} updates",
        f"{'ms':>9} {'share':>6} {'calls':>7}  operator",
        *(
            f"{operator['ms']:9.3f} {operator['ms'] / total:6.1%} {operator['calls']:7.1f}  "
            f"{operator['name'][:NAME_WIDTH]}"
            for operator in report["operators"]
        ),
    ]


if __name__ == "__main__":
    cli_main()
