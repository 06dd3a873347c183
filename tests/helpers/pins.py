"""The requirements of pyproject.toml, and the versions in lock files and environment files."""

import itertools
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import yaml
from packaging.requirements import Requirement

from tests.helpers.paths import ROOT

PYTHONS, PROCESSORS = ("3.11", "3.12", "3.13"), ("x86_64", "aarch64")
MACHINES = tuple(itertools.product(PYTHONS, PROCESSORS))  # what lock files are for


def project() -> dict:
    """The table [project] of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def applies(requirement: Requirement, python: str = "3.11", processor: str = "x86_64") -> bool:
    """Whether the marker of a requirement, if it has one, is true on a machine with Linux."""
    machine = {"python_version": python, "python_full_version": f"{python}.7", "platform_machine": processor}
    return requirement.marker is None or requirement.marker.evaluate({**machine, "sys_platform": "linux"})


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


def lines(path: str) -> list[Requirement]:
    """The requirements of a lock file, relative to the project's folder, without their hashes."""
    return [Requirement(line) for line in re.findall(r"^[a-z0-9][^\\\n]*", (ROOT / path).read_text(), re.MULTILINE)]


def locked(path: str, python: str = "3.11", processor: str = "x86_64") -> dict[str, str]:
    """Name -> version of a lock file on a machine; PyTorch's CPU build has the plain version."""
    return {
        requirement.name: str(requirement.specifier).removeprefix("==").removesuffix("+cpu")
        for requirement in lines(path)
        if applies(requirement, python, processor)
    }


def conda(path: Path) -> tuple[list[str], list[str]]:
    """The packages of conda in an environment file, and the lines for pip."""
    entries = yaml.safe_load(path.read_text())["dependencies"]
    [lines] = [entry["pip"] for entry in entries if isinstance(entry, dict)]
    return [entry for entry in entries if isinstance(entry, str)], lines


def locked_extras() -> dict[str, list[str]]:
    """Lock file -> its extras, as requirements/update.sh makes it."""
    script = (ROOT / "requirements/update.sh").read_text()
    [common] = re.findall(r'"\$\{\*:2\} ([\w ]+)" --output-file "environments/', script)
    cpu = re.findall(r'^lock_cpu (\S+) "([\w -]+)"', script, re.MULTILINE)
    gpu = re.findall(r"^lock_gpu (\w+) ([\w -]+)$", script, re.MULTILINE)
    return {
        **{path: extras.split() for path, extras in cpu},
        **{f"environments/{framework}.lock": extras.split() + common.split() for framework, extras in gpu},
    }
