"""Differences of two devices: analytic values, the worst tensor, the verdict, and a real update on a CPU."""

import json

import numpy as np
import pytest

from zoo.bench.gpu_checks import models, parity
from zoo.data.errors import UserError

TENSORS = {
    "loss": np.float32(2.0),
    "prediction": np.array([[0.5, 0.25]], np.float32),
    "weights/a": np.array([1.0, -4.0], np.float32),
    "weights/b": np.array([2.0], np.float32),
    "statistics/mean": np.array([0.0], np.float32),
    "gradient/a": np.array([8.0, 1.0], np.float32),
    "change/a": np.array([1.0, 1.0], np.float32),
}


@pytest.mark.parametrize(
    "found, expected, difference",
    [
        ([1.0, 2.0], [1.0, 2.5], 0.2),
        ([0.0], [0.0], 0.0),
        ([1e-9], [0.0], float("inf")),  # nothing to relate it to
        ([np.nan], [1.0], float("inf")),
        ([1.0], [np.inf], float("inf")),
        ([1.0, 2.0], [1.0], float("inf")),
    ],
)
def test_the_difference_is_relative_to_the_largest_value(found, expected, difference):
    assert parity.relative_difference(np.array(found), np.array(expected)) == pytest.approx(difference)


def test_class_maps_differ_by_the_share_of_pixels():
    assert parity.relative_difference(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5])) == 0.25


def test_the_worst_tensor_of_each_part_is_named():
    found = {**TENSORS, "weights/a": np.array([1.0, -4.4]), "weights/b": np.array([2.1])}
    worst = parity.differences(found, TENSORS)
    assert worst["weights"] == {"difference": pytest.approx(0.1), "tensor": "a"}
    assert worst["gradient"]["difference"] == 0 and set(worst) == {*parity.PARTS, "gradient", "change"}
    with pytest.raises(UserError, match="weights/b"):
        parity.differences({key: value for key, value in TENSORS.items() if key != "weights/b"}, TENSORS)


@pytest.mark.parametrize("change, code", [(0.9e-4, 0), (1.1e-4, 1), (float("nan"), 1)])
def test_the_limit_of_fp32(monkeypatch, tmp_path, change, code):
    """The gradient has no limit: rounding there depends on the network."""
    found = {**TENSORS, "loss": np.float32(2.0) * (1 + np.float32(change)), "gradient/a": np.array([9.0, 1.0])}
    monkeypatch.setattr(parity, "compare_devices", lambda words, device: parity.differences(found, TENSORS))
    path = tmp_path / "values.json"
    assert parity.main([*models.tiny(models.MODELS[0], "torch"), "--json", str(path)]) == code
    values = json.loads(path.read_text())
    assert values["beyond"] == (["loss"] if code else []) and values["gradient"] == 0.125


def test_a_precision_without_a_limit_is_refused(capsys):
    assert parity.main([*models.tiny(models.MODELS[0], "torch"), "--amp"]) == 2
    assert "train.precision" in capsys.readouterr().err


@pytest.mark.slow
def test_a_cpu_equals_itself(tmp_path, capfd):
    pytest.importorskip("torch")
    path = tmp_path / "values.json"
    words = [*models.tiny(models.MODELS[3], "torch"), "--device", "cpu", "--json", str(path)]
    assert parity.main(words) == 0
    values = json.loads(path.read_text())
    assert [values[part] for part in parity.PARTS] == [0.0] * 4
    assert "equal within the limit" in capfd.readouterr().out
