"""Prove that a recipe is the same computation in every installed framework, and compare loss curves and speed."""

import argparse
import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from zoo import program
from zoo.commands.options import add_recipe_arguments, recipe_words
from zoo.compare import ranks, worker
from zoo.compare.findings import Finding, Verdict, judge
from zoo.compare.report import Rows, load, plot, print_speeds, print_steps, problems_of
from zoo.config.schema import Config
from zoo.data import extras
from zoo.data.errors import UserError, known_names
from zoo.distributed.launchers import read_world
from zoo.frameworks import FRAMEWORKS
from zoo.parity import record
from zoo.parity import report as pages
from zoo.program import count, natural
from zoo.run.folder import new_results
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options, Request

EPILOG = """\
Each framework runs in a process of its own, on the same batches, from the same weights.

The proof: forward passes in training and in evaluation mode, module by module, and four updates at the largest learning
rate of the schedule, with their gradients, running statistics and optimizer state. It is computed in fp64, where two
equal computations differ by 1e-10 at most and not by 1e-3, and again in fp32 and with --amp in 16 bits, whose updates,
outputs and gradients may differ from fp64 by rounding alone. The limit of every tensor comes from the rounding that the
frameworks show there. The first tensor beyond its limit is named, with the module, the source files and, if a
hypothesis fits the numbers, the likely cause. report.html shows all modules.

What all frameworks share is compared with definitions in numpy: losses and their gradients, optimizers, learning rates,
parameter groups, class weights and metrics. On a CPU, two updates of two micro-batches run in two processes, too, which
must hold the same weights and agree with the definition of the loss; those of MindSpore with --thorough.

The curves: --steps updates of the recipe as it stands. The losses of the first --within must agree by --tolerance.
Beyond some dozens of steps, any two computations in fp32 diverge; with --exact they do not. So if losses differ though
the proof found nothing, these steps are run again with --exact, which tells rounding from a fault.

examples
  %(prog)s -c configs/tsm_demo.yaml
  %(prog)s -c configs/my_model.yaml --frameworks torch,mindspore --steps 0
  %(prog)s -c configs/tsm_demo.yaml --exact --steps 200 --within 200 --tolerance 1e-6
  %(prog)s -c configs/tsm_demo.yaml --frameworks torch --against runs/compare-old
  %(prog)s -c configs/tsm_demo.yaml --python torch=.venv-torch/bin/python --python paddle=.venv-paddle/bin/python

Exit codes: 0 they agree, 1 they differ, 2 an error to fix on your side."""
EXACT_SETTINGS = ("train.precision=exact", "train.amp_level=null", "train.fp16_allreduce=false")
EXACT_TOLERANCE = 1e-6  # largest relative difference of a loss
SLOW_PROCESSES = ("mindspore",)  # frameworks whose processes need a minute to join
ALWAYS_COMPILED = ("jax",)  # those that refuse train.compile=false


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    if not arguments.worker:
        return compare(arguments)
    environment = os.environ if processes(arguments) > 1 else {}
    stem = os.path.join(arguments.out, arguments.worker)
    if arguments.two:
        worker.run_one_of_two(request(arguments, arguments.worker), environment, stem, arguments.after)
        return 0
    worker.run_rank(request(arguments, arguments.worker), environment, arguments.steps, stem, not arguments.no_proof)
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add_recipe_arguments(parser, ("amp", "exact", "device"))
    add = parser.add_argument
    add(
        "--frameworks",
        metavar="A,B",
        help=f"of {', '.join(FRAMEWORKS)}; default: those installed whose device has the precision",
    )
    add(
        "--against",
        metavar="DIR",
        action="append",
        default=[],
        help="also compare with the results of an earlier comparison in DIR (on another machine, say); repeatable",
    )
    add("--steps", type=natural, default=20, metavar="N", help="updates to run; default 20; 0: the proof alone")
    add("--within", type=count, default=20, metavar="N", help="updates whose losses must agree; default 20")
    add(
        "--tolerance", type=float, default=1e-3, metavar="X", help="largest relative difference of a loss; default 1e-3"
    )
    add("--processes", default="1x1", metavar="HOSTSxPROCESSES", help="of each framework, on this host; default 1x1")
    add(
        "--python",
        metavar="FRAMEWORK=PATH",
        action="append",
        default=[],
        help="the interpreter of another environment, which has this package and the framework; repeatable",
    )
    add("--thorough", action="store_true", help="also two processes of MindSpore, which need a minute to join")
    add("--out", metavar="DIR", help="folder for the numbers and the plot; default runs/compare-<recipe>, never reused")
    add("--worker", metavar="FRAMEWORK", help=argparse.SUPPRESS)  # this process trains one framework for another one
    add("--two", action="store_true", help=argparse.SUPPRESS)  # the proof with two processes
    add("--after", metavar="STEM", help=argparse.SUPPRESS)  # the results of a framework from which two go on
    add("--no-proof", action="store_true", help=argparse.SUPPRESS)  # the steps alone
    return parser


def compare(arguments: argparse.Namespace) -> int:
    """Run the frameworks one after another, then print and draw the comparison.

    A framework that fails does not keep the others from being compared. One that has no such precision here is left
    out, unless it was asked for. What raises an error is a difference where anything else was computed.

    Returns:
        0 if all agree, 1 if not.
    """
    processes(arguments)
    frameworks = select_frameworks(arguments.frameworks, interpreters(arguments))
    config = request(arguments).config  # errors in the recipe show before anything is started
    arguments.override = with_one_precision(with_same_loader(arguments.override, config), config)
    sources = [source for folder in arguments.against for source in earlier_results(folder)]
    folder = new_results(arguments.out, "compare", arguments.config)
    failures: dict[str, str] = {}
    refusals: list[str] = []
    before: str | None = None
    for framework in reversed(frameworks):
        print(f"{framework}: the proof and {arguments.steps} steps ...", flush=True)
        failure = run_worker(framework, arguments, folder)
        refusal = worker.refusal(os.path.join(folder, framework))
        if refusal and not arguments.frameworks:
            refusals.append(f"{framework} is left out: {refusal}")
            print(refusals[-1], flush=True)
            continue
        if failure:
            failures[framework] = failure
            continue
        sources.insert(0, (framework, os.path.join(folder, framework)))
        if (arguments.thorough or framework not in SLOW_PROCESSES) and has_room_for_two(arguments, sources[0][1]):
            before = run_two(framework, arguments, folder, before)
    crashes = worker.crashes(folder, bool(sources))
    errors = [failure for framework, failure in failures.items() if framework not in crashes]
    if len(refusals) == len(frameworks):
        errors = refusals
    code = 0
    try:
        code = report(sources, list(map(str, crashes.values())), folder, arguments)
    except UserError as error:
        errors.append(str(error))
    if errors:
        raise UserError("\n".join(errors))
    return code


def report(
    sources: Sequence[tuple[str, str]], crashes: Sequence[str], folder: str, arguments: argparse.Namespace
) -> int:
    """Print and draw the comparison of the results.

    Args:
        sources: title and path without suffix of each framework's results.
        crashes: what stopped a framework.

    Returns:
        0 if all agree, 1 if not.
    """
    if not sources:
        for crash in crashes:
            print(crash)
        return 1 if crashes else 0
    headers, rows, losses = {}, {}, ""
    for name, stem in sources:
        headers[name], rows[name] = load(stem + ".jsonl")
    steps = min(map(len, rows.values()))
    rows = {name: values[:steps] for name, values in rows.items()}
    if steps:
        print_steps(rows)
    verdict = judge_sources(sources)
    problems = [*crashes, *map(str, verdict.findings), *map(str, judge_two(sources))]
    if steps:
        print_speeds(headers, rows)
        apart = problems_of(rows, arguments.within, arguments.tolerance)
        losses = f", losses within {arguments.tolerance:g}"
        if apart and not problems and can_repeat(sources, folder, arguments):
            apart = repeat_exactly([name for name, _ in sources], folder, arguments, apart)
            losses = f", losses within {EXACT_TOLERANCE:g} with --exact"
        problems += apart
    for what in verdict.without_opinion:
        print(f"no second opinion on {what}: no definition of it is in zoo/compare/reference")
    print(f"the numbers are in {folder}")
    draw(rows, verdict, problems, folder, os.path.basename(arguments.config))
    for problem in problems:
        print(f"they do not agree: {problem}" if len(sources) + len(crashes) > 1 else problem)
    if len(sources) < 2:
        print("only one framework: its optimizer is checked, there is nothing else to compare it with")
    elif not problems:
        print(f"they agree: {len(verdict.differences)} tensors within rounding{losses}")
    return 1 if problems else 0


def draw(rows: Rows, verdict: Verdict, problems: Sequence[str], folder: str, title: str) -> None:
    """Write report.html and, if steps were trained, curves.png."""
    missing = [name for name in ("jinja2", "matplotlib") if not extras.is_installed(name)]
    if missing:
        print(f"report.html is not written: {extras.missing(missing[0])}")
        return
    path, image = os.path.join(folder, "report.html"), plot(rows) if all(rows.values()) else None
    if image:
        Path(folder, "curves.png").write_bytes(image)
    pages.write_page(path, title, list(rows), problems, [pages.Section(pages.NATURAL, verdict.differences)], image)
    print(f"the numbers of all modules and the curves are in {path}")


def can_repeat(sources: Sequence[tuple[str, str]], folder: str, arguments: argparse.Namespace) -> bool:
    """Return whether all results come from this comparison, in frameworks that have fp64, and not from exact runs."""
    is_exact = request(arguments).config.train.precision == "exact"
    stems = [os.path.join(folder, name) for name, _ in sources]
    return not is_exact and all(os.path.exists(f"{stem}-fp64.safetensors") for stem in stems)


def repeat_exactly(
    frameworks: Sequence[str], folder: str, arguments: argparse.Namespace, problems: Sequence[str]
) -> list[str]:
    """Train the steps whose losses differ again with --exact, where rounding cannot grow.

    Args:
        folder: of this comparison; the losses are written to its folder `exact`.

    Returns:
        What differs with --exact too; all problems if a framework fails.
    """
    steps = min(arguments.steps, arguments.within)
    print(
        f"{problems[0]}, although all updates are equal; {steps} steps with --exact tell whether this is rounding ..."
    )
    exact = argparse.Namespace(**vars(arguments))
    exact.steps = steps
    exact.no_proof = True
    exact.amp = False
    exact.exact = False
    exact.override = [*arguments.override, *EXACT_SETTINGS]
    exact_folder = os.path.join(folder, "exact")
    os.makedirs(exact_folder)
    for framework in frameworks:
        failure = run_worker(framework, exact, exact_folder)
        if failure:
            print(failure)
            return [f"{problem}; the comparison with --exact failed" for problem in problems]
    rows = {name: load(os.path.join(exact_folder, f"{name}.jsonl"))[1] for name in frameworks}
    found = problems_of(rows, steps, EXACT_TOLERANCE)
    if not found:
        print("it is rounding, which this recipe makes grow: with --exact, the losses agree")
    return [f"with --exact, {problem}" for problem in found]


def judge_sources(sources: Sequence[tuple[str, str]]) -> Verdict:
    """Compare the proofs of the results.

    Args:
        sources: title and path without suffix of each framework's results.
    """
    rounded = {name: record.load(f"{stem}-rounded.safetensors") for name, stem in sources}
    proofs = {
        name: record.load(f"{stem}-fp64.safetensors") if os.path.exists(f"{stem}-fp64.safetensors") else rounded[name]
        for name, stem in sources
    }
    stems = {name: f"{stem}-mixed.safetensors" for name, stem in sources}
    return judge(proofs, rounded, {name: record.load(path) for name, path in stems.items() if os.path.exists(path)})


def judge_two(sources: Sequence[tuple[str, str]]) -> list[Finding]:
    """Compare the proofs with two processes of those results that have one."""
    paths = {name: f"{stem}{worker.RANKS}.safetensors" for name, stem in sources}
    return ranks.findings({name: record.load(path) for name, path in paths.items() if os.path.exists(path)})


def has_room_for_two(arguments: argparse.Namespace, stem: str) -> bool:
    """Return whether two processes can run here beside a proof with one: on a CPU."""
    header, _ = load(stem + ".jsonl")
    return header["device"].startswith("cpu") and processes(arguments) == 1 and not arguments.no_proof


def run_two(framework: str, arguments: argparse.Namespace, folder: str, before: str | None) -> str | None:
    """Run the proof of a framework with two processes; a recipe that two cannot share is none for them.

    Args:
        before: path without suffix of the results of another framework, from whose checkpoint they go on.

    Returns:
        The same of this framework, for the next one.
    """
    two = argparse.Namespace(**vars(arguments))
    two.two, two.after, two.processes = True, before, f"1x{ranks.COUNT}"
    two.override = [*arguments.override, *(() if framework in ALWAYS_COMPILED else ("train.compile=false",))]
    print(f"{framework}: the proof with two processes ...", flush=True)
    failure = run_worker(framework, two, folder)
    if failure:
        print(f"no proof with two processes: {failure}")
        return before
    return os.path.join(folder, framework)


def processes(arguments: argparse.Namespace) -> int:
    """Return the number of processes of a framework. Raises UserError unless they are of one host."""
    hosts, count = read_world(arguments.processes, "--processes")
    if hosts != 1:
        raise UserError(f"--processes {arguments.processes}: all processes are started here; give 1x{hosts * count}")
    return count


def interpreters(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the interpreters of other environments by framework. Raises UserError if one cannot be run."""
    found = program.pairs("--python", arguments.python)
    for framework, path in found.items():
        if framework not in FRAMEWORKS:
            raise UserError(f"--python {framework}: no framework{known_names(framework, FRAMEWORKS)}")
        if not shutil.which(path):
            raise UserError(f"--python {framework}={path}: there is no such program")
    return found


def select_frameworks(names: str | None, elsewhere: Collection[str] = ()) -> list[str]:
    """Return the frameworks to run: those of a comma-separated list, or all that are installed, here or elsewhere."""
    installed = [name for name in FRAMEWORKS if name in elsewhere or extras.is_installed(name)]
    selected = names.split(",") if names else installed
    for name in selected:
        if name not in FRAMEWORKS:
            raise UserError(f"--frameworks: there is no {name!r}; there are: {', '.join(FRAMEWORKS)}")
        if name not in installed:
            raise UserError(extras.missing(name))
    if not selected:
        raise UserError(f"no framework is installed here: {extras.install_command(','.join(FRAMEWORKS))}")
    return selected


def with_same_loader(overrides: Sequence[str], config: Config) -> list[str]:
    """Return the changes of a recipe with which the frameworks get equal pixels, where data.loader=auto might not."""
    if config.data.loader != "auto":
        return [*overrides]
    print("data.loader: auto takes reference here, so that all frameworks get equal pixels", flush=True)
    return [*overrides, "data.loader=reference"]


def with_one_precision(overrides: Sequence[str], config: Config) -> list[str]:
    """Return the changes of a recipe with which all frameworks compute in one 16-bit type, where amp might differ."""
    if config.train.precision != "amp":
        return [*overrides]
    print("train.precision: amp takes fp16 here, in all frameworks; -o train.precision=bf16 takes bf16", flush=True)
    return [*overrides, "train.precision=fp16"]


def earlier_results(folder: str) -> list[tuple[str, str]]:
    """List the results of an earlier comparison: a title and the path without suffix for each framework."""
    title = os.path.basename(os.path.normpath(folder))
    results = [
        (f"{name} ({title})", os.path.join(folder, name))
        for name in FRAMEWORKS
        if os.path.exists(os.path.join(folder, name + ".jsonl"))
    ]
    if not results:
        raise UserError(f"--against: {folder} holds no results of an earlier comparison (torch.jsonl and the like)")
    return results


def request(arguments: argparse.Namespace, framework: str | None = None) -> Request:
    return resolve_recipe(
        Options(
            arguments.config,
            arguments.override,
            amp=arguments.amp,
            exact=arguments.exact,
            framework=framework,
            device=arguments.device,
        )
    )


def run_worker(framework: str, arguments: argparse.Namespace, folder: str) -> str:
    """Run one framework in processes of its own, whose output goes to <folder>/<framework>.log.

    Returns:
        A message with the end of its output if a process failed, else "".
    """
    python = interpreters(arguments).get(framework)
    start = [python, "-m", "zoo", "compare"] if python else program.command("compare")
    command = [*start, "--worker", framework, "--steps", str(arguments.steps)]
    command += ["--out", folder, *recipe_words(arguments, ("amp", "exact", "device"))]
    command += ["--no-proof"] if arguments.no_proof else []
    command += ["--two"] if arguments.two else []
    command += ["--after", arguments.after] if arguments.after else []
    command += ["--processes", arguments.processes]
    log = os.path.join(folder, f"{framework}{worker.RANKS if arguments.two else ''}.log")
    code, end = worker.run_ranks(command, processes(arguments), log)
    return f"{framework} exited with code {code}; the end of {log}:\n{end}" if code else ""
