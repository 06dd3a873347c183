"""environments/ has a lock file and a conda file for each framework; the lock files agree with each other."""

import re
import subprocess

import pytest

from tests.helpers import pins
from tests.helpers.paths import ROOT
from zoo.cuda_libraries import LIBRARIES
from zoo.frameworks import FRAMEWORKS

PACKAGES = {"torch": "torch", "paddle": "paddlepaddle-gpu", "mindspore": "mindspore"}  # of the GPU builds


def test_each_framework_has_a_lock_file():
    assert set(pins.locked_extras()) == set(FRAMEWORKS) == set(PACKAGES)
    assert {path.stem for path in (ROOT / "environments").glob("*.lock")} == set(FRAMEWORKS)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_package_has_one_version_and_hashes(framework):
    text = (ROOT / f"environments/{framework}.lock").read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    pattern = r"[a-z0-9-]+==[\w.]+( ; [^\n\\]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+"
    assert [entry for entry in entries if not re.fullmatch(pattern, entry)] == []
    assert len(entries) == len(pins.locked(f"environments/{framework}.lock"))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_lock_file_has_what_the_extras_need_and_one_framework(framework):
    locked = pins.locked(f"environments/{framework}.lock")
    for requirement in pins.requirements(pins.locked_extras()[framework]):
        assert requirement.specifier.contains(locked[requirement.name]), requirement
    assert set(PACKAGES.values()) & locked.keys() == {PACKAGES[framework]}
    assert "setuptools" in locked  # the project is installed without build isolation


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_versions_are_those_of_the_cpu_environment(framework):
    """So a run on a GPU differs from one on a CPU in the framework alone: its build and, for Paddle, its version."""
    cpu = {**pins.locked("requirements/all.txt"), **pins.locked("requirements/torch-cpu.txt")}
    gpu = pins.locked(f"environments/{framework}.lock")
    assert {name: version for name, version in gpu.items() if cpu.get(name, version) != version} == {}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_conda_file_installs_the_lock_file(framework):
    packages, lines = pins.conda(ROOT / f"environments/{framework}.yaml")
    assert packages == ["python=3.11", "pip"] and lines == ["--require-hashes", f"-r {framework}.lock"]
    assert "--python-version 3.11" in (ROOT / "requirements/update.sh").read_text()


@pytest.mark.parametrize("framework", ("paddle", "mindspore"))
def test_the_cuda_libraries_are_those_that_are_looked_for(framework):
    locked = pins.locked(f"environments/{framework}.lock")
    assert [name for name in LIBRARIES.values() if f"nvidia-{name.replace('_', '-')}-cu11" not in locked] == []


@pytest.mark.parametrize("framework, last", [("torch", ""), ("paddle", "zoo.cuda_libraries"), ("mindspore", "")])
def test_make_installs_the_lock_file(framework, last):
    command = ["make", "--dry-run", "--always-make", "setup-gpu", f"FRAMEWORK={framework}"]
    steps = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"--require-hashes --no-deps -r environments/{framework}.lock" in steps
    assert f"python3.11 -m venv .venv-{framework}" in steps
    if last:
        assert f".venv-{framework}/bin/python -m {last}" in steps


@pytest.mark.parametrize("arguments", ([], ["FRAMEWORK=jax"]))
def test_make_names_the_frameworks(arguments):
    done = subprocess.run(["make", "setup-gpu", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and f"FRAMEWORK is one of: {', '.join(FRAMEWORKS)}" in done.stderr
