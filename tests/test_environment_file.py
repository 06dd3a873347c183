"""environment.yaml has PyTorch's GPU environment, in the versions of its lock file; messages name extras that exist."""

import re

import pytest
from packaging.requirements import Requirement

from tests.helpers import pins
from tests.helpers.paths import ROOT
from zoo.frameworks import FRAMEWORKS

FILE = ROOT / "environment.yaml"


@pytest.fixture(scope="module")
def lines():
    """The pip packages; every line must be an exact version."""
    packages, lines = pins.conda(FILE)
    assert packages == ["python=3.11", "pip"] and all(
        re.fullmatch(r"[a-z0-9-]+==[\w.]+(; .+)?", line) for line in lines
    )
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("processor", pins.PROCESSORS)
def test_it_has_the_versions_of_the_lock_file(processor, lines):
    versions = {line.name: str(line.specifier)[2:] for line in lines if pins.applies(line, processor=processor)}
    locked = pins.locked("environments/torch.lock", processor=processor)
    assert {name: locked.get(name) for name in versions} == versions
    needed = pins.requirements(pins.locked_extras()["environments/torch.lock"])
    assert {each.name for each in needed if pins.applies(each, processor=processor)} == versions.keys()
    assert versions.keys() >= {"torch", "nvidia-dali-cuda130", "opencv-python-headless"}


def test_it_names_the_environment_of_each_framework():
    named = re.findall(r"environments/(\w+)\.yaml", FILE.read_text())
    assert named == list(FRAMEWORKS) and all((ROOT / f"environments/{name}.yaml").exists() for name in named)


def test_every_extra_that_messages_name_exists():
    """Messages and docs advise `pip install '.[torch]'` and the like."""
    extras = pins.project()["optional-dependencies"].keys()
    files = [path for folder in ("zoo", "tools") for path in (ROOT / folder).rglob("*.py")]
    files += [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = {
        extra
        for path in files
        for names in re.findall(r"pip install[^\n]*\[([a-z0-9,-]+)\]", path.read_text(encoding="utf-8"))
        for extra in names.split(",")
    }
    assert named <= extras and extras >= set(FRAMEWORKS)
