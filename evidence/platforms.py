"""Print a table of the systems and versions of Python for which every package of an extra has a wheel; asks uv.

Nothing is installed: `uv pip compile` resolves the requirements of pyproject.toml for a platform, from wheels alone.
"""

import argparse
import os
import re
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
NAME = re.compile(r"[\w.-]+")  # of the package of a requirement
PLATFORMS = {
    "Linux, x86-64": "x86_64-manylinux_2_28",
    "Linux, ARM": "aarch64-manylinux_2_28",
    "macOS 14, Apple": "aarch64-apple-darwin",
    "macOS 14, Intel": "x86_64-apple-darwin",
    "Windows, x86-64": "x86_64-pc-windows-msvc",
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
BASE = "none"
EXTRAS = f"{BASE} data plot torch paddle mindspore jax onnx export remote tables hub decord nvimgcodec dali".split()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m evidence platforms", description=__doc__)
    parser.add_argument("--uv", default="uv", metavar="PATH", help="the program; default uv")
    options = parser.parse_args(argv)
    rows: dict[str, list[str]] = {}  # cells -> extras
    for extra in EXTRAS:
        needed = requirements(extra)
        found = [
            [each for each in PYTHONS if has_wheels(options.uv, needed, name, each)] for name in PLATFORMS.values()
        ]
        rows.setdefault(" | ".join(map(shorten, found)), []).append(extra if extra == BASE else f"`{extra}`")
    print(f"| extra | {' | '.join(PLATFORMS)} |\n|---{'|---' * len(PLATFORMS)}|")
    for cells, extras in rows.items():
        print(f"| {', '.join(extras)} | {cells} |")
    return 0


def requirements(extra: str) -> list[str]:
    """Return the requirements of an extra and of those that it names; its own first, behind them those of all."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    found = list(project["optional-dependencies"].get(extra, ()))
    for nested in re.findall(rf"{project['name']}\[(\w+)\]", " ".join(found)):
        found += project["optional-dependencies"][nested]
    return [each for each in found if not each.startswith(project["name"])] + project["dependencies"]


def has_wheels(uv: str, needed: Sequence[str], platform: str, python: str) -> bool:
    """Return whether all requirements have wheels, and the first is one of that platform: markers leave out others."""
    command = [uv, "pip", "compile", "-", "--only-binary", ":all:", "--no-header", "--no-annotate", "--quiet"]
    done = subprocess.run(
        [*command, "--python-platform", platform, "--python-version", python],
        input="\n".join(needed),
        capture_output=True,
        text=True,
        env={**os.environ, "MACOSX_DEPLOYMENT_TARGET": "14.0"},
    )
    first = NAME.match(needed[0])
    name = first[0].lower().replace("_", "-") if first else ""
    return not done.returncode and f"\n{name}==" in f"\n{done.stdout}"


def shorten(versions: Sequence[str]) -> str:
    """Return the first and the last of versions of Python, which follow one another."""
    if not versions:
        return "-"
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"
