"""The documentation agrees with the repository: links, paths, flags and keys exist, and no old name is left."""

import contextlib
import importlib
import io
import re
import shlex
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from tests.helpers.paths import ROOT
from zoo import data, optim
from zoo.config import schema
from zoo.losses import list_losses
from zoo.models import list_models, load_spec
from zoo.tasks import list_tasks, load_task

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(ROOT.glob("docs/**/*.md"))
FOLDERS = ("configs/", "data/", "docs/", "tests/", "tools/", "zoo/", "requirements/")
EXTENSIONS = ("py", "rec", "idx", "list", "safetensors")  # train.rec is a file and not a key of `train`
MAX_README_LINES = 130
PYTHON_BLOCK = re.compile(r"^```python\n.*?^```", flags=re.DOTALL | re.MULTILINE)  # tests run them
CODE_BLOCK = re.compile(r"^ *```\n(.*?)^ *```", flags=re.DOTALL | re.MULTILINE)
CODE_SPAN = re.compile(r"`([^`]+)`")

# Names of version 0.1 that mean nothing else.
OLD_NAME = re.compile(
    r"(?<![\w-])(Portion|Placed|Receipt|Unfit|RoundedConv2d|least_batch|is_new|go_on|ENDINGS|AT_ONCE|SHARDS|KEEP_FP32"
    r"|LEAST|USUAL|_visit|_knock|_Guest|_judge|_own|_mine|_put"
    r"|patience|train\.compress|train\.keep|max_stuck|clip_split|wait_share|val_share"
    r"|class (Lost|Feed|Account|Meter|Law|Shell|Noise|Stored|Look|Code|Net)"
    r"|(made|roll|meter|start|identify|show)\.py|test_layers|zoo/init\.py|zoo/trainer/launch\.py)(?![\w-])"
)
MAY_HAVE_OLD_NAMES = ("zoo/config/renamed.py", "tests/zoo/config/test_renamed.py", "CHANGELOG.md", "tests/test_docs.py")


class Command(NamedTuple):
    """A command line of the documentation: the module of the program and its arguments."""

    program: str  # train, or the name of a tool
    arguments: list[str]


def read(path: Path) -> str:
    return PYTHON_BLOCK.sub("", path.read_text(encoding="utf-8"))


def prose(text: str) -> str:
    """Return the text without code."""
    return CODE_SPAN.sub("", CODE_BLOCK.sub("", text))


def code(text: str) -> list[str]:
    """Return the lines of code blocks, continued ones joined, and the code within sentences."""
    blocks = [re.sub(r"\\\n\s*", " ", block) for block in CODE_BLOCK.findall(text)]
    return [line for block in blocks for line in block.splitlines()] + CODE_SPAN.findall(CODE_BLOCK.sub("", text))


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ +(.*)$", CODE_BLOCK.sub("", read(page)), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path, text: str) -> list[str]:
    """Return the targets of relative links that are no file, or no heading of it."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        is_relative = not re.match(r"[a-z]+:", target)
        if is_relative and (not file.exists() or (anchor and anchor not in anchors(file))):
            broken.append(target)
    return broken


def missing_paths(text: str) -> list[str]:
    """Return the paths of the repository in code that match no file; <name> matches everything."""
    words = [word for line in code(text) for word in re.sub(r"<[^>]*>", "*", line).split()]
    paths = {re.sub(r":\d+$", "", word.strip("\"'(),;:").rstrip("/")) for word in words if word.startswith(FOLDERS)}
    return sorted(path for path in paths if not any(ROOT.glob(path)))


def commands(text: str) -> list[Command]:
    found = []
    for line in code(text):
        program = re.search(r"(?<![\w/])(?:tools/(\w+)\.py|(train)\.py|zoo-([a-z-]+)) (.*)", line)
        if program:
            name = program[1] or program[2] or program[3].replace("-", "_")
            found.append(Command(name, shlex.split(program[4], comments=True)))
    return found


@cache
def known_flags(program: str) -> frozenset[str]:
    """Return the flags in --help of a program and its commands; tools/launch.py passes others on to train.py."""
    module = importlib.import_module("train" if program == "train" else f"tools.{program}")
    texts = [help_text(module, [])]
    names = re.findall(r"^    ([a-z]+)  ", texts[0], flags=re.MULTILINE) if " COMMAND " in texts[0] else []
    texts += [help_text(module, [name]) for name in names]
    options = [option for text in texts for option in re.findall(r"^  (-.*?)(?:  |$)", text, flags=re.MULTILINE)]
    flags = frozenset(flag for option in options for flag in re.findall(r"(?<!\S)--?[a-z][a-z-]*", option))
    return flags | known_flags("train") if program == "launch" else flags


def help_text(module: ModuleType, arguments: list[str]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), pytest.raises(SystemExit):
        module.main([*arguments, "--help"])
    return output.getvalue()


def unknown_flags(text: str) -> list[str]:
    return [
        f"{command.program}: {word}"
        for command in commands(text)
        for word in command.arguments
        if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known_flags(command.program)
    ]


@cache
def known_keys() -> frozenset[str]:
    """Return the keys of all sections of recipes."""
    owners = [("train", schema.Train), *(("optim", optim.load_settings(name)) for name in optim.NAMES)]
    owners += [("optim", optim.load_settings("sgd", name)) for name in optim.schedules.list_schedules()]
    owners += [("model", load_spec(name).Arch) for name in list_models()]
    owners += [("task", load_task(name).settings_class(loss)) for name in list_tasks() for loss in list_losses(name)]
    owners += [("data", data.find(name).Settings) for name in data.names()]
    keys = {f"{section}.{field.name}" for section, owner in owners for field in fields(owner)}
    return frozenset(keys | {"model.name", "data.name", "optim.name"})


def unknown_keys(text: str) -> list[str]:
    keys = re.findall(r"(?<![\w/.])((?:model|data|task|train|optim)\.(\w+))", "\n".join(code(text)))
    packages = {f"data.{path.stem}" for path in (ROOT / "data").iterdir()}
    return sorted({key for key, name in keys if name not in EXTENSIONS} - known_keys() - packages)


def old_names(text: str) -> list[str]:
    return [match[0] for match in OLD_NAME.finditer(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_agrees_with_the_repository(page):
    text = read(page)
    assert broken_links(page, text) == []
    assert missing_paths(text) == []
    assert unknown_flags(text) == []
    if page.name != "CHANGELOG.md":  # which lists renamed keys
        assert unknown_keys(text) == []


def test_errors_in_a_page_are_found():
    page = ROOT / "docs" / "faces.md"
    links = "[a](weights.md) [b](nowhere.md) [c](#sharding) [d](#nothing) [e](https://example.org) `[f](code.md)`"
    assert broken_links(page, links) == ["nowhere.md", "#nothing"]
    paths = (
        "`zoo/trainer/<framework>/margin.py`, `zoo/none.py`, `tests/golden/*.npz`\n```\ncat configs/none.yaml\n```\n"
    )
    assert missing_paths(paths) == ["configs/none.yaml", "zoo/none.py"]
    block = "```\npython train.py -c x.yaml --ampp  # --note\ntools/launch.py 1x2 --amp \\\n  --by mpirun --bye\n```\n"
    text = block + "`zoo-check-log x --strictly` `zoo-airank submit --model x --platform --no`"
    assert unknown_flags(text) == ["train: --ampp", "launch: --bye", "check_log: --strictly", "airank: --no"]
    assert unknown_keys("`data.root=/x` `task.scal` `train.rec` and train.nothing") == ["task.scal"]
    assert old_names("class Feed: val_share; feed, reshard, val_shares, start.py") == [
        "class Feed",
        "val_share",
        "start.py",
    ]


def test_the_readme_is_short():
    assert len(read(ROOT / "README.md").splitlines()) <= MAX_README_LINES


def test_old_names_are_gone():
    files = [path for pattern in ("*.md", "*.py", "*.toml", "*.yaml", "Makefile") for path in ROOT.glob(pattern)]
    suffixes = (".py", ".yaml", ".md")
    files += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    names = {path.relative_to(ROOT).as_posix(): path for path in files if "golden" not in path.parts}
    found = {name: old_names(read(path)) for name, path in names.items() if name not in MAY_HAVE_OLD_NAMES}
    assert {name: old for name, old in found.items() if old} == {}
