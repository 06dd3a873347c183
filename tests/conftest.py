"""Fixtures of several folders: demo demo_sets, and runs that several tests compare with."""

import os
import sys
import tempfile
from functools import cache

import hypothesis
import pytest

from tests.helpers.processes import NATIVE, SETTINGS, require_framework, run, train_arguments
from zoo import cli
from zoo.data.demo import motion, portraits, shapes, streets

os.environ.pop("COLUMNS", None)  # by which lines are broken
os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core per worker of pytest-xdist; before a framework is imported
# torch.compile's cache does not ask which instructions its kernels were compiled for, and ends with an abort.
instructions = os.environ.get("ATEN_CPU_CAPABILITY", "native")
cache_folder = f"zoo-inductor-{os.getuid()}-{sys.version_info.minor}-{instructions}"
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), cache_folder))
# XLA compiles the programs of the demo models for a minute each; whoever runs the tests keeps them, as inductor's.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"zoo-xla-{os.getuid()}"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
# No example fails because the machine is busy.
hypothesis.settings.register_profile(
    "any speed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any speed")


LONGEST = ("test_trainer.py", "test_mutants.py", "test_processes.py", "test_sharded.py")


def pytest_collection_modifyitems(items):
    """Begin with the longest files, so that none of them is left for one process of pytest-xdist at the end."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session", autouse=True)
def zoo_home(tmp_path_factory):
    """A folder of the tests' own for what runs share: weights that the user has downloaded change no result."""
    os.environ["ZOO_HOME"] = str(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def clips(tmp_path_factory):
    """The folder of a set of 16 training and 8 validation clips."""
    root = str(tmp_path_factory.mktemp("clips") / "motion")
    motion.make(root, 16, 8)
    return root


@pytest.fixture(scope="session")
def demo_sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo_sets")
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
def single_run(demo_sets, tmp_path_factory):
    """(framework, model) -> the folder of one process's run, made when first asked for."""

    @cache
    def make(framework, model):
        require_framework(framework)
        out = tmp_path_factory.mktemp("python") / "run"
        line = train_arguments(demo_sets, model, out, framework)
        if framework == "torch":  # which tests have imported
            assert cli.main(["train", *line[1:]]) == 0
        else:
            run("python", 1, None, line)
        return out

    return make


@pytest.fixture(scope="session")
def two_process_run(demo_sets, tmp_path_factory):
    """(framework, model) -> the folder of the same run by two processes: ResNet natively started, others by mpirun."""

    @cache
    def make(framework, model):
        require_framework(framework)
        folder = tmp_path_factory.mktemp("pair")
        run(
            NATIVE[framework] if model == "resnet50" else "mpirun",
            2,
            folder / "logs",
            train_arguments(demo_sets, model, folder / "run", framework),
        )
        return folder / "run"

    return make
