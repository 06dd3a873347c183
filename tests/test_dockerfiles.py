"""environments/*.Dockerfile agree with environment.yaml, with the files they copy and with the manifests."""

import re
from fnmatch import fnmatch

import pytest
import yaml

from tests.helpers.paths import ROOT
from tools.launching.job import IMAGE_FOLDER

DOCKERFILES = sorted(ROOT.glob("environments/*.Dockerfile"))
IGNORED = (ROOT / ".dockerignore").read_text().split()
PINS = yaml.safe_load((ROOT / "environment.yaml").read_text())["dependencies"]


def instructions(path):
    """Return (instruction, arguments) of a Dockerfile, continued lines joined."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE))
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def test_there_is_one_for_torch():
    assert [path.name for path in DOCKERFILES if path.name == "torch.Dockerfile"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_versions_are_those_of_the_environment(path):
    pins = dict(line.split("==") for entry in PINS if isinstance(entry, dict) for line in entry["pip"] if "==" in line)
    lines = instructions(path)
    bases = [arguments for instruction, arguments in lines if instruction == "FROM"]
    assert bases and all(re.search(r":[\w.-]*\d[\w.-]*", base) for base in bases)  # a tag with a version
    [python] = [entry.split("=")[1] for entry in PINS if isinstance(entry, str) and entry.startswith("python=")]
    assert all(tag.startswith(python) for base in bases for tag in re.findall(r"python:([\d.]+)", base))
    found = dict(re.findall(r"([a-z][\w-]*)==([\w.+]+)", path.read_text()))
    assert found and {name: pins.get(name) for name in found} == found


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_files_and_folders_exist(path):
    lines = instructions(path)
    assert ("WORKDIR", IMAGE_FOLDER) in lines  # where scripts and manifests look for the project
    copied = [word for instruction, arguments in lines if instruction == "COPY" for word in arguments.split()[:-1]]
    assert "." in copied and all((ROOT / word).exists() for word in copied)
    assert not [word for word in copied if any(fnmatch(word, pattern) for pattern in IGNORED)]


def test_nothing_that_is_installed_is_ignored():
    needed = ["train.py", "zoo", "data", "tools", "configs", "pyproject.toml", "setup.py", "README.md", "requirements"]
    assert not [name for name in needed if name in IGNORED or not (ROOT / name).exists()]
