"""Train the same recipe with several seeds in every installed framework, and test whether the frameworks differ."""

import argparse
import os
import subprocess
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from zoo import program
from zoo.commands.compare import select_frameworks, with_same_loader
from zoo.commands.options import add_recipe_arguments, recipe_words
from zoo.compare import seed_tables
from zoo.compare.seed_tables import Result, Study
from zoo.config import loader
from zoo.data import durable, extras
from zoo.data.errors import UserError
from zoo.frameworks import FRAMEWORKS
from zoo.run.folder import exclusive, is_run
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.tasks import load_task

EPILOG = """\
Each run is one of train.py in a process of its own, one after the other, in a folder of --out; the same command
continues a study that was interrupted, and prints the tables of one that is complete. With the same seed, all
frameworks have the same initial weights, batches and dropout masks, so they are compared seed by seed: a paired t-test
of the metric at the end of the run.

  mean, sd        of the metric at the end, over seeds; sd is the sample standard deviation
  best            the highest metric of any evaluation of a run
  target          runs that reached the recipe's target; mean steps and time until then (of runs without a resume)
  difference      of two frameworks' metrics, mean over seeds, with its 95 %% interval. The test sees a mean
                  difference beyond half the interval's width; a smaller one would take more seeds
  p               the probability of a mean difference this large if the frameworks are equal

examples
  %(prog)s -c configs/resnet50_demo.yaml
  %(prog)s -c configs/tsm_demo.yaml --seeds 10 --frameworks torch,mindspore
  %(prog)s -c configs/arcface_demo.yaml -o train.epochs=4 --out runs/short

Exit codes: 0 done, 2 an error to fix on your side."""
CHOSEN_KEYS = ("framework", "seed", "out")  # that this program sets
MAX_LOG_LINES = 15  # of a run that failed


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    run_study(parser().parse_args(argv))
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add_recipe_arguments(parser, ("amp", "device"))
    add = parser.add_argument
    add("-n", "--seeds", type=int, default=5, metavar="N", help="number of seeds, counted from the recipe's; default 5")
    add("--frameworks", metavar="A,B", help=f"of {', '.join(FRAMEWORKS)}; default: those installed")
    add("--out", metavar="DIR", help="folder of the runs and of seeds.md; default runs/seeds-<recipe>")
    return parser


def run_study(arguments: argparse.Namespace) -> None:
    """Make the runs that are missing, then print the tables and write them to <out>/seeds.md."""
    extras.require("scipy")  # which has Student's t
    if arguments.seeds < 2:
        raise UserError("--seeds: a standard deviation needs at least 2")
    for key in loader.overrides(arguments.override):
        if key in CHOSEN_KEYS:
            raise UserError(f"-o {key}: this program chooses it; leave it out, and see --frameworks, --seeds and --out")
    frameworks = select_frameworks(arguments.frameworks)
    request = resolve_recipe(Options(arguments.config, arguments.override, amp=arguments.amp, device=arguments.device))
    arguments.override = with_same_loader(arguments.override, request.config)
    out = arguments.out or os.path.join("runs", f"seeds-{request.recipe}")
    seeds = range(request.config.seed, request.config.seed + arguments.seeds)
    metric = load_task(request.config.task.task).PRIMARY
    with exclusive(out):
        results = []
        for seed in seeds:  # all frameworks of a seed first: an interrupted study has whole pairs
            for framework in frameworks:
                result = finish_run(arguments, out, framework, seed, request.config.target)
                print(f"{framework}, seed {seed}: {metric} {result.last:.4f}, the best {result.best:.4f}", flush=True)
                results.append(result)
        study = Study(request.recipe, metric, request.config.target, results)
        report = "\n".join(seed_tables.lines(study))
        print("\n" + report)
        path = os.path.join(out, "seeds.md")
        durable.write(path, f"{report}\n".encode())
        print(f"\nthe tables are in {path}, the runs beside it")


def finish_run(
    arguments: argparse.Namespace,
    out: str,
    framework: str,
    seed: int,
    target: float | None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Result:
    """Start or continue a run, unless it is complete, with some more variables, and return its result."""
    folder = os.path.join(out, f"{framework}-{seed}")
    if is_run(folder):
        check_same_recipe(arguments, folder, framework, seed)
        result = seed_tables.read_result(folder, framework, seed, target)
        if result:
            return result
    os.makedirs(out, exist_ok=True)
    log = f"{folder}.log"
    with open(log, "a", encoding="utf-8", opener=durable.regular) as file:
        command = train_command(arguments, folder, framework, seed)
        environment = {**os.environ, **variables}
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment, check=False).returncode
    result = seed_tables.read_result(folder, framework, seed, target)
    if code or not result:
        with open(log, encoding="utf-8", errors="replace") as file:
            tail = "".join(file.readlines()[-MAX_LOG_LINES:]).strip()
        raise UserError(
            f"{framework}, seed {seed}: train.py exited with code {code} before the end of the run; the same command "
            f"continues this study. The end of {log}:\n{tail}"
        )
    return result


def check_same_recipe(arguments: argparse.Namespace, folder: str, framework: str, seed: int) -> None:
    """Raise UserError if the run in a folder began with other settings."""
    changed = resolve_recipe(
        Options(
            arguments.config,
            arguments.override,
            amp=arguments.amp,
            framework=framework,
            device=arguments.device,
            seed=seed,
            out=folder,
            resume=folder,
        )
    ).changed
    if changed:
        raise UserError(
            f"{folder} has a run of other settings; choose another --out or remove it:\n  " + "\n  ".join(changed)
        )


def train_command(arguments: argparse.Namespace, folder: str, framework: str, seed: int) -> Sequence[str]:
    """Return the command line of a run, which continues what is in the folder."""
    command = program.command("train", "--framework", framework, "--seed", str(seed), "--out", folder, "--resume")
    return [*command, *recipe_words(arguments, ("amp", "device"))]
