"""One set of pins: environment.yaml is pyproject.toml with GPU builds."""

import os
import re
import tomllib

import yaml

from tests.helpers.paths import ROOT

GPU_BUILDS = {"opencv-python": "opencv-python-headless", "paddlepaddle-gpu": "paddlepaddle"}


def pins(lines):
    """name -> version; every requirement must be an exact pin."""
    found = {}
    for line in lines:
        match = re.fullmatch(r"([a-z0-9-]+)==([\d.]+)", line)
        assert match, f"not an exact pin: {line}"
        found[match.group(1)] = match.group(2)
    return found


def test_both_files_pin_the_same_versions():
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        project = tomllib.load(file)["project"]
    wanted = pins(project["dependencies"] + sum(project["optional-dependencies"].values(), []))
    with open(os.path.join(ROOT, "environment.yaml")) as file:
        packages = yaml.safe_load(file)["dependencies"]
    assert "python=3.11" in packages
    installed = next(entry["pip"] for entry in packages if isinstance(entry, dict))
    found = pins(line for line in installed if not line.startswith("--"))
    assert found.pop("torchvision")  # for users; the zoo itself does not need it
    assert {GPU_BUILDS.get(name, name): version for name, version in found.items()} == wanted


def test_every_extra_that_the_zoo_speaks_of_exists():
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert set(extras) == {"torch", "paddle", "mindspore", "dali", "dev"}
