"""zoo/compare/report.py."""

from zoo.compare.report import Row, plot, relative_difference


def test_curves_are_drawn_as_png():
    rows = {name: [Row(step, 0.1, 2.0 / step, 1.0, 0.0, 0.1, step) for step in (1, 2, 3)] for name in ("a", "b")}
    assert plot(rows).startswith(b"\x89PNG")


def test_relative_differences():
    assert relative_difference([2.0, 2.0, 2.0]) == 0 == relative_difference([0.0, 0.0]) == relative_difference([1.0])
    assert relative_difference([1.0, 2.0]) == relative_difference([2.0, 1.0]) == 0.5
    assert relative_difference([-1.0, 1.0]) == 2.0 and relative_difference([-4.0, -3.0]) == 0.25
    for value in (float("nan"), float("inf")):
        assert relative_difference([1.0, value]) == relative_difference([value, value]) == float("inf")
