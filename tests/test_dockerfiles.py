"""environments/*.Dockerfile install the lock files; they agree with the files they copy and with the manifests."""

import re

import pytest

from tests.helpers.paths import ROOT
from zoo.distributed.clusters import IMAGE_FOLDER
from zoo.frameworks import FRAMEWORKS

DOCKERFILES = sorted(ROOT.glob("environments/*.Dockerfile"))
IGNORED = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
NEEDED = {line[1:] for line in IGNORED if line[0] == "!"}


def instructions(path):
    """Return (instruction, arguments) of a Dockerfile, continued lines joined."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE))
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def test_there_is_one_for_each_framework():
    assert sorted(path.stem for path in DOCKERFILES) == sorted(FRAMEWORKS)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_versions_are_those_of_the_lock_file(path):
    lines = instructions(path)
    assert [arguments for instruction, arguments in lines if instruction == "FROM"] == ["${BASE}"]  # a tag or a digest
    assert re.match(r"ARG BASE=python:3\.11\.\d+-", " ".join(lines[0]))  # what the lock files are for
    installs = [arguments for instruction, arguments in lines if instruction == "RUN" and "pip install" in arguments]
    assert f"--require-hashes --no-deps -r environments/{path.stem}.lock" in installs[0]
    assert "--no-deps --no-build-isolation --editable ." in installs[1] and len(installs) == 2
    assert "==" not in path.read_text()
    assert ("python -m zoo.cuda_libraries" in installs[1]) == (path.stem == "paddle")
    libraries = {"torch": "g++", "paddle": "libgomp1", "mindspore": "libgomp1"}  # that the base image lacks
    assert libraries.get(path.stem, "") in " ".join(arguments for _, arguments in lines if "apt-get" in arguments)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_files_and_folders_exist(path):
    lines = instructions(path)
    assert ("WORKDIR", IMAGE_FOLDER) in lines  # where scripts and manifests look for the project
    copied = [word for instruction, arguments in lines if instruction == "COPY" for word in arguments.split()[:-1]]
    assert "." in copied and all((ROOT / word).exists() for word in copied)
    assert {word.split("/")[0] for word in copied} <= {".", *NEEDED}


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_no_host_key_is_in_an_image_and_only_pods_are_not_checked(path):
    [install] = [arguments for _, arguments in instructions(path) if "openssh-server" in arguments]
    assert "rm -f /etc/ssh/ssh_host_*" in install and "Host *-worker-*" in install and "Host *\\n" not in install


def test_an_image_holds_what_is_installed_and_nothing_else():
    assert IGNORED[0] == "*"
    assert {"train.py", "zoo", "data", "tools", "configs", "pyproject.toml", "README.md", "environments"} <= NEEDED
    assert all((ROOT / name).exists() for name in NEEDED)
    assert not {".git", "runs", "logs", "datasets", "weights"} & NEEDED
