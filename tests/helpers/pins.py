"""The requirements of pyproject.toml, and the versions in lock files and environment files."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import yaml
from packaging.requirements import Requirement

from tests.helpers.paths import ROOT

LOCKED = re.compile(r"^([a-z0-9-]+)==([\w.]+(?:\+cpu)?)", re.MULTILINE)


def project() -> dict:
    """The table [project] of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements(extras: Iterable[str]) -> list[Requirement]:
    """What the project needs with some of its extras, including the extras that those name."""
    table = project()
    found, waiting = [Requirement(line) for line in table["dependencies"]], list(extras)
    while waiting:
        lines = table["optional-dependencies"][waiting.pop()]
        for requirement in map(Requirement, lines):
            if requirement.name == table["name"]:
                waiting.extend(requirement.extras)
            else:
                found.append(requirement)
    return found


def locked(path: str) -> dict[str, str]:
    """Name -> version of a lock file, relative to the project's folder; PyTorch's CPU build has the plain version."""
    return {name: version.removesuffix("+cpu") for name, version in LOCKED.findall((ROOT / path).read_text())}


def conda(path: Path) -> tuple[list[str], list[str]]:
    """The packages of conda in an environment file, and the lines for pip."""
    entries = yaml.safe_load(path.read_text())["dependencies"]
    [lines] = [entry["pip"] for entry in entries if isinstance(entry, dict)]
    return [entry for entry in entries if isinstance(entry, str)], lines


def locked_extras() -> dict[str, list[str]]:
    """Framework -> extras of its lock file in environments/, as requirements/update.sh makes it."""
    script = (ROOT / "requirements/update.sh").read_text()
    [common] = re.findall(r'"\$\{\*:2\} ([\w ]+)" --output-file "environments/', script)
    return {
        framework: extras.split() + common.split()
        for framework, extras in re.findall(r"^lock_gpu (\w+) ([\w -]+)$", script, re.MULTILINE)
    }
