"""Train a recipe with every combination of some values and with several seeds, and compare the combinations."""

import argparse
import hashlib
import importlib
import itertools
import os
import queue
import re
import shlex
import signal
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import psutil

from zoo import program
from zoo.commands import options, seeds
from zoo.compare import seed_tables
from zoo.data import durable, extras, host
from zoo.data.errors import UserError, printable
from zoo.distributed import machine
from zoo.distributed.environment import THREADS
from zoo.program import count, natural
from zoo.run.folder import exclusive
from zoo.run.request import Request
from zoo.table import csv_text, latex, table
from zoo.tasks import load_task

EPILOG = """\
Each run is one of train.py in a process of its own, in a folder of --out. With -j, several run at once: each on a GPU
or NPU of its own as far as there are so many, with its part of the cores. The same command continues a sweep that was
interrupted: runs that are complete are left as they are, others go on where they stopped.
The table, best first, has the highest metric of any evaluation of a run: its mean over the seeds, and the 95 %%
interval of that mean by Student's t. It is in <out>/sweep.md, .csv and .tex; with matplotlib, sweep.png shows it.

With --trials, Optuna (pip install optuna) chooses the settings one after the other by the means so far, among the
values of -p and in ranges LOW..HIGH: of whole numbers if both ends are, and on a logarithmic scale if HIGH is ten times
LOW or more.

examples
  %(prog)s -c resnet50_demo -p optim.lr=0.03,0.1,0.3 --seeds 3
  %(prog)s -c resnet50_demo -p optim.lr=0.01..1 -p train.batch=16,32 --trials 20
  %(prog)s -c tsm_k400 --amp -p optim.lr=0.01,0.02 -p data.augment=[],[color_jitter] -o data.root=/data/k400

Exit codes: 0 done, 1 some runs failed, 2 an error to fix on your side."""
CHOSEN_KEYS = ("seed", "out")  # that this program sets
VISIBLE = {"nvidia": "CUDA_VISIBLE_DEVICES", "davinci": "ASCEND_RT_VISIBLE_DEVICES"}  # device file -> variable
MAX_NAME = 120  # characters of a folder's name
RANGE = re.compile(r"([-+\d].*?)\.\.([-+.\d].*)")  # LOW..HIGH, unlike ../FOLDER
UNUSUAL = re.compile(r"[^\w.=,+-]")  # in the name of a folder
Setting = tuple[str, ...]  # KEY=VALUE of every -p
Span = tuple[float, float]  # lowest and highest value; both are int if only whole numbers are meant
Choices = Mapping[str, list[str] | Span]  # values by key


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        best: the highest metric of each run that is complete.
    """

    setting: str
    best: Sequence[float]

    @property
    def mean(self) -> float:
        return statistics.mean(self.best)

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval; None for a single run."""
        return seed_tables.paired_test(self.best).half_width if len(self.best) > 1 else None


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    if arguments.jobs > 1 and ":" in (arguments.device or ""):
        raise UserError(f"--device {arguments.device}: is one device for {arguments.jobs} runs; leave the number out")
    if arguments.seeds > 1:
        extras.require("scipy")
    choices = parse_choices(arguments.param, arguments.override)
    ranges = [key for key, values in choices.items() if isinstance(values, tuple)]
    if ranges and not arguments.trials:
        raise UserError(f"-p {ranges[0]}: a range needs --trials N, the number of settings to try")
    if arguments.trials:
        require_optuna()
        arguments.jobs = min(arguments.jobs, arguments.seeds)  # settings are chosen one after the other
    requests = {setting: request_of(arguments, setting) for setting in grid(choices)}
    first = next(iter(requests.values()))
    out = arguments.out or os.path.join("runs", f"sweep-{first.recipe}")
    metric = load_task(first.config.task.task).PRIMARY
    count = arguments.trials or len(requests)
    print(f"{count} settings x {arguments.seeds} seeds: {count * arguments.seeds} runs in {out}")
    if arguments.dry_run:
        print("\n".join(commands(arguments, requests, out)))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with exclusive(out):
        if arguments.trials:
            rows = search(arguments, choices, first.config.seed, out, metric)
        else:
            rows = run_settings(arguments, requests, out, metric)
        report(rows, arguments.seeds, f"{first.recipe}: {metric}", out)
    return int(any(len(row.best) < arguments.seeds for row in rows))


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    options.add_recipe_arguments(parser)
    add = parser.add_argument
    add(
        "-p",
        "--param",
        metavar="KEY=A,B",
        action="append",
        required=True,
        help="values of a key to try; repeatable: all combinations",
    )
    add("-n", "--seeds", type=count, default=1, metavar="N", help="seeds, counted from the recipe's; default 1")
    add("--trials", type=natural, default=0, metavar="N", help="settings that Optuna picks; default: all combinations")
    add("-j", "--jobs", type=count, default=1, metavar="N", help="runs at once, each on a GPU of its own; default 1")
    add("--out", metavar="DIR", help="folder of the runs and the table; default runs/sweep-<recipe>")
    add("--dry-run", action="store_true", help="print the commands of the runs, of --trials those of ends of ranges")
    return parser


def parse_choices(params: Sequence[str], overrides: Sequence[str] = ()) -> dict[str, list[str] | Span]:
    """Return the values of each -p by key."""
    choices: dict[str, list[str] | Span] = {}
    for param in params:
        key, _, text = param.partition("=")
        values = list(dict.fromkeys(value.strip() for value in split_values(text)))
        if not key or not all(values):
            raise UserError(f"-p {param}: expected KEY=VALUE,VALUE, for example -p optim.lr=0.01,0.03")
        if key in choices:
            raise UserError(f"-p {param}: {key} is given twice; name all its values in one -p")
        span = RANGE.fullmatch(text)
        choices[key] = parse_span(param, *span.groups()) if span else values
    for key in (*choices, *(pair.partition("=")[0].strip() for pair in overrides)):
        if key in CHOSEN_KEYS:
            raise UserError(f"{key}: this program chooses it; leave it out, and see --seeds and --out")
    return choices


def split_values(text: str) -> list[str]:
    """Split a text at the commas that are in no brackets."""
    values, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth <= 0:
            values.append("")
        else:
            values[-1] += letter
    return values


def parse_span(param: str, *texts: str) -> Span:
    """Return the ends of a range; raises UserError if they are no numbers in ascending order."""
    for number in (int, float):
        try:
            low, high = (number(text) for text in texts)
        except ValueError:
            continue
        if low < high < float("inf"):
            return low, high
    raise UserError(f"-p {param}: expected KEY=LOW..HIGH, for example -p optim.lr=0.001..0.1")


def grid(choices: Choices) -> list[Setting]:
    """Return all combinations of values, and of the ends of ranges."""
    return list(itertools.product(*([f"{key}={value}" for value in values] for key, values in choices.items())))


def require_optuna() -> Any:
    try:
        return importlib.import_module("optuna")
    except ImportError:
        raise UserError("--trials: Optuna is not installed; pip install optuna") from None


def search(arguments: argparse.Namespace, choices: Choices, seed: int, out: str, metric: str) -> list[Row]:
    """Run settings that Optuna chooses, or continue a search; <out>/optuna.log is its journal.

    Each choice depends on the seed, its number and the means before it alone, so that a search that was
    interrupted goes on as it would have.
    """
    optuna = require_optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal = optuna.storages.journal.JournalFileBackend(os.path.join(out, "optuna.log"))
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(journal),
        study_name=" ".join(sorted(arguments.param)),
        direction="maximize",
        load_if_exists=True,
    )
    space = {key: _distribution(optuna.distributions, values) for key, values in choices.items()}
    rows = []
    for number in range(arguments.trials):
        if number == len(study.trials):
            own = np.random.SeedSequence([seed, number]).generate_state(1)
            study.sampler = optuna.samplers.TPESampler(seed=int(own[0]))
            study.ask(space)
        trial = study.trials[number]
        setting = tuple(f"{key}={_short(trial.params[key])}" for key in choices)
        rows += run_settings(arguments, {setting: request_of(arguments, setting)}, out, metric)
        if not trial.state.is_finished():
            failed = not rows[-1].best
            study.tell(number, None if failed else rows[-1].mean, optuna.trial.TrialState.FAIL if failed else None)
    return rows


def _distribution(distributions: Any, values: list[str] | Span) -> Any:
    if isinstance(values, list):
        return distributions.CategoricalDistribution(values)
    low, high = values
    kind = distributions.IntDistribution if isinstance(low, int) else distributions.FloatDistribution
    return kind(low, high, log=0 < 10 * low <= high)


def _short(value: Any) -> str:
    """Return a value as text, a float by four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def with_setting(arguments: argparse.Namespace, setting: Setting) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(arguments), "override": [*arguments.override, *setting]})


def request_of(arguments: argparse.Namespace, setting: Setting) -> Request:
    swept = [pair.partition("=")[0] for pair in setting]
    try:
        return options.request_of(with_setting(arguments, setting))
    except UserError as error:
        error.words = lambda option: str(option).replace("-o", "-p", 1) if option.name in swept else str(option)
        raise


def commands(arguments: argparse.Namespace, requests: Mapping[Setting, Request], out: str) -> Iterator[str]:
    """Yield the command line of every run."""
    for setting, request in requests.items():
        for seed in seeds_of(arguments, request):
            folder = os.path.join(folder_of(out, setting), f"{request.config.framework}-{seed}")
            words = seeds.train_command(with_setting(arguments, setting), folder, request.config.framework, seed)
            yield shlex.join(words)


def folder_of(out: str, setting: Setting) -> str:
    name = UNUSUAL.sub("_", ",".join(setting))
    if len(name) > MAX_NAME:
        name = f"{name[:MAX_NAME]}-{hashlib.sha256(','.join(setting).encode()).hexdigest()[:8]}"
    return os.path.join(out, name)


def seeds_of(arguments: argparse.Namespace, request: Request) -> range:
    return range(request.config.seed, request.config.seed + arguments.seeds)


def run_settings(
    arguments: argparse.Namespace, requests: Mapping[Setting, Request], out: str, metric: str
) -> list[Row]:
    """Start or continue the runs that are not complete, --jobs at once; those that fail are told and left out."""
    free: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()
    for share in shares(arguments.jobs):
        free.put(share)

    def best_of(setting: Setting, seed: int) -> float | None:
        share, name, config = free.get(), " ".join(setting), requests[setting].config
        try:
            settled, folder = with_setting(arguments, setting), folder_of(out, setting)
            best = seeds.finish_run(settled, folder, config.framework, seed, config.target, share).best
        except UserError as error:
            print(printable(f"error: {name}: {error}"), file=sys.stderr, flush=True)
            return None
        finally:
            free.put(share)
        print(f"{name}, seed {seed}: best {metric} {best:.4f}", flush=True)
        return best

    runs = [(setting, seed) for setting, request in requests.items() for seed in seeds_of(arguments, request)]
    pool = ThreadPoolExecutor(arguments.jobs)
    try:
        found = list(pool.map(best_of, *zip(*runs)))
    except BaseException:  # Ctrl-C, or SIGTERM: the runs save and end, too
        pool.shutdown(wait=False, cancel_futures=True)
        for process in psutil.Process().children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    best: dict[Setting, list[float]] = {setting: [] for setting in requests}
    for (setting, _), metric_of_run in zip(runs, found):
        best[setting] += [] if metric_of_run is None else [metric_of_run]
    return [Row(" ".join(setting), each) for setting, each in best.items()]


def shares(jobs: int) -> list[dict[str, str]]:
    """Return variables for each of several runs at once: a GPU or NPU, and its part of the cores."""
    if jobs == 1:
        return [{}]
    every: dict[str, list[str]] = {}
    for kind, name in VISIBLE.items():
        present = (path.name.removeprefix(kind) for path in machine.DEV.glob(f"{kind}[0-9]*"))
        every[name] = list(filter(None, os.environ[name].split(","))) if name in os.environ else sorted(present)
    threads = os.environ.get(THREADS) or str(max(1, len(host.cores()) // jobs))
    devices = [{name: each[job % len(each)] for name, each in every.items() if each} for job in range(jobs)]
    return [{THREADS: threads, **device} for device in devices]


def report(rows: Sequence[Row], runs: int, title: str, out: str) -> None:
    """Print the table, and write it and its plot to a folder; `runs` are those of each setting."""
    done = sorted((row for row in rows if row.best), key=lambda row: -row.mean)
    columns = ("setting", "runs", "mean", f"{seed_tables.CONFIDENCE:.0%} interval", "min", "max")
    cells = [[row.setting, f"{len(row.best)} of {runs}", *_numbers(row)] for row in done]
    cells += [[row.setting, f"0 of {runs}", *[None] * 4] for row in rows if not row.best]
    text = "\n".join([f"{title}, best of a run", "", *table(cells, columns, markdown=True)])
    print(f"\n{text}\n")
    if not done:  # the table of an earlier sweep stays
        return
    numbers = [dict(zip(columns, row)) for row in cells]
    for name, content in (("md", f"{text}\n"), ("csv", csv_text(numbers, columns)), ("tex", latex(cells, columns))):
        durable.write(os.path.join(out, f"sweep.{name}"), content.encode())
    if extras.is_installed("matplotlib"):
        from zoo.commands import charts

        bars = [charts.Bar(row.setting, row.mean, row.half_width or 0.0, row.best) for row in done]
        label = f"{title}, best of a run: mean and {seed_tables.CONFIDENCE:.0%} interval"
        charts.plot_settings(bars, label, os.path.join(out, "sweep.png"))
    print(f"the table is in {os.path.join(out, 'sweep.md')}, the runs beside it")


def _numbers(row: Row) -> list[str | None]:
    width = row.half_width
    interval = None if width is None else f"{row.mean - width:.4f} to {row.mean + width:.4f}"
    return [f"{row.mean:.4f}", interval, f"{min(row.best):.4f}", f"{max(row.best):.4f}"]
