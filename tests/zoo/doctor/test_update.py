"""Updates that differ, are not finite or whose process crashes; the numbers are made up."""

import math
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from zoo.doctor import update
from zoo.doctor.child import Answer
from zoo.doctor.update import CASES, Reference, Update, defect, difference
from zoo.models import load_spec
from zoo.tasks import list_tasks

NUMBERS = {"loss": 2.0, "grad_norm": 1.0, "skipped": 0.0}


@pytest.fixture
def examine(monkeypatch):
    """Return a function that examines updates of one weight from 1 to `after`, by model."""

    def run(after, reference=None, failure=None, precision="fp32", numbers=NUMBERS):
        def ask(seconds, probe, framework, device, asked, folder):
            assert (probe, asked) == ("update", precision)
            for model, value in after.items():
                arrays = {"before/a.weight": np.ones(1), "after/a.weight": np.array([value])}
                np.savez(Path(folder, f"{model}.npz"), **arrays)
            return Answer({**dict.fromkeys(after, numbers), "stage": "updating resnet"}, failure)

        monkeypatch.setattr(update.child, "ask", ask)
        return update.examine("paddle", "cuda", precision, 60.0, reference)

    return run


# With its initial weights, normalizations enlarge rounding errors: first updates differ by 1 % between frameworks.
NOT_COMPARABLE = {"tsm_mobilenet_v2"}


def test_the_cases_are_a_model_of_every_task():
    models = {path.parent.name for path in (ROOT / "zoo/models").glob("*/spec.py")}
    assert set(CASES) <= models - NOT_COMPARABLE
    assert {load_spec(model).TASK for model in CASES} == set(list_tasks())


def test_updates_that_agree(examine):
    _, expected = examine(dict.fromkeys(CASES, 0.9))
    finding, sound = examine(dict.fromkeys(CASES, 0.90001), Reference("torch on the CPU", expected))
    assert finding.state == "ok" and list(sound) == list(CASES)
    assert finding.text == (
        "tsm, resnet, deeplabv3plus, arcface on cuda: as torch on the CPU, losses within 0e+00, updates within 1e-04"
    )


def test_an_update_that_differs_is_named(examine):
    _, expected = examine(dict.fromkeys(CASES, 0.9))
    finding, sound = examine({**dict.fromkeys(CASES, 0.9), "resnet": 0.899}, Reference("torch on the CPU", expected))
    assert finding.state == "FAIL" and "resnet" not in sound
    words = "on cuda: resnet: differs from torch on the CPU by 0e+00 in its loss and by 1e-02 in its update"
    assert finding.text == words and "--framework paddle --device cuda" in finding.remedy
    finding, _ = examine({"resnet": 0.899}, Reference("paddle on the CPU", expected), precision="fp16")
    assert finding.state == "ok"  # within the rounding of 16 bits


def test_what_the_reference_lacks_is_not_compared(examine):
    _, expected = examine({"tsm": 0.9})
    finding, sound = examine({"tsm": 0.9, "arcface": 0.5}, Reference("torch on the CPU", expected))
    assert finding.text.endswith("updates within 0e+00; arcface is not compared") and set(sound) == {"tsm", "arcface"}
    assert examine({"tsm": 0.9}, Reference("torch on the CPU", {}))[0].text == "tsm on cuda"


def test_a_crash_keeps_what_was_told_before(examine):
    finding, sound = examine({"tsm": 0.9}, failure="crashed with SIGSEGV while updating resnet")
    assert finding.state == "FAIL" and finding.text == "on cuda: crashed with SIGSEGV while updating resnet"
    assert list(sound) == ["tsm"]


@pytest.mark.slow
def test_pytorch_computes_on_a_cpu():
    pytest.importorskip("torch")
    finding, first = update.examine("torch", "cpu", "fp32", 600.0, None)
    assert finding.state == "ok" and finding.text == "tsm, resnet, deeplabv3plus, arcface on cpu"
    first["tsm"].after["fc.bias"][:] += 1  # a wrong reference is noticed
    finding, sound = update.examine("torch", "cpu", "bf16", 600.0, Reference("fp32", first))
    assert finding.state == "FAIL" and finding.text.startswith("on cpu: tsm: differs from fp32")
    assert list(sound) == ["resnet", "deeplabv3plus", "arcface"]


def made(weight=(0.9, 2.0), statistic=(0.1,), numbers=NUMBERS, begin=(1.0, 2.0)):
    """An update by 0.1 in the first weight and by 0.1 in the statistic."""
    before = {"a.weight": np.array(begin, np.float32), "a.running_mean": np.zeros(1, np.float32)}
    after = {"a.weight": np.array(weight, np.float32), "a.running_mean": np.array(statistic, np.float32)}
    return Update(dict(numbers), before, after)


def test_an_update_that_is_sound():
    assert defect(made()) is None
    assert difference(made(), made()) == (0.0, 0.0)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"numbers": {**NUMBERS, "loss": None}}, "not finite"),
        ({"numbers": {**NUMBERS, "grad_norm": None}}, "not finite"),
        ({"numbers": {**NUMBERS, "skipped": 1.0}}, "skipped"),
        ({"weight": (math.nan, 2.0)}, "a.weight is not finite after the update"),
        ({"statistic": (math.inf,)}, "a.running_mean is not finite"),
        ({"weight": (1.0, 2.0)}, "changed no weight"),
    ],
)
def test_an_update_that_is_not(changes, words):
    assert words in defect(made(**changes))


def test_differences_are_relative_to_the_made():
    """Wrong by 0.01 in an update of 0.1 is 10 %, whatever the size of the weights."""
    other = made(weight=(0.9, 2.01))
    assert difference(other, made()).update == pytest.approx(0.1, rel=1e-4)
    assert difference(made(statistic=(0.05,)), made()).update == pytest.approx(0.5, rel=1e-4)
    loss = difference(made(numbers={**NUMBERS, "loss": 2.2}), made()).loss
    assert loss == pytest.approx(0.1)
    assert difference(made(weight=(1.0, 2.0), statistic=(0.1,)), made()).update == pytest.approx(1, rel=1e-4)


def test_updates_that_began_elsewhere_cannot_be_compared():
    assert difference(made(begin=(1.0, 2.5)), made()) == (math.inf, math.inf)
