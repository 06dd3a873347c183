"""Tables of a report: every case has a cell, no two columns have the same title, numbers as they are printed."""

import pytest

from tests.helpers.report_runs import speed_events, training_events, write
from zoo.bench.report import runs, tables
from zoo.bench.report.results import group, ratios
from zoo.bench.report.tables import Table, gibibytes, percent, significant


def build(tmp_path, *several):
    """Return the tables of runs by name."""
    found = [runs.read(write(tmp_path / str(number), events)) for number, events in enumerate(several)]
    results = group(found)
    return {table.name: table.of("resnet") for table in tables.build(found, results, ratios(results))}


def test_columns_that_say_nothing_are_left_out():
    rows = [{"model": "a", "framework": "torch", "median": None, "device": "x", "p50": 1234.56},
            {"model": "a", "framework": "torch", "median": None, "device": "x", "p50": None}]  # fmt: skip
    shown = Table("t", "T", "", rows)
    assert shown.titles == ["framework", "ms per step p50"] and shown.cells == [["torch", "1234.6"], ["torch", None]]


def test_hosts_of_the_same_number_of_cards_have_rows_of_their_own(tmp_path):
    events = [speed_events(100.0), speed_events(700.0, cards=8), speed_events(600.0, cards=8, nodes=2)]
    overview = build(tmp_path, *events)["overview"]
    assert overview.titles == ["nodes", "cards", "torch fp32"]
    assert overview.cells == [["1", "1", "100.00"], ["1", "8", "700.00"], ["2", "8", "600.00"]]


def test_columns_name_what_would_be_the_same_without(tmp_path):
    training = training_events(model="resnet", recipe="resnet50_imagenet", protocol="imagenet/224-of-256", batch=128,
                               precision="fp32", compute="fp32", level=None)  # fmt: skip
    several = [
        speed_events(100.0),
        speed_events(90.0, accumulate=2),
        speed_events(80.0, hosts=[], device="cuda:0 (NVIDIA T4)", nodes=1),
        training,
        speed_events(70.0, framework="paddle"),
    ]
    overview = build(tmp_path, *several)["overview"]
    titles = set(overview.titles) - {"nodes", "cards"}
    assert len(titles) == 5 and {70.0, 80.0, 90.0, 100.0} < {value for row in overview.rows for value in row.values()}
    assert all(any(word in title for title in titles) for word in ("accumulate 2", "NVIDIA T4", "paddle"))


def test_ratios_name_how_they_were_counted_where_that_differs(tmp_path):
    common = {"model": "resnet", "protocol": "imagenet/224-of-256", "batch": 128}
    several = [
        *(speed_events(rate, framework=name, precision="amp") for name, rate in (("torch", 100.0), ("paddle", 80.0))),
        *(training_events(framework=name, **common) for name in ("torch", "paddle")),
    ]
    found = build(tmp_path, *several)["ratios"]
    assert sorted(row["counting"] for row in found.rows) == ["timed updates", "training time"]
    assert found.titles[-1] == "counted"
    assert "counted" not in build(tmp_path / "b", *several[:2])["ratios"].titles


@pytest.mark.parametrize(
    "form, value, text",
    [
        (significant, 0.0, "0"),
        (significant, 0.0036771, "0.003677"),
        (significant, 1.23456, "1.235"),
        (significant, 369.81, "369.81"),
        (significant, 1234.56, "1234.6"),
        (significant, 24183.95, "24184"),
        (significant, 1e15, "1e+15"),
        (percent, 0.7102965, "71.03"),
        (gibibytes, 3 << 30, "3.000"),
    ],
)
def test_numbers(form, value, text):
    assert form(value) == text
