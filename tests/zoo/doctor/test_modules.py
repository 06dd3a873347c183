"""Packages that are missing or broken; the latter are modules of ours."""

from importlib import util

import pytest

from zoo.doctor import modules
from zoo.doctor.modules import Decoder

SECONDS = 60.0


def test_required_packages(monkeypatch):
    assert modules.missing() == []
    monkeypatch.setitem(modules.REQUIRED, "a_module_that_is_missing", "a-package")
    assert modules.missing() == ["a-package"]
    finding = modules.describe_missing(["a-package"])
    assert finding.state == "FAIL" and finding.text == "not installed: a-package" and finding.remedy == "pip install ."


def test_required_packages_are_those_of_the_project():
    import tomllib

    from tests.helpers.paths import ROOT

    with open(ROOT / "pyproject.toml", "rb") as file:
        dependencies = tomllib.load(file)["project"]["dependencies"]
    names = {dependency.partition(">")[0].partition("=")[0] for dependency in dependencies}
    assert set(modules.REQUIRED.values()) == names
    assert all(util.find_spec(module) for module in modules.REQUIRED)


def test_decoders(fake_module, monkeypatch):
    fake_module("broken_decoder", "import os, signal; os.kill(os.getpid(), signal.SIGABRT)")
    fake_module_code = "__version__ = '3.1'\n"
    fake_module("good_decoder", fake_module_code)
    decoders = (
        Decoder("Good", "good_decoder", "good", "images"),
        Decoder("Broken", "broken_decoder", "broken", "videos"),
        Decoder("Absent", "absent_decoder", "absent", "sounds"),
    )
    monkeypatch.setattr(modules, "DECODERS", decoders)
    good, broken, absent = modules.examine(SECONDS)
    assert (good.state, good.text) == ("ok", "Good 3.1")
    assert (broken.topic, broken.state) == ("Broken", "warn")
    assert broken.text == "videos: crashed with SIGABRT while importing broken_decoder"
    assert broken.remedy == "reinstall it: pip install --force-reinstall --no-deps broken"
    assert (absent.state, absent.text) == ("-", "Absent (sounds): pip install 'absent'")


@pytest.mark.parametrize(
    "names, build", [(["nvidia-nvjpeg", "nvidia-dali-cuda130"], "13.0"), (["nvidia-nvjpeg"], None)]
)
def test_the_cuda_of_dali(monkeypatch, names, build):
    monkeypatch.setattr(modules.metadata, "packages_distributions", lambda: {"nvidia": names})
    assert modules.dali_build() == build
