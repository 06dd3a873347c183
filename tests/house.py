"""Measure the size of a checkout, this one or another: python tests/house.py [FOLDER] [--run]

--run also trains tsm_demo for four updates and counts the modules of the project that were imported.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PRODUCT = ("zoo", "data", "tools", "train.py")
IMPORTED = re.compile(r"^import time:.*\|\s*((?:zoo|data|tools)(?:\.\w+)*)\s*$", re.MULTILINE)


def python_files(root: Path, *places: str) -> list[Path]:
    """Return the tracked Python files at or below some places."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--", *places]
    names = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    return [path for name in names if name.endswith(".py") and (path := root / name).is_file()]


def lines(files: list[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


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
    product, tests = python_files(root, *PRODUCT), python_files(root, "tests")
    bench = [path for path in product if path.is_relative_to(root / "tools")]
    pages = sorted((root / "docs").glob("*.md"))
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in product}
    places = {root / name for name in PRODUCT} | {path.parent for path in (root / "zoo").glob("*/__init__.py")}
    folders = {place: sum(n for path, n in sizes.items() if path.is_relative_to(place)) for place in places}
    del folders[root / "zoo"]
    programs = [path for path in product if path.parent == root / "tools" and path.name != "__init__.py"]
    biggest = max(folders, key=folders.__getitem__)
    rows = {
        "product lines": f"{lines(product):,}",
        "  without tools/": f"{lines(product) - lines(bench):,}",
        "product files": f"{len(product)}",
        "  empty, other than __init__": f"{sum(not n and path.name != '__init__.py' for path, n in sizes.items())}",
        "  of at most 60 lines": f"{sum(n <= 60 for n in sizes.values())}",
        "biggest folder": f"{biggest.relative_to(root)}, {folders[biggest] / sum(sizes.values()):.0%}",
        "test lines": f"{lines(tests):,}",
        "test files": f"{len(tests)}",
        "programs (train.py, tools/*.py)": f"{1 + len(programs)}",
        "docs: pages": f"{len(pages)}",
        "docs: words": f"{sum(len(page.read_text(encoding='utf-8').split()) for page in pages):,}",
    }
    return {**rows, "modules imported by four updates": f"{imported_modules(root)}"} if run else rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--run", action="store_true")
    arguments = parser.parse_args()
    for name, value in measure(arguments.folder.resolve(), arguments.run).items():
        print(f"{name:40}{value:>20}")


if __name__ == "__main__":
    main()
