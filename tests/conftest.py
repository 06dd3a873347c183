"""Fixtures of several folders: demo sets, and runs that several tests compare with."""

from functools import cache

import pytest

from data.demo import motion, portraits, shapes, streets
from tests.helpers.processes import NATIVE, SETTINGS, needs, run, words


@pytest.fixture(scope="session")
def clips(tmp_path_factory):
    """The folder of a set of 16 training and 8 validation clips."""
    root = str(tmp_path_factory.mktemp("clips") / "motion")
    motion.make(root, 16, 8)
    return root


@pytest.fixture(scope="session")
def sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    made = {
        "tsm": str(folder / "motion"),
        "resnet50": str(folder / "shapes"),
        "deeplabv3plus": str(folder / "streets"),
        "arcface": str(folder / "portraits"),
    }
    motion.make(made["tsm"], 24, 8)
    shapes.make(made["resnet50"], 24, 8)
    streets.make(made["deeplabv3plus"], 24, 8)
    sizes = {key[5:]: value for key, value in SETTINGS["arcface"].items() if key.startswith("data.")}
    portraits.make(portraits.Settings(root=made["arcface"], **sizes))
    return made


@pytest.fixture(scope="session")
def alone(sets, tmp_path_factory):
    """(framework, model) -> the folder of one process's run, made when first asked for."""

    @cache
    def make(framework, model):
        needs(framework)
        out = tmp_path_factory.mktemp("alone") / "run"
        run("alone", 1, None, words(sets, model, out, framework))
        return out

    return make


@pytest.fixture(scope="session")
def pair(sets, tmp_path_factory):
    """(framework, model) -> the folder of the same run by two processes: ResNet natively started, others by mpirun."""

    @cache
    def make(framework, model):
        needs(framework)
        folder = tmp_path_factory.mktemp("pair")
        run(
            NATIVE[framework] if model == "resnet50" else "mpirun",
            2,
            folder / "logs",
            words(sets, model, folder / "run", framework),
        )
        return folder / "run"

    return make
