"""Measure the size of a checkout, this one or another: python -m tests.house [FOLDER] [--run]

Lines of code are those without docstrings, comments and blanks. The floors of a folder are the files of its longest
chain of imports, deferred ones included. --run also trains tsm_demo for four updates and counts the modules that it
imports.
"""

import argparse
import ast
import io
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from functools import cache
from pathlib import Path
from typing import NamedTuple

PRODUCT = ("zoo", "tools", "train.py")
BESIDE = ("evidence",)  # what is not packaged
OLDER = ("data",)  # a folder of older checkouts, which is a link today
IMPORTED = re.compile(r"^import time:.*\|\s*((?:zoo|data|tools)(?:\.\w+)*)\s*$", re.MULTILINE)
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Lines(NamedTuple):
    """Lines of files by kind."""

    all: int
    code: int
    docstrings: int


def python_files(root: Path, *places: str) -> list[Path]:
    """Return the tracked Python files at or below some places."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--", *places]
    names = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    return [path for name in names if name.endswith(".py") and (path := root / name).is_file()]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def lines_of(path: Path) -> Lines:
    text = path.read_text(encoding="utf-8")
    docstrings: set[int] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, SCOPES) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return Lines(len(text.splitlines()), len(code - docstrings), len(docstrings))


def lines(files: list[Path]) -> Lines:
    return Lines(*map(sum, zip(*map(lines_of, files)))) if files else Lines(0, 0, 0)


def siblings(path: Path, names: set[str], package: str) -> set[str]:
    """Return the files of a folder, without suffix, that one of its files imports, deferred imports included."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name.removeprefix(f"{package}.") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == package:
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.removeprefix(f"{package}."))
    return (found & names) - {path.stem}


def floors(folder: Path, root: Path) -> int:
    """Return the number of files in the longest chain of imports between the files of a folder."""
    files = {path.stem: path for path in folder.glob("*.py") if path.stem != "__init__"}
    package = ".".join(folder.relative_to(root).parts)
    imports = {name: siblings(path, set(files), package) for name, path in files.items()}

    def height(name: str, above: tuple[str, ...]) -> int:
        return 1 + max((height(each, (*above, name)) for each in imports[name] if each not in above), default=0)

    return max((height(name, (name,)) for name in imports), default=0)


def files_of_tasks(root: Path) -> dict[str, int]:
    """Return how many files a section of docs/extending.md, and the table at its top, names for each task."""
    table = re.findall(r"^\| (an? [^|]+?) *\|(.*)\|$", (root / "docs/extending.md").read_text(), re.MULTILINE)
    return {task: len(set(re.findall(r"`[\w/<> ]+(?:\.py|/)`", row))) for task, row in table}


def imported_modules(root: Path) -> int:
    """Return the number of this project's modules that a run of four updates imports."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["-c", str(root / "configs/tsm_demo.yaml"), "--max-steps", "4", "--out", f"{folder}/run"]
        options = ["-o", "train.channels_last=true", "-o", f"data.root={folder}/data"]
        command = [sys.executable, "-X", "importtime", str(root / "train.py"), *words, *options]
        environment = {**os.environ, "PYTHONPATH": str(root)}
        done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    return len(set(IMPORTED.findall(done.stderr)))


def measure(root: Path, run: bool) -> dict[str, str]:
    """Return the rows of the table."""
    product, tests = python_files(root, *PRODUCT, *OLDER), python_files(root, "tests")
    evidence, pages = python_files(root, *BESIDE), sorted((root / "docs").glob("*.md"))
    sizes = {path: lines_of(path).code for path in product}
    size = lines(product)
    folders = sorted({path.parent for path in product if path.parent.name != "zoo" and path.parent != root})
    heights = {folder: floors(folder, root) for folder in folders}
    tallest = sorted(folders, key=heights.__getitem__)[-5:][::-1]
    rows = {
        "product: lines of code": f"{size.code:,}",
        "product: docstrings, share of lines": f"{size.docstrings / size.all:.1%}",
        "product: files": f"{len(product)}",
        "  of more than 400 lines of code": f"{sum(n > 400 for n in sizes.values())}",
        "evidence: lines of code": f"{lines(evidence).code:,}",
        "tests: lines of code": f"{lines(tests).code:,}",
        "tests: files": f"{len(tests)}",
        **{f"floors of {folder.relative_to(root)}": f"{heights[folder]}" for folder in tallest},
        **{f"files named for {task}": f"{n}" for task, n in files_of_tasks(root).items()},
        "docs: pages": f"{len(pages)}",
        "docs: words": f"{sum(len(page.read_text(encoding='utf-8').split()) for page in pages):,}",
    }
    return {**rows, "modules imported by four updates": f"{imported_modules(root)}"} if run else rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--run", action="store_true")
    arguments = parser.parse_args()
    for name, value in measure(arguments.folder.resolve(), arguments.run).items():
        print(f"{name:44}{value:>16}")


if __name__ == "__main__":
    main()
