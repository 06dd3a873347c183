"""AI-Rank logs of other projects (tests/airank/ORIGIN.txt)."""

from pathlib import Path

import pytest

from zoo.bench.report import logs
from zoo.bench.report.runs import COMPLETE, INCOMPLETE

LOGS = Path(__file__).resolve().parents[2] / "airank"


def read(name, target=None, samples=None):
    return logs.read(str(LOGS / f"{name}.log"), target, samples)


def test_values_of_a_published_log():
    """478.6 samples/s by the definition of AI-Rank; 46 epochs to 0.71 in 22549.332 s."""
    run = read("tsm-paddle-8gpu-amp", 0.71, 234619)
    assert run.state == COMPLETE and run.remark == "ends at the target"
    assert run.values.samples_per_s == pytest.approx(478.6, abs=0.05)
    assert run.values.time_to_target == pytest.approx(22549.332, abs=1e-3) and run.values.target_epoch == 46
    assert run.values.best == pytest.approx(0.7100374425611188) and run.values.evaluations == 46
    assert run.metrics[-1].samples == 46 * 234619 and run.metrics[-1].seconds == run.values.time_to_target


def test_percent_becomes_a_fraction():
    run = read("deeplabv3plus-pytorch-8gpu-fp16", 0.785)
    assert run.values.best == pytest.approx(0.786) and max(point.value for point in run.metrics) == pytest.approx(0.786)
    assert run.values.samples_per_s == pytest.approx(4.7)  # as declared, without the number of samples


def test_without_a_target_the_declared_time_counts():
    assert read("tsm-pytorch-8gpu-amp").values.time_to_target == pytest.approx(23711.15)


@pytest.mark.parametrize(
    "path, expected",
    [
        ("tsm-pytorch-8gpu-amp-run2.log", ("tsm", "torch", "amp", None, 8)),
        ("hrnet-paddle-32gpu-bs4.log", ("hrnet", "paddle", None, 4, 32)),
        ("AI/PaddlePaddle/Linux/TSM/log/GPUx32_AMP.log", ("tsm", "paddle", "amp", None, 32)),
        ("x/Linux/DeepLabV3+_pytorch/log/gPUx8_fp16_bs8.log", ("deeplabv3plus", "torch", "fp16", 8, 8)),
        ("log.txt", (None, None, None, None, None)),
        ("gpux0.log", (None, None, None, None, None)),
    ],
)
def test_cases_are_read_from_names(path, expected):
    case = logs._case(path)
    assert (case.model, case.framework, case.precision, case.batch, case.cards) == expected


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda path: path.stem)
def test_every_log_has_a_state(path):
    run = logs.read(str(path), None, None)
    is_training = not path.name.startswith(("noise", "inference"))
    assert run.state in ((COMPLETE, INCOMPLETE) if is_training else (INCOMPLETE,))
    assert bool(run.remark) or run.state == COMPLETE
