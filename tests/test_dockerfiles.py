"""environments/*.Dockerfile install the lock files; they agree with the files they copy and with the manifests."""

import re
from fnmatch import fnmatch

import pytest

from tests.helpers.paths import ROOT
from zoo.distributed.clusters import IMAGE_FOLDER
from zoo.frameworks import FRAMEWORKS

DOCKERFILES = sorted(ROOT.glob("environments/*.Dockerfile"))
IGNORED = (ROOT / ".dockerignore").read_text().split()


def instructions(path):
    """Return (instruction, arguments) of a Dockerfile, continued lines joined."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE))
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def test_there_is_one_for_each_framework():
    assert sorted(path.stem for path in DOCKERFILES) == sorted(FRAMEWORKS)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_versions_are_those_of_the_lock_file(path):
    lines = instructions(path)
    bases = [arguments for instruction, arguments in lines if instruction == "FROM"]
    assert bases and all(re.match(r"python:3\.11\.\d+-", base) for base in bases)  # what the lock files are for
    installs = [arguments for instruction, arguments in lines if instruction == "RUN" and "pip install" in arguments]
    assert f"--require-hashes --no-deps -r environments/{path.stem}.lock" in installs[0]
    assert "--no-deps --no-build-isolation --editable ." in installs[1] and len(installs) == 2
    assert "==" not in path.read_text()
    assert ("python -m zoo.cuda_libraries" in installs[1]) == (path.stem == "paddle")


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_files_and_folders_exist(path):
    lines = instructions(path)
    assert ("WORKDIR", IMAGE_FOLDER) in lines  # where scripts and manifests look for the project
    copied = [word for instruction, arguments in lines if instruction == "COPY" for word in arguments.split()[:-1]]
    assert "." in copied and all((ROOT / word).exists() for word in copied)
    assert not [word for word in copied if any(fnmatch(word, pattern) for pattern in IGNORED)]


def test_nothing_that_is_installed_is_ignored():
    needed = ["train.py", "zoo", "data", "tools", "configs", "pyproject.toml", "README.md", "environments"]
    assert not [name for name in needed if name in IGNORED or not (ROOT / name).exists()]
