"""Planted faults: slips that a person may make in porting a model, one replacement of text each, from faults.txt.

A fault has a name, the old lines (-), the new ones (+), and the test that must fail then. `compare` names a demo recipe
whose mathematics it changes, with options without which it changes nothing; `in` is a part of the path, where the old
text occurs in several files. No other path is written down, so files can be renamed.
"""

import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.helpers.paths import ROOT

TABLE = Path(__file__).with_name("faults.txt")
SHARED = "shared"  # code that all frameworks run
FRAMEWORKS = ("torch", "paddle", "mindspore", "jax", SHARED)


class Fault(NamedTuple):
    """One replacement of text.

    Attributes:
        framework: in which its test runs: its files, or neutral ones, are changed; SHARED for neutral ones alone.
        name: unique within the framework.
        old: text that occurs once in the files of the framework, else in neutral ones, whose path contains `within`.
        new: what stands there instead.
        test: file and function, such as test_order::test_epochs[2], or update_cases::case_... of every framework.
        recipe: a demo recipe whose mathematics it changes; "" for none.
        options: settings of the recipe.
        within: part of the path of the file; "" if it isn't needed.
    """

    framework: str
    name: str
    old: str
    new: str
    test: str
    recipe: str = ""
    options: tuple[str, ...] = ()
    within: str = ""

    @property
    def key(self) -> str:
        return f"{self.framework}: {self.name}"


@cache
def read_table() -> tuple[Fault, ...]:
    """Read all faults."""
    faults, framework = [], ""
    for block in re.split(r"\n{2,}", TABLE.read_text(encoding="utf-8").strip()):
        if block.startswith("["):
            framework = block.strip("[]")
            continue
        name, *rest = block.split("\n")
        parts = {"-": [], "+": []}
        fields = {}
        for line in rest:
            if line[:1] in parts:
                parts[line[0]].append(line[2:])
            else:
                word, _, value = line.partition(" ")
                fields[word] = value
        recipe, *options = fields.get("compare", "").split(" ; ")
        old, new = ("\n".join(part) for part in parts.values())
        faults.append(Fault(framework, name, old, new, fields["test"], recipe, tuple(options), fields.get("in", "")))
    return tuple(faults)


def framework_of(path: Path) -> str:
    """Return the framework of a source file, SHARED for neutral ones."""
    return next((name for name in FRAMEWORKS if name in (*path.parts, path.stem)), SHARED)


@cache
def sources(root: Path) -> dict[Path, str]:
    """Return the text of each source file below `root`, by relative path."""
    paths = [path for path in sorted((root / "zoo").rglob("*.py")) if root / "zoo/bench" not in path.parents]
    return {path.relative_to(root): path.read_text(encoding="utf-8") for path in paths}


def find_file(fault: Fault, root: Path = ROOT) -> Path:
    """Return the file of a fault, relative to a copy of the repository.

    Raises:
        ValueError: The old text does not occur exactly once, or the new one is the same.
    """
    for owner in dict.fromkeys((fault.framework, SHARED)):  # a formula of all frameworks is in neutral files
        counts = {
            path: text.count(fault.old)
            for path, text in sources(root).items()
            if framework_of(path) == owner and fault.within in str(path)
        }
        if any(counts.values()):
            break
    if sum(counts.values()) != 1 or fault.old == fault.new:
        found = ", ".join(f"{count} x in {path}" for path, count in counts.items() if count) or "nowhere"
        raise ValueError(f"{fault.key}: the old text must occur once; it is {found}")
    return next(path for path, count in counts.items() if count)


def plant(fault: Fault, tree: Path) -> Callable[[], None]:
    """Write a fault into its file below `tree`; return what restores the file and its time, which its bytecode has.

    Raises:
        ValueError: see find_file.
    """
    path = tree / find_file(fault, tree)
    before, times = path.read_text(encoding="utf-8"), path.stat()

    def restore() -> None:
        path.write_text(before, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    path.write_text(before.replace(fault.old, fault.new), encoding="utf-8")
    return restore


def find_test(name: str, root: Path = ROOT) -> str:
    """Return the id of a test, tests/.../test_order.py::test_epochs[2], for test_order::test_epochs[2].

    Raises:
        ValueError: There is no such test, or two.
    """
    stem, _, function = name.partition("::")
    definition = re.compile(rf"^def {re.escape(function.partition('[')[0])}\(", re.MULTILINE)
    paths = list((root / "tests").rglob(f"{stem}.py"))
    paths = [path for path in paths if not function or definition.search(path.read_text(encoding="utf-8"))]
    if len(paths) != 1:
        raise ValueError(f"{name}: {len(paths)} such tests")
    return "::".join(filter(None, (paths[0].relative_to(root).as_posix(), function)))
