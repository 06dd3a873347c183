"""The strict comparison of tensors with a model's shapes."""

import numpy as np

from zoo.weights.match import match_state_dict


def test_the_report_limits_its_lists():
    expected = {"a": (3,), **{f"b{i}": (1,) for i in range(12)}}
    report = match_state_dict({"a": np.zeros(2), "x": np.zeros(1)}, expected)
    assert not report.complete and report.matched == () and report.unexpected_keys == ("x",)
    assert report.shape_mismatches == (("a", (2,), (3,)),)
    text = str(report)
    assert "missing keys (12):" in text and "b9" in text and "b10" not in text and "... and 2 more" in text
    assert "a: (2,), the model expects (3,)" in text


def test_a_complete_state_dict():
    report = match_state_dict({"a": np.zeros((2, 3)), "b": np.zeros(())}, {"b": (), "a": [2, 3]})
    assert report.complete and report.matched == ("b", "a") and str(report) == "  2 tensors match"
