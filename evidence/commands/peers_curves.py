"""Lay the training curve of a recipe on that of upstream's own program, from the same weights and batches."""

import argparse
import importlib.util
import itertools
import json
import multiprocessing
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evidence.peers import copies, curves, programs
from evidence.peers.curves import Curve, Recorder, Work
from zoo import program
from zoo.bench import upstream
from zoo.commands.options import add_recipe_arguments
from zoo.compare.report import Row, plot, print_steps, relative_difference
from zoo.config import loader
from zoo.config.schema import Upstream
from zoo.data.batch import Batch
from zoo.data.errors import UserError
from zoo.data.stream import open_training
from zoo.run.folder import new_results
from zoo.run.job import STATISTICS, Job, assemble, join
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options, Request
from zoo.run.schedule import base_lr
from zoo.table import table
from zoo.weights import conversion, names
from zoo.weights.match import require_match

EPILOG = """\
Upstream's main program trains its own model with its own optimizer, schedule and loop, from its settings, of which only
sizes, the learning rate that belongs to the batch, and the length of warm-up and milestones are changed. This trainer
begins with the same weights and takes the same batches and dropout masks, for 50 updates in fp64. What the recipe does
otherwise on purpose is measured, and then taken out of upstream; its header has the reasons.

examples
  %(prog)s --upstream ~/clones -c resnet50_imagenet
  %(prog)s --upstream ~/clones -c tsm_k400 -o train.precision=fp32

Exit codes: 0 they agree, 1 they differ, 2 an error to fix on your side."""
OURS, UPSTREAM = "this trainer", "upstream"
Differences = dict[str, tuple[float, str]]
LIMITS = {"fp64": 1e-9, "fp32": 1e-5}  # largest relative difference of a loss
FACTOR = 100  # of the limit, for gradient norms and tensors, in which rounding is larger
FLOOR = 1e-6  # of the largest element of all: smaller tensors are the rounding of gradients that are 0
ENTRY = re.compile(r"#\s+(\S+(?: \S+)*)\s{2,}(\S.*)")  # of a recipe's header: what differs, and how


class Case(NamedTuple):
    """An upstream project, and a small training of its model.

    Attributes:
        folder: of its copy; None if it is installed.
        options: changes of the recipe, separated by spaces.
        on_purpose: what differs in such a training too, as the header of the recipe names it.
    """

    folder: str | None
    program: Callable[[Work, Recorder], None]
    options: str
    on_purpose: tuple[str, ...] = ()
    framework: str = "torch"


NVIDIA = """data.kind=image data.size=64 data.num_classes=1000 data.train_samples=40 train.batch=4 train.epochs=5
    train.global_batch=null optim.lr=0.00128 optim.warmup=2epochs"""
TORCHVISION = """data.kind=image data.size=64 data.num_classes=1000 data.train_samples=40 train.batch=4 train.epochs=5
    optim.lr=0.00016 optim.milestones=[2,4]"""
TSM = """data.kind=clip data.size=48 data.num_classes=400 data.train_samples=20 train.batch=2 train.epochs=5
    model.pretrained=null optim.lr=0.002 optim.milestones=[2,4]"""
FACES = """data.kind=face data.size=112 data.num_classes=1000 data.train_samples=40 train.batch=4 train.epochs=5
    model.depth=18 optim.lr=0.01"""
# 0.9 and 1e-4 in fp32, as Paddle's Momentum holds them
PADDLE_TSM = f"{TSM} optim.momentum=0.8999999761581421 optim.weight_decay=9.999999747378752e-05"
SCENES = """data.kind=scene data.crop=[64,64] data.train_samples=100 train.batch=2 train.steps=50 train.sync_bn=false
    model.pretrained=null optim.lr=0.0004 optim.base_batch=2"""
CASES = {
    "https://github.com/NVIDIA/DeepLearningExamples": Case("DeepLearningExamples", programs.nvidia, NVIDIA),
    "https://github.com/pytorch/vision": Case("vision", programs.torchvision, TORCHVISION),
    "https://github.com/mit-han-lab/temporal-shift-module": Case(
        "temporal-shift-module", programs.mit_han_lab, TSM, ("clip_norm",)
    ),
    "https://github.com/PaddlePaddle/PaddleVideo": Case(
        "PaddleVideo", programs.paddlevideo, PADDLE_TSM, ("statistics",), "paddle"
    ),
    "https://github.com/deepinsight/insightface": Case(
        "insightface", programs.insightface, FACES, ("precision", "clipping")
    ),
    "https://github.com/open-mmlab/mmsegmentation": Case(
        None, programs.mmsegmentation, SCENES, ("mean over pixels (1.2e-7 is added to their number)",)
    ),
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add("--upstream", required=True, metavar="DIR", help="folder of the copies of other projects")
    add_recipe_arguments(parser, ())
    add("--out", metavar="DIR", help="new folder for numbers and plot; default runs/compare-<recipe>")
    arguments = parser.parse_args(argv)
    upstream.require_clones(arguments.upstream)
    request, case = resolve(arguments)
    published = request.config.upstream
    assert published  # of a recipe that has a case
    print(f"{published.repository}: {version(arguments.upstream, case, published)}", flush=True)
    job = assemble(request, join(request, os.environ))
    folder = new_results(arguments.out, "compare", arguments.config)
    batches, work = collect(job, request.config, case.framework, os.path.abspath(arguments.upstream), folder)
    theirs = run_upstream(case, work)
    ours = train(job, batches, theirs)
    found = compare(ours, theirs)
    report = {"settings": [*case.options.split(), *arguments.override], "as published": found}
    if case.on_purpose:
        print_purposes(case, arguments.config, found)
        theirs = run_upstream(case, work._replace(as_published=False))
        if any(not np.array_equal(value, ours.initial[name]) for name, value in theirs.initial.items()):
            raise UserError("upstream's program does not begin with the same weights each time; it needs a seed")
        found = compare(ours, theirs)
        report["without what differs on purpose"] = found
    write(folder, ours, theirs, report)
    return judge(found, LIMITS[job.plan.mode.compute])


def resolve(arguments: argparse.Namespace) -> tuple[Request, Case]:
    """Resolve the recipe on synthetic data, with the changes of the case of its upstream and of the user.

    Raises:
        UserError: the recipe names no upstream, or one that cannot be run.
    """
    published = resolve_recipe(Options(arguments.config, framework="torch")).config.upstream
    case = CASES.get(published.repository) if published else None
    if case is None:
        named = f"names {published.repository}" if published else "has no section upstream"
        raise UserError(f"-c {arguments.config}: it {named}; there are programs for {', '.join(CASES)}")
    changes = [
        "data.name=synthetic",
        "data.workers=0",
        "train.precision=fp64",
        *case.options.split(),
        *arguments.override,
    ]
    request = resolve_recipe(Options(arguments.config, changes, framework="torch", device="cpu"))
    if request.config.train.precision not in LIMITS:
        raise UserError(
            f"train.precision: expected one of {', '.join(LIMITS)}; other modes are not upstream's on a CPU"
        )
    return request, case


def version(clones: str, case: Case, published: Upstream) -> str:
    """Return upstream's commit, or that it is a package.

    Raises:
        UserError: it is another commit than the recipe names.
    """
    commit = case.folder and copies.commit(os.path.join(clones, case.folder))
    if commit and commit != published.commit:
        raise UserError(f"--upstream {clones}: {case.folder} is at {commit}, not at {published.commit}; check it out")
    return f"commit {commit}" if commit else "an installed package, or a copy without its history"


def collect(job: Job, config: Any, framework: str, clones: str, folder: str) -> tuple[list[Batch], Work]:
    """Return all batches of the recipe, and what upstream's program is given: the same, with numbers of the recipe.

    Raises:
        UserError: the run does not consist of whole epochs.
    """
    epochs, clock = int(config.train.epochs or 1), job.clock
    trainer: Any = job.trainer
    if clock.samples % clock.global_batch or clock.steps * clock.global_batch != clock.samples * epochs:
        raise UserError(
            "data.train_samples: upstream leaves out the last incomplete batch of an epoch; make it a multiple of "
            f"train.batch, {clock.global_batch}, and the run as long as whole epochs"
        )
    arguments = job.train_set, config.seed, clock.global_batch, 0, clock.steps, 0, 1, job.dropout_masks
    batches = [batch for batch, _ in open_training(*arguments)]
    image, label = (field.name for field in job.plan.fields[:2])
    return batches, Work(
        framework=framework,
        clones=clones,
        files=config.upstream.files,
        dtype="float64" if job.plan.mode.is_fp64 else "float32",
        inputs=[trainer.preprocess(trainer.to_device(batch)[image]).contiguous().numpy() for batch in batches],
        labels=[batch[label] for batch in batches],
        masks=[batch[mask.name] for batch in batches for mask in job.dropout_masks],
        epochs=epochs,
        lr=base_lr(config.optim, clock.global_batch),
        warmup=int(config.optim.warmup.value),
        milestones=[int(milestone) for milestone in config.optim.milestones],
        arch=job.arch,
        log=os.path.join(folder, "upstream.log"),
    )


def run_upstream(case: Case, work: Work) -> Curve:
    """Run upstream's program in a process of its own.

    Raises:
        UserError: something that it needs is not installed, or it fails.
    """
    print(f"upstream's program, {len(work.labels)} updates ...", flush=True)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            curve = pool.submit(curves.train, case.program, work).result()
        except BrokenProcessPool:
            raise UserError(f"upstream's program has ended; {work.log} has the cause") from None
    if len(curve.rates) != len(curve.losses) or len(curve.losses) != len(work.labels):
        raise UserError(f"upstream's program made {len(curve.rates)} updates, not {len(work.labels)}: {work.log}")
    tensors = [conversion.to_canonical(part, names.detect(part), {})[0] for part in (curve.initial, curve.final)]
    return curve._replace(initial=tensors[0], final=tensors[1])


def train(job: Job, batches: Sequence[Batch], start: Curve) -> Curve:
    """Train the recipe from upstream's initial tensors."""
    trainer: Any = job.trainer
    require_match(start.initial, job.spec.shapes(job.arch), "upstream's model")
    trainer.load_state_dict({**trainer.state_dict(), **start.initial})
    curve = Curve([], [], [], start.initial, {})
    for number, batch in enumerate(batches):
        lr = job.lr(number)
        numbers = trainer.read(trainer.step([trainer.to_device(batch)], lr, number))
        for values, value in zip(curve[:3], (lr, numbers["loss"], numbers["grad_norm"])):
            values.append(value)
    state = trainer.state_dict()
    return curve._replace(final={name: state[name] for name in start.final})


def compare(ours: Curve, theirs: Curve) -> Differences:
    """Return the largest relative difference of each quantity, and where it is.

    Those of tensors are relative to the largest element of each, after the last update.
    """
    found: Differences = {}
    for name in ("losses", "gradient norms", "learning rates"):
        field = name.rpartition(" ")[2]
        values = [relative_difference(pair) for pair in zip(getattr(ours, field), getattr(theirs, field))]
        found[name] = max(values), f"update {values.index(max(values)) + 1}"
    sizes = {key: float(np.abs(value).max()) for key, value in theirs.final.items()}
    floor = FLOOR * max(sizes.values())
    for name, is_statistic in (("weights", False), ("running statistics", True)):
        tensors = {
            key: float(np.abs(ours.final[key] - theirs.final[key]).max()) / max(size, floor)
            for key, size in sizes.items()
            if key.endswith(STATISTICS) == is_statistic
        }
        worst = max(tensors, key=lambda key: tensors[key])
        found[name] = tensors[worst], worst
    return found


def print_purposes(case: Case, config: str, found: Differences) -> None:
    """Print what differs on purpose, in the words of the headers of the recipe and its bases, and its size."""
    own, header = loader.find_recipe(config), dict[str, str]()
    files = {str(entry.origin).rpartition(":")[0] for entry in loader.read(own).values()}
    for path in (*sorted(files - {own}), own):
        header |= read_header(path)
    print("differs on purpose, and is then taken out of upstream:")
    for name in case.on_purpose:
        print(f"  {name}:{header.get(name, ' not in the header of the recipe')}")
    print_differences(found, "with it")


def read_header(path: str) -> dict[str, str]:
    """Return what a recipe does otherwise than its upstream, and how, as the comment at its beginning says."""
    header, key = dict[str, str](), ""
    with open(path, encoding="utf-8") as file:
        for line in itertools.takewhile(lambda line: line.startswith("#"), file):
            entry = ENTRY.fullmatch(line.rstrip())
            key, text = entry.groups() if entry else (key, line.strip("# \n"))
            header[key] = f"{header.get(key, '')} {text}"
    return header


def print_differences(found: Differences, title: str) -> None:
    """Print the largest differences as a table."""
    rows = [(name, f"{value:.1e}", place) for name, (value, place) in found.items()]
    print("\n".join(table(rows, (title, "largest relative difference", "of"))), flush=True)


def write(folder: str, ours: Curve, theirs: Curve, report: Mapping[str, Any]) -> None:
    """Print the curves, and write them as numbers and, if Matplotlib is installed, as a plot."""
    rows = {
        title: [Row(number, *values, 0, 0, 0) for number, values in enumerate(zip(*curve[:3]), 1)]
        for title, curve in ((OURS, ours), (UPSTREAM, theirs))
    }
    print_steps(rows)
    curves_of = {
        title: {"lr": c.rates, "loss": c.losses, "grad_norm": c.norms} for title, c in zip(rows, (ours, theirs))
    }
    Path(folder, "curves.json").write_text(json.dumps({**report, **curves_of}, indent=1) + "\n", encoding="utf-8")
    if importlib.util.find_spec("matplotlib"):
        Path(folder, "curves.png").write_bytes(plot(rows))
    print(f"numbers, plot and what upstream printed are in {folder}")


def judge(found: Differences, limit: float) -> int:
    """Print the largest differences and those beyond their limits; return the exit code."""
    print_differences(found, "quantity")
    limits = {name: limit if name in ("losses", "learning rates") else FACTOR * limit for name in found}
    beyond = [name for name, (value, _) in found.items() if not value <= limits[name]]
    for name in beyond:
        print(f"they do not agree: {name} differ by {found[name][0]:.1e}, limit {limits[name]:g}, {found[name][1]}")
    if not beyond:
        print(f"they agree: losses within {limit:g}")
    return 1 if beyond else 0
