"""The documentation agrees with the repository: links, paths, commands, flags and keys exist."""

import ast
import contextlib
import importlib
import io
import re
import shlex
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from evidence import __main__ as evidence
from tests import differences_page, keys_page, results_page
from tests.helpers import pins
from tests.helpers.paths import ROOT
from zoo import cli, data, optim
from zoo.config import schema
from zoo.losses import LOSSES, load_loss
from zoo.models import list_models, load_spec
from zoo.parity import facts

PAGES = [
    *(ROOT / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md", "CHANGELOG.md", "evidence/README.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]
FOLDERS = ("configs/", "data/", "docs/", "evidence/", "tests/", "tools/", "zoo/", "requirements/")
WRITTEN = (keys_page.PAGE, differences_page.PAGE, results_page.PAGE)  # by programs
COMMANDS = {**cli.COMMANDS, **{f"evidence {name}": entry for name, entry in evidence.COMMANDS.items()}}
EXTENSIONS = ("py", "rec", "idx", "list", "txt", "safetensors")  # train.rec is a file and not a key of `train`
MAX_README_LINES = 150
MAX_PAGES, MAX_WORDS = 18, 30_000
PYTHON_BLOCK = re.compile(r"^```[a-z]+\n.*?^```", flags=re.DOTALL | re.MULTILINE)  # of Python: tests run them
CODE_BLOCK = re.compile(r"^ *```\n(.*?)^ *```", flags=re.DOTALL | re.MULTILINE)
CODE_SPAN = re.compile(r"`([^`]+)`")
PROGRAM = re.compile(r"(?<![\w/.-])(?:(?:python )?(?:tools/(\w+)\.py|(train)\.py|-m (evidence))|zoo) +(.*)")


class Command(NamedTuple):
    """A command line of the documentation: its name in COMMANDS and its arguments."""

    name: str
    arguments: list[str]


def read(path: Path) -> str:
    return PYTHON_BLOCK.sub("", path.read_text(encoding="utf-8"))


def code(text: str) -> list[str]:
    """Return the lines of code blocks, continued ones joined, and the code within sentences."""
    blocks = [re.sub(r"\\\n\s*", " ", block) for block in CODE_BLOCK.findall(text)]
    spans = [span.replace("\n", " ") for span in CODE_SPAN.findall(CODE_BLOCK.sub("", text))]
    return [line for block in blocks for line in block.splitlines()] + spans


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ +(.*)$", CODE_BLOCK.sub("", read(page)), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path, text: str) -> list[str]:
    """Return the targets of relative links that are no file, or no heading of it; the site ends at docs/."""
    in_site = page.parent == ROOT / "docs"
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", CODE_SPAN.sub("", CODE_BLOCK.sub("", text))):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        is_relative = not re.match(r"[a-z]+:", target)
        leaves_site = in_site and path.startswith("..")
        if is_relative and (leaves_site or not file.exists() or (anchor and anchor not in anchors(file))):
            broken.append(target)
    return broken


def missing_paths(text: str) -> list[str]:
    """Return the paths of the repository in code that match no file; <name> matches everything."""
    words = [word for line in code(text) for word in re.sub(r"<[^>]*>", "*", line).split()]
    paths = {re.sub(r":\d+$", "", word.strip("\"'(),;:").rstrip("/")) for word in words if word.startswith(FOLDERS)}
    return sorted(path for path in paths if not any(ROOT.glob(path)))


def commands(text: str) -> list[Command]:
    """Return the commands in code; a line of another program has none."""
    found = []
    for line in code(text):
        if match := PROGRAM.search(line):
            rest = re.split(r" (?:&&|[|>]) ", match[4])[0]
            words = [*(name for name in match.groups()[:3] if name), *shlex.split(rest, comments=True)]
            length = 2 if " ".join(words[:2]) in COMMANDS else 1
            found.append(Command(" ".join(words[:length]), words[length:]))
    return found


@cache
def known_flags(name: str) -> frozenset[str]:
    """Return the flags in --help of a command and its own commands; zoo launch passes others on to zoo train."""
    module = importlib.import_module(COMMANDS[name][0])
    texts = [help_text(module, [])]
    names = re.findall(r"^    ([a-z]+)(?:  |$)", texts[0], flags=re.MULTILINE) if " COMMAND " in texts[0] else []
    texts += [help_text(module, [each]) for each in names]
    options = [option for text in texts for option in re.findall(r"^  (-.*?)(?:  |$)", text, flags=re.MULTILINE)]
    flags = frozenset(flag for option in options for flag in re.findall(r"(?<!\S)--?[a-z][a-z-]*", option))
    return flags | known_flags("train") if name in ("launch", "evaluate") else flags


def help_text(module, arguments: list[str]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), pytest.raises(SystemExit):
        module.main([*arguments, "--help"])
    return output.getvalue()


def unknown_flags(text: str) -> list[str]:
    """Return the commands that do not exist, and the flags that a command does not have."""
    found = []
    for name, arguments in commands(text):
        if name in COMMANDS:
            flags = [word.partition("=")[0] for word in arguments if re.match(r"--?[a-z]", word)]
            found += [f"{name}: {flag}" for flag in flags if flag not in known_flags(name)]
        elif name[:1].islower() and not any(each.startswith(f"{name} ") for each in COMMANDS):
            found.append(name)
    return found


@cache
def known_keys() -> frozenset[str]:
    """Return the keys of all sections of recipes."""
    owners = [("train", schema.Train), *(("optim", optim.load_settings(name)) for name in optim.OPTIMIZERS)]
    owners += [("model", load_spec(name).Arch) for name in list_models()]
    owners += [("task", load_loss(task, name)) for task in LOSSES for name in LOSSES[task]]
    owners += [("data", data.find(name).Settings) for name in data.names()]
    keys = {f"{section}.{field.name}" for section, owner in owners for field in fields(owner)}
    return frozenset(keys | {"model.name", "data.name", "optim.name"})


def unknown_keys(text: str) -> list[str]:
    keys = re.findall(r"(?<![\w/.])((?:model|data|task|train|optim)\.(\w+))", "\n".join(code(text)))
    return sorted({key for key, name in keys if name not in EXTENSIONS} - known_keys())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_agrees_with_the_repository(page):
    text = read(page)
    assert broken_links(page, text) == []
    if page.name != "CHANGELOG.md":  # which lists what was renamed
        assert missing_paths(text) == [] and unknown_flags(text) == [] and unknown_keys(text) == []


def test_errors_in_a_page_are_found():
    page = ROOT / "docs" / "models.md"
    links = "[a](weights.md) [b](nowhere.md) [c](#sharding) [d](#nothing) [e](https://example.org) `[f](code.md)`"
    assert broken_links(page, links) == ["nowhere.md", "#nothing"]
    paths = "`zoo/models/<model>/spec.py`, `zoo/none.py`, `tests/golden/*.npz`\n```\ncat configs/none.yaml\n```\n"
    assert missing_paths(paths) == ["configs/none.yaml", "zoo/none.py"]
    block = "```\npython train.py -c x.yaml --ampp  # --note\nzoo launch 1x2 --amp \\\n  --by mpirun --bye\n```\n"
    text = block + "`zoo airank log x --strictly` `zoo predictt x`"
    assert unknown_flags(text) == ["train: --ampp", "launch: --bye", "airank log: --strictly", "predictt"]
    assert unknown_keys("`data.root=/x` `task.scal` `train.rec` and train.nothing") == ["task.scal"]


def test_the_page_of_keys_is_that_of_the_annotations():
    assert keys_page.PAGE.read_text(encoding="utf-8") == keys_page.page(), "run python -m tests.keys_page"
    documented = set(re.findall(r"^\| `([\w.]+)`", keys_page.page(), flags=re.MULTILINE))
    assert known_keys() - {"optim.groups"} <= documented
    assert {"base", "seed", "optim.groups.match", "upstream.commit"} <= documented


def test_the_page_of_differences_is_that_of_the_facts():
    page, text = differences_page.PAGE.read_text(encoding="utf-8"), differences_page.page()
    assert page == text, "run python -m tests.differences_page"
    assert len(re.findall(r"^\| (?!what \||---)", text, flags=re.MULTILINE)) == len(facts.facts())
    versions, installed = differences_page.VERSIONS, pins.locked("requirements/all.txt")
    assert [versions["PaddlePaddle"], versions["MindSpore"]] == [installed["paddlepaddle"], installed["mindspore"]]
    assert versions["PyTorch"] == pins.locked("requirements/torch-cpu.txt")["torch"]


@pytest.mark.slow
def test_the_page_of_results_is_that_of_its_bundles():
    assert results_page.page() == read(results_page.PAGE)
    [html] = results_page.BUNDLES.glob("*.html")
    written, found = results_page.html_report(html.with_suffix(".zip")), html.read_text(encoding="utf-8")
    plots = re.compile(r"base64,[\w+/=]+")  # in SVG, whose names have the last bits of coordinates
    assert plots.sub("", written) == plots.sub("", found) and len(plots.findall(found)) >= 4


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_accuracies_in_readme_are_those_of_bundles(name):
    rows = re.findall(r"^\| `(\w+_demo)`[^|]*\| ([\d.| ]+) \|$", read(ROOT / name), flags=re.MULTILINE)
    frameworks = ("torch", "mindspore", "paddle", "jax")
    shown = {(recipe, *cell) for recipe, cells in rows for cell in zip(frameworks, cells.split(" | "), strict=True)}
    bundles = [str(path) for path in results_page.BUNDLES.glob("*accuracy*.zip")]
    runs = [run for run in results_page.read(bundles, None, None) if run.settings["seed"] == 1]
    found = {(run.case.recipe, run.case.framework, f"{run.metrics[-1].value:.2f}") for run in runs}
    assert len(shown) == 16 and len(found) >= 12 and found <= shown


def test_the_sample_submission_is_sound_but_for_being_a_demo(capsys):
    assert cli.main(["airank", "check", str(results_page.BUNDLES / "submission")]) == 1
    *problems, count = capsys.readouterr().out.splitlines()
    wanted = ("marked as a demo", "0 accelerators", "reaches the target 0.711", "target_quality_time is")
    assert count.endswith(": 4 problems") and all(part in line for part, line in zip(wanted, problems, strict=True))


def test_the_documentation_is_short():
    pages = [read(page) for page in PAGES if page.parent == ROOT / "docs" and page not in WRITTEN]
    assert len(pages) <= MAX_PAGES and sum(len(page.split()) for page in pages) <= MAX_WORDS
    assert len(read(ROOT / "README.md").splitlines()) <= MAX_README_LINES


def test_the_errors_of_the_faq_are_messages_of_the_zoo():
    quoted = re.findall(r"^\| `([^`]+)` \| (?!here)", read(ROOT / "docs/faq.md"), flags=re.MULTILINE)
    texts = set()
    for path in (ROOT / "zoo").rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        texts.update(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    everything = "\n".join(texts)
    assert len(quoted) == 10 and [text for text in quoted if text not in everything] == []
