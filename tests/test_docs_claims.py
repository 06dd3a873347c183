"""The documentation is true: its command lines are accepted, and numbers that follow from the code are equal to it."""

import argparse
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from tests.campaign.fuzzing.readers import READERS
from tests.campaign.network import ATTACKS, IN_RUNS, LISTENERS
from tests.helpers.paths import CONFIGS, ROOT
from tests.mutants.fault import read_table
from tests.test_docs import COMMANDS, PAGES, code, commands, read
from zoo import cli
from zoo.bench.submission import rules as airank
from zoo.commands import prepare
from zoo.config.schema import Config, Train
from zoo.data.dataset import LoaderSettings
from zoo.data.formats import regular
from zoo.distributed import rendezvous, wire
from zoo.export import low_precision, proof, samples
from zoo.finetune import recipe as finetune
from zoo.models import load_spec
from zoo.models.onnx_nodes import OPSET
from zoo.predict import batches
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options, Window
from zoo.trainer import margin, update

RUN_ON = ("launch", "evaluate")  # which pass on what they do not know to zoo train
README, CHINESE = "README.md", "README.zh.md"
CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
NAMES = [page.relative_to(ROOT).as_posix() for page in CURRENT]


class Accepted(Exception):
    """A parser has accepted a command line."""


@pytest.fixture
def stop_when_parsed(monkeypatch):
    """Make every parser raise Accepted in place of returning."""
    depth = []

    def stopping(parse):
        def parse_known(self, *args, **kwargs):
            depth.append(self)  # the parser of a command of a command is called by that of the command
            try:
                found, rest = parse(self, *args, **kwargs)
            finally:
                depth.pop()
            if not depth:
                raise Accepted(rest)
            return found, rest

        return parse_known

    for name in ("parse_known_args", "parse_known_intermixed_args"):
        monkeypatch.setattr(argparse.ArgumentParser, name, stopping(getattr(argparse.ArgumentParser, name)))


def documented(page):
    """Return the command lines of a page that can be called as they stand: no "...", nothing in capitals to fill in."""
    found = [each for each in commands(read(page)) if each.name in COMMANDS and len(each.arguments) > 1]
    return [each for each in found if not re.search(r"\.\.\.|(?<![^\s=/:<])[A-Z]{2,}|-[co]$", " ".join(each.arguments))]


@pytest.mark.parametrize("page", CURRENT, ids=NAMES)
def test_command_lines_are_accepted(page, stop_when_parsed, capsys):
    for name, arguments in documented(page):
        code = None
        try:
            code = cli.call(COMMANDS[name][0], list(arguments))
        except Accepted as accepted:
            rest = accepted.args[0]
            assert not rest or name in RUN_ON, f"zoo {name} {' '.join(arguments)}: {rest}"
        assert code in (None, 0), f"zoo {name} {' '.join(arguments)}: {capsys.readouterr().err}"


def test_a_wrong_command_line_is_found(stop_when_parsed, capsys):
    assert cli.run("bench matrix", ["-c", "tsm_demo", "--precison", "fp32"]) == 2
    with pytest.raises(Accepted):
        cli.run("bench matrix", ["-c", "tsm_demo", "--precisions", "fp32", "--out", "x"])


@pytest.mark.parametrize("page", CURRENT, ids=NAMES)
def test_recipes_of_command_lines_are_valid(page):
    for _, arguments in documented(page):
        pairs = list(pairwise(arguments))
        recipes = [value for option, value in pairs if option in ("-c", "--config")]
        changes = [value for option, value in pairs if option == "-o" and "=" in value]
        for recipe in recipes:
            if any((CONFIGS / f"{name}.yaml").exists() for name in (recipe, recipe.removeprefix("configs/")[:-5])):
                resolve_recipe(Options(recipe, changes))


def test_targets_of_make_extras_and_modules_exist():
    text = "\n".join(line for page in CURRENT for line in code(read(page)))
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"(?<![\w-])make ([a-z][a-z-]*)", text))
    assert targets and [each for each in targets if not re.search(rf"^{each}:", makefile, re.MULTILINE)] == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {name for group in re.findall(r"pip install '[^'\[]*\[([\w,-]+)\]", text) for name in group.split(",")}
    assert named and named <= extras.keys()
    modules = set(re.findall(r"python3? -m ((?:tests|zoo)[\w.]*)", text))
    paths = [ROOT / each.replace(".", "/") for each in modules]
    assert modules and all(path.with_suffix(".py").exists() or (path / "__main__.py").exists() for path in paths)


def test_the_chinese_readme_has_the_numbers_of_the_english_one():
    def numbers(name: str) -> Counter[str]:
        table = [
            line for line in (ROOT / name).read_text().splitlines() if line.startswith(("| `", "|")) and "0." in line
        ]
        return Counter(re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", "\n".join(table)))

    assert numbers("README.md") == numbers("README.zh.md") and numbers("README.md")
    text = {name: (ROOT / name).read_text() for name in ("README.md", "README.zh.md")}
    assert len({re.search(r"\[50 .*?(\d\S*e-\d+)\]\(docs/models.md\)", each)[1] for each in text.values()}) == 1


def largest(page: str, head: str, rows: str, columns: slice = slice(None)) -> str:
    """Return the largest number with an exponent in some rows and columns of the table with a head."""
    lines = (ROOT / page).read_text().split(head, 1)[1].split("\n\n")[0].splitlines()
    cells = [cell for line in lines if re.match(rows, line) for cell in line.split("|")[columns]]
    return max(re.findall(r"\d[\d.]*e-\d+", " ".join(cells)), key=float)


@cache
def config(name: str) -> Config:
    return resolve_recipe(Options(name)).config


def parameters(model: str, classes: int | None = 19, **options: Any) -> str:
    """Return the number of parameters, without those of a class matrix, as text."""
    spec = load_spec(model)
    arch = spec.Arch(num_classes=classes, **options)
    sizes = {name: math.prod(shape) for name, shape in spec.shapes(arch).items() if name not in spec.SHARDED_PARAMETERS}
    return f"{sum(n for name, n in sizes.items() if not name.endswith(('running_mean', 'running_var'))):,}"


def default(settings: Any, name: str) -> str:
    """Return the default of a field as the documentation writes it."""
    value = settings.__dataclass_fields__[name].default
    return str(int(value)) if value == int(value) else str(value)


def in_comparison(framework: str) -> int:
    return sum(fault.framework == framework and bool(fault.recipe) for fault in read_table())


def rate(recipe: str, global_batch: int) -> str:
    optim = config(recipe).optim
    return f"{optim.lr * global_batch / optim.base_batch:g}"


def power_of_ten(value: float) -> str:
    return f"1e{round(math.log10(value))}"


EPOCHS = r"`{}`(?:，|, )(\d+) (?:epochs|个 epoch)"
DEMOS = ("tsm_demo", "resnet50_demo", "arcface_demo")
IMAGENET, FIRST, CITYSCAPES = "resnet50_imagenet", "resnet50_imagenet_v1", "deeplabv3plus_cityscapes"
# A page, a pattern whose groups are numbers of its text, and what these have to be.
CLAIMS: list[tuple[str, str, Callable[[], Any]]] = [
    *((page, EPOCHS.format(demo), lambda demo=demo: config(demo).train.epochs)
      for page in (README, CHINESE) for demo in DEMOS),
    (README, r"losses equal to ([\d.e-]+)\]",
     lambda: largest("docs/models.md", "| recipe | upstream's", r"\| `", slice(3, 4))),
    (README, r"losses equal to ([\d.e-]+), one and two",
     lambda: largest("docs/parity.md", "| | `resnet50_demo` | `tsm_demo`", r"\| (Paddle|MindSpore)")),
    ("docs/parity.md", r"of (\d+) in\sPyTorch, 62 of (\d+) in MindSpore, \d+ of (\d+) in Paddle",
     lambda: tuple(in_comparison(name) for name in ("torch", "mindspore", "paddle"))),
    ("docs/parity.md", r"400 of ([\d,]+) updates", lambda: f"{config('deeplabv3plus_demo').train.steps:,}"),
    ("docs/models.md", r"at 19 classes, depth 50 / 101 \| ([\d,]+) / ([\d,]+) \| ([\d,]+) / ([\d,]+)",
     lambda: tuple(parameters("deeplabv3plus", variant=variant, depth=depth)
                   for variant in ("mmseg", "paddleseg") for depth in (50, 101))),
    ("docs/models.md", r"parameters at depth 50, without classes \| ([\d,]+) \| ([\d,]+)",
     lambda: tuple(parameters("arcface", variant=variant, depth=50) for variant in ("insightface", "plsc"))),
    ("docs/models.md", r"Beyond 2\^(\d+) logits per rank", lambda: int(math.log2(margin.CHUNK_ELEMENTS))),
    ("docs/training.md", r"TSM-R50, 8 frames, (\d+) epochs, learning rate ([\d.]+) for one GPU with (\d+) clips",
     lambda: (config("tsm_k400").train.epochs, rate("tsm_k400", 16), config("tsm_k400").train.batch)),
    ("docs/training.md", r"v1.5: (\d+) epochs, cosine, label smoothing, learning rate ([\d.]+) for 8 x (\d+)",
     lambda: (config(IMAGENET).train.epochs, rate(IMAGENET, 8 * 256), config(IMAGENET).train.batch)),
    ("docs/training.md", r"weights: (\d+) epochs, steps, learning rate ([\d.]+) for 8 x (\d+)",
     lambda: (config(FIRST).train.epochs, rate(FIRST, 8 * 32), config(FIRST).train.batch)),
    ("docs/training.md", r"([\d,]+) updates of 8 images, learning rate ([\d.]+)",
     lambda: (f"{config(CITYSCAPES).train.steps:,}", rate(CITYSCAPES, 8))),
    ("docs/training.md", r"PLSC's R50: (\d+) images per process, learning rate ([\d.]+) for 1024",
     lambda: (config("arcface_ms1m").train.batch, rate("arcface_ms1m", 1024))),
    ("docs/training.md", r"starts at (\d+), doubles after (\d+) finite",
     lambda: (int(update.INITIAL_SCALE), int(update.GROWTH_INTERVAL))),
    ("docs/training.md", r"`train.max_consecutive_skips` \((\d+)\)", lambda: default(Train, "max_consecutive_skips")),
    ("docs/training.md", r"`data.crop` \| (\d+); scenes (\d+), faces (\d+) \| (\d+); clips (\d+), scenes (\d+),",
     lambda: (*(finetune.SIDES[task][1] for task in ("classify", "segment", "faces")),
              *(finetune.SIDES[task][0] for task in ("classify", "clips", "segment")))),
    ("docs/training.md", r"at most (\d+) \(clips (\d+), scenes (\d+)\), and at most a third of the samples",
     lambda: tuple(finetune.LARGEST_BATCH[task][1] for task in ("classify", "clips", "segment"))),
    ("docs/training.md", r"(\d+) updates and (\d+) epochs at least; with trained weights (\d+) and (\d+)",
     lambda: tuple(kind[trained] for trained in (0, 1) for kind in (finetune.UPDATES, finetune.EPOCHS))),
    ("docs/training.md", r"AdamW, learning rate ([\d.]+), with trained weights ([\d.]+)", lambda: finetune.RATES),
    ("docs/training.md", r"decay ([\d.]+), clipped at (\d+)",
     lambda: (finetune.SETTLED["optim.weight_decay"], int(finetune.SETTLED["optim.clip_norm"]))),
    ("docs/airank.md", r"`system_information.json` \((\d+) fields", lambda: len(airank.FIELDS)),
    ("docs/airank.md", r"targets are ([\d.]+) \(TSM\), ([\d.]+) \(ResNet50\) and ([\d.]+) \(DeepLabV3",
     lambda: tuple(config(name).target for name in ("tsm_k400", IMAGENET, CITYSCAPES))),
    ("docs/benchmarking.md", r"`--drop` updates \((\d+)\), then times `--count` updates \((\d+)\)",
     lambda: (Window.drop, Window.count)),
    ("docs/data.md", r"`data.max_bad` \(([\d.]+) of an epoch\)", lambda: default(LoaderSettings, "max_bad")),
    ("docs/data.md", r"`data.workers` processes \(default (\d+)\) read ahead, each with `data.threads` \((\d+)\)",
     lambda: (default(LoaderSettings, "workers"), default(LoaderSettings, "threads"))),
    ("docs/data.md", r"`data.cache_gb` \((\d+)\)", lambda: default(LoaderSettings, "cache_gb")),
    ("docs/data.md", r"more than (\d+) million pixels, frames\sof more than (\d+) x (\d+)",
     lambda: (regular.MAX_PIXELS // 10**6, 8192, regular.MAX_FRAME_PIXELS // 8192)),
    ("docs/data.md", r"shorter side (\d+) \(`--short-side`\), a keyframe every (\d+) frames \(`--gop`\)",
     lambda: (prepare.NUMBERS["short_side"][0], prepare.NUMBERS["gop"][0])),
    ("docs/data.md", r"quality (\d+) \(`--quality`\)", lambda: prepare.NUMBERS["quality"][0]),
    ("docs/predicting.md", r"`auto` is (\d+) samples, at most (\d+) million pixels",
     lambda: (batches.AUTO_SAMPLES, batches.AUTO_PIXELS >> 20)),
    ("docs/predicting.md", r"Above (1e-\d) of the largest logit", lambda: power_of_ten(proof.LIMIT)),
    ("docs/predicting.md", r"Standard operators of opset (\d+)", lambda: OPSET),
    ("docs/predicting.md", r"halves the size \(limit (1e-\d)\)", lambda: power_of_ten(low_precision.FP16_LIMIT)),
    ("docs/predicting.md", r"with ranges from (\d+)\straining samples", lambda: samples.CALIBRATION),
    ("docs/distributed.md", r"on one of eight ports between (\d+) and (\d+)",
     lambda: (rendezvous.FIRST_PORT, rendezvous.FIRST_PORT + rendezvous.PORT_RANGE)),
    ("docs/distributed.md", r"`train.straggler_timeout`, (\d+) s", lambda: default(Train, "straggler_timeout")),
    ("docs/reliability.md", r"first message \(at most (\d+) kB, within (\d+) s\)",
     lambda: (wire.MAX_HELLO_SIZE // 1000, int(wire.HELLO_TIMEOUT))),
    ("docs/reliability.md", r"`fuzz` \| (\d+) readers", lambda: len(READERS)),
    ("docs/reliability.md", r"(\d+) kinds of connections to rank 0 before rank 1 joins, (\d+) kinds",
     lambda: (len(ATTACKS), len(IN_RUNS))),
    ("docs/reliability.md", r"(\d+) kinds of listeners in the place of rank 0", lambda: len(LISTENERS)),
]  # fmt: skip


@pytest.mark.parametrize(
    "page, pattern, expected", CLAIMS, ids=[f"{page}: {pattern[:40]}" for page, pattern, _ in CLAIMS]
)
def test_numbers_are_those_of_the_code(page, pattern, expected):
    page_text = " ".join((ROOT / page).read_text().split())  # wherever its lines are broken
    match = re.search(pattern, page_text)
    assert match, "the sentence is gone: mend or remove this row"
    values = expected()
    values = values if isinstance(values, tuple) else (values,)
    assert match.groups() == tuple(map(str, values))
