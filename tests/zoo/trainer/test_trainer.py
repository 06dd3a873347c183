"""The trainer in every framework: all modules of cases beside this file, and a fast one of each framework."""

import importlib.util

import pytest

from tests.helpers import frameworks
from zoo.frameworks import FRAMEWORKS

COMMON = (
    *("update", "state", "device_image", "arithmetic", "checkpointing", "clip", "evaluation", "rank"),
    *("ops", "optimizer", "loss", "objective", "margin", "head", "recording"),
)
OWN = {
    "paddle": ("paddle.cases", "paddle.cpu_cases"),
    "mindspore": ("mindspore.cases",),
    "jax": ("jax.cases", "jax.bare_cases"),
}


@pytest.mark.parametrize(
    "framework, module, case",
    frameworks.parameters(*(f"zoo.trainer.{name}_cases" for name in COMMON)),
)
def test_trainer(framework, module, case):
    frameworks.check(framework, module, case)


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework, module, case",
    [
        (framework, f"zoo.trainer.{name}", case)
        for framework, modules in OWN.items()
        for name in modules
        for case in frameworks.names(f"zoo.trainer.{name}")
    ],
)
def test_one_framework(framework, module, case):
    frameworks.check(framework, module, case)


@pytest.fixture(scope="module")
def two_devices():
    worker = frameworks.Worker("jax", XLA_FLAGS="--xla_force_host_platform_device_count=2", ZOO_TEST_DEVICE="cpu:all")
    yield worker
    worker.close()


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="jax is not installed")
@pytest.mark.parametrize("module", ("update", "margin", "evaluation", "jax.device"))
def test_one_process_of_jax_with_two_devices(module, two_devices):
    errors = {
        case: two_devices.run(f"zoo.trainer.{module}_cases", case, 600)
        for case in frameworks.names(f"zoo.trainer.{module}_cases")
    }
    assert {case: error for case, error in errors.items() if error} == {}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_two_updates(framework):
    """So that the fast tests cover all frameworks."""
    frameworks.check(framework, "zoo.trainer.smoke_cases", "case_two_updates_follow_the_formulas", timeout=120)
