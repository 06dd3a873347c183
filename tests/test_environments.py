"""Lock files, the Makefile and the conda files agree with pyproject.toml and with each other, for every machine."""

import os
import re
import shutil
import subprocess

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.helpers import pins
from tests.helpers.paths import ROOT
from zoo.cuda_libraries import LIBRARIES
from zoo.frameworks import FRAMEWORKS

LOCKS = sorted(pins.locked_extras())
CPU_BUILDS = ("requirements/torch-cpu.txt", "requirements/torchvision-cpu.txt")  # of PyTorch's own index
X86_ONLY = ("cykooz-resizer", "decord", "nvidia-cudnn-cu11", "nvidia-nccl-cu11", "paddlepaddle", "paddlepaddle-gpu")
PACKAGES = {"torch": "torch", "paddle": "paddlepaddle-gpu", "mindspore": "mindspore", "jax": "jax"}  # of the GPU builds


def test_each_framework_has_a_lock_file():
    assert {path.stem for path in (ROOT / "environments").glob("*.lock")} == set(FRAMEWORKS) == set(PACKAGES)
    assert {f"environments/{framework}.lock" for framework in FRAMEWORKS} < set(LOCKS)


@pytest.mark.parametrize("path", [*LOCKS, "requirements/docs.txt"])
def test_every_package_has_one_version_and_hashes(path):
    entries = re.split(r"\n(?=\S)", (ROOT / path).read_text().strip())
    pattern = r"[a-z0-9-]+==[\w.]+( ; [^\n\\]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+"
    assert [entry for entry in entries if not re.fullmatch(pattern, entry)] == []
    assert len(pins.lines(path)) == len(entries)
    for machine in pins.MACHINES:
        assert len(pins.locked(path, *machine)) == sum(pins.applies(line, *machine) for line in pins.lines(path))


@pytest.mark.parametrize("machine", pins.MACHINES, ids="-".join)
@pytest.mark.parametrize("path", LOCKS)
def test_a_lock_file_has_what_the_extras_need(path, machine):
    locked = pins.locked(path, *machine)
    for build in CPU_BUILDS if path.startswith("requirements/") else ():
        locked |= pins.locked(build)
    for requirement in pins.requirements(pins.locked_extras()[path]):
        if pins.applies(requirement, *machine):
            assert requirement.specifier.contains(locked[requirement.name]), requirement
    assert "setuptools" in locked  # the project is installed without build isolation


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_lock_file_for_gpus_has_one_framework(framework):
    locked = {line.name for line in pins.lines(f"environments/{framework}.lock")}
    assert set(PACKAGES.values()) & locked == {PACKAGES[framework]}


def test_packages_without_wheels_for_arm_or_a_python_have_a_marker_everywhere():
    """PyPI's files of the locked versions; a release that adds a wheel is a reason to change this."""
    files = [*LOCKS, "requirements/docs.txt"]
    lines = [line for path in files for line in pins.lines(path)] + pins.requirements(
        pins.project()["optional-dependencies"]
    )
    lines += [Requirement(line) for line in pins.conda(ROOT / "environment.yaml")[1]]
    for name, excluded in {
        **dict.fromkeys(X86_ONLY, ("3.11", "aarch64")),
        "mindspore": ("3.13", "x86_64"),
        "paddlepaddle-gpu": ("3.13", "x86_64"),
    }.items():
        found = [line for line in lines if line.name == name]
        assert found and not [line for line in found if pins.applies(line, *excluded)]
    assert {line.name for line in lines if line.marker and "platform_machine" in str(line.marker)} >= set(X86_ONLY)


@pytest.mark.parametrize("path", CPU_BUILDS)
def test_cpu_builds_of_pytorch_have_a_hash_per_machine_and_the_version_of_the_gpu_s(path):
    text = (ROOT / path).read_text()
    assert "--extra-index-url https://download.pytorch.org/whl/cpu\n" in text
    assert len(set(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", text))) == len(pins.MACHINES)
    [line], gpu = pins.lines(path), pins.locked("environments/torch.lock")
    assert str(line.specifier) == f"=={gpu[line.name]}+cpu"
    assert not [lock for lock in LOCKS if lock.startswith("requirements/") and line.name in pins.locked(lock)]
    assert f"torch={gpu['torch']}\n" in (ROOT / "requirements/update.sh").read_text()


@pytest.mark.parametrize("machine", pins.MACHINES, ids="-".join)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_versions_are_those_of_the_cpu_environment(framework, machine):
    """So a run on a GPU differs from one on a CPU in the framework alone: its build and, for Paddle, its version."""
    cpu = {**pins.locked("requirements/all.txt", *machine), **pins.locked(CPU_BUILDS[0])}
    for path in ("requirements/torch.txt", f"environments/{framework}.lock"):
        locked = pins.locked(path, *machine)
        assert {name: version for name, version in locked.items() if cpu.get(name, version) != version} == {}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_conda_file_installs_the_lock_file(framework):
    packages, lines = pins.conda(ROOT / f"environments/{framework}.yaml")
    assert packages == ["python=3.11", "pip"] and lines == ["--require-hashes", f"-r {framework}.lock"]


@pytest.mark.parametrize("framework", ("paddle", "mindspore"))
def test_the_cuda_libraries_are_those_that_are_looked_for(framework):
    locked = pins.locked(f"environments/{framework}.lock")
    assert [name for name in LIBRARIES.values() if f"nvidia-{name.replace('_', '-')}-cu11" not in locked] == []


@pytest.mark.parametrize("framework, last", [("torch", ""), ("paddle", "zoo.cuda_libraries"), ("mindspore", "")])
def test_make_installs_the_lock_file(framework, last):
    command = ["make", "--dry-run", "--always-make", "setup-gpu", f"FRAMEWORK={framework}", "PYTHON=python3.12"]
    steps = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"--require-hashes --no-deps -r environments/{framework}.lock" in steps
    assert f"python3.12 -m venv .venv-{framework}" in steps
    if last:
        assert f".venv-{framework}/bin/python -m {last}" in steps


@pytest.mark.parametrize("arguments", ([], ["FRAMEWORK=keras"]))
def test_make_names_the_frameworks(arguments):
    done = subprocess.run(["make", "setup-gpu", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and f"FRAMEWORK is one of: {', '.join(FRAMEWORKS)}" in done.stderr


def make_demo(tmp_path, *pythons):
    """Return what `make --dry-run demo` says on a machine with these interpreters, and with shims of the others."""
    for name in pins.PYTHONS:
        (tmp_path / f"python{name}").write_text(f"#!/bin/sh\nexit {0 if name in pythons else 127}\n")
        (tmp_path / f"python{name}").chmod(0o755)
    command = [shutil.which("make"), "--dry-run", "--always-make", "demo"]
    environ = {key: value for key, value in os.environ.items() if key != "PYTHON"} | {"PATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("pythons", [("3.11", "3.13"), ("3.12", "3.13"), ("3.13",)])
def test_make_takes_the_first_python_that_runs(pythons, tmp_path):
    assert f"python{pythons[0]} -m venv .venv\n" in make_demo(tmp_path, *pythons)


def test_make_names_the_pythons(tmp_path):
    assert "Python 3.11, 3.12 or 3.13 is needed: make .venv/.torch PYTHON=" in make_demo(tmp_path)
    supported = SpecifierSet(pins.project()["requires-python"])
    assert [f"3.{minor}" for minor in range(8, 20) if f"3.{minor}" in supported] == list(pins.PYTHONS)
    for page in ("README.md", "docs/getting-started.md"):
        assert "Linux, Python 3.11, 3.12 or 3.13" in (ROOT / page).read_text()


def test_ci_runs_the_fast_tests_without_avx_512_too():
    assert (
        "ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 PYTEST_ADDOPTS=tests/zoo make test\n"
        in (ROOT / ".ci/run").read_text()
    )
