"""Updates that differ, are not finite or whose process crashes; the numbers are made up."""

import errno
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from zoo.doctor import update
from zoo.doctor.child import Answer
from zoo.doctor.update import MODELS, Reference
from zoo.doctor.update_probe import CASES
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
    assert set(MODELS) == set(CASES) <= models - NOT_COMPARABLE
    assert {load_spec(model).TASK for model in CASES} == set(list_tasks())


def test_updates_that_agree(examine):
    _, expected = examine(dict.fromkeys(MODELS, 0.9))
    finding, sound = examine(dict.fromkeys(MODELS, 0.90001), Reference("torch on the CPU", expected))
    assert finding.state == "ok" and list(sound) == list(MODELS)
    assert finding.text == (
        "tsm, resnet, deeplabv3plus, arcface on cuda: as torch on the CPU, losses within 0e+00, updates within 1e-04"
    )


def test_an_update_that_differs_is_named(examine):
    _, expected = examine(dict.fromkeys(MODELS, 0.9))
    finding, sound = examine({**dict.fromkeys(MODELS, 0.9), "resnet": 0.899}, Reference("torch on the CPU", expected))
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


def test_an_error_names_its_model(examine):
    finding, _ = examine({"tsm": 0.9}, failure="AttributeError: no such thing")
    assert finding.text == "on cuda: updating resnet: AttributeError: no such thing"


def test_an_update_that_is_not_finite(examine):
    _, expected = examine({"tsm": 0.9})
    finding, sound = examine({"tsm": 0.9}, Reference("torch", expected), numbers={**NUMBERS, "loss": None})
    assert finding.state == "FAIL" and "tsm: its loss or gradient is not finite" in finding.text and not sound


def test_no_temporary_folder(monkeypatch):
    def fail():
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(update.tempfile, "TemporaryDirectory", fail)
    finding, sound = update.examine("torch", "cpu", "fp32", 60.0, None)
    assert finding.state == "FAIL" and finding.text == "no temporary folder: No space left on device" and not sound


@pytest.mark.slow
def test_pytorch_computes_on_a_cpu():
    pytest.importorskip("torch")
    finding, first = update.examine("torch", "cpu", "fp32", 600.0, None)
    assert finding.state == "ok" and finding.text == "tsm, resnet, deeplabv3plus, arcface on cpu"
    finding, _ = update.examine("torch", "cpu", "bf16", 600.0, Reference("fp32", first))
    assert finding.state == "ok" and "losses within" in finding.text
    finding, _ = update.examine("torch", "cpu", "bf16", 600.0, None)
    first["tsm"].after["fc.bias"][:] += 1  # a wrong reference is noticed
    finding, _ = update.examine("torch", "cpu", "fp32", 600.0, Reference("fp32", first))
    assert finding.state == "FAIL" and finding.text.startswith("on cpu: tsm: differs from fp32")
