"""environment.yaml, pyproject.toml and the lock files agree; environment.yaml has the GPU builds."""

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

from tests.helpers.paths import ROOT
from zoo.frameworks import FRAMEWORKS

CPU_BUILDS = {"opencv-python": "opencv-python-headless", "paddlepaddle-gpu": "paddlepaddle"}
LINTERS = {"ruff", "mypy", "pre-commit"}  # not needed on a GPU machine


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def gpu_pins():
    """Name of the CPU build -> version, of the pip packages of environment.yaml; all must be exact."""
    packages = yaml.safe_load((ROOT / "environment.yaml").read_text())["dependencies"]
    assert "python=3.11" in packages
    lines = next(entry["pip"] for entry in packages if isinstance(entry, dict))
    pins = dict(line.split("==") for line in lines if not line.startswith("--"))
    assert pins.pop("torchvision")  # for users; the zoo itself does not need it
    return {CPU_BUILDS.get(name, name): version for name, version in pins.items()}


def test_the_gpu_environment_has_the_locked_versions(gpu_pins):
    text = "".join((ROOT / "requirements" / name).read_text() for name in ("all.txt", "torch-cpu.txt"))
    locked = dict(re.findall(r"^([a-z0-9-]+)==([\d.]+)", text, re.MULTILINE))
    assert {name: locked.get(name) for name in gpu_pins} == gpu_pins


def test_the_gpu_environment_meets_all_requirements(project, gpu_pins):
    lines = project["dependencies"] + [line for extra in project["optional-dependencies"].values() for line in extra]
    for requirement in map(Requirement, lines):
        if requirement.name not in LINTERS:
            assert requirement.specifier.contains(gpu_pins[requirement.name]), requirement


def test_every_extra_that_messages_name_exists(project):
    """Messages and docs advise `pip install '.[torch]'` and the like."""
    extras = project["optional-dependencies"].keys()
    files = [path for folder in ("zoo", "data", "tools") for path in (ROOT / folder).rglob("*.py")]
    files += [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = {
        extra
        for path in files
        for names in re.findall(r"pip install[^\n]*\[([a-z,]+)\]", path.read_text(encoding="utf-8"))
        for extra in names.split(",")
    }
    assert named <= extras and extras >= set(FRAMEWORKS)
