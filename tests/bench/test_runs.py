"""zoo runs: runs of several protocols as a table, those that can be compared side by side."""

import json
import math

from tests.helpers.cli import call_zoo
from tests.helpers.report_runs import training_events, write
from zoo.bench.commands import runs
from zoo.bench.report.runs import Point
from zoo.commands.new_file import print_report


def test_runs_of_equal_protocols_are_listed_together_and_the_best_comes_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call_zoo("runs") == 2 and "runs does not exist" in capsys.readouterr().err
    write(tmp_path / "runs/a", training_events((0.5, 0.6)))
    write(tmp_path / "runs/deep/b", training_events((0.7,), framework="paddle"))
    write(tmp_path / "runs/c", training_events((0.9, 0.8), protocol="k400/10x3@256", recipe="other"))
    write(tmp_path / "runs/d", training_events((0.4,))[:3])
    write(tmp_path / "runs/e", [])
    assert call_zoo("runs", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [(row["run"], row["best"]) for row in rows] == [
        ("runs/e", None), ("runs/c", 0.9), ("runs/deep/b", 0.7), ("runs/a", 0.6), ("runs/d", None)
    ]  # fmt: skip
    by_name = {row["run"]: row for row in rows}
    assert (by_name["runs/deep/b"]["framework"], by_name["runs/c"]["recipe"]) == ("paddle", "other")
    assert (by_name["runs/a"]["steps"], by_name["runs/a"]["time"], by_name["runs/a"]["began"]) == (200, 40.5, 100.0)
    assert (by_name["runs/a"]["state"], by_name["runs/d"]["state"]) == ("complete", "incomplete: step 50 of 750")
    assert call_zoo("runs", "runs/a", "runs/c") == 0
    header, first, second = capsys.readouterr().out.splitlines()
    assert " ".join(header.split()) == "run recipe framework protocol metric best steps time began state"
    assert first.split()[0] == "runs/c" and second.split()[4:8] == ["top1", "0.6000", "200", "0m40s"]
    monkeypatch.setenv("COLUMNS", "60")
    assert call_zoo("runs", "runs/a", "runs/c") == 0
    header, *_, note = capsys.readouterr().out.splitlines()
    assert len(header) <= 60 and header.split() == ["run", "metric", "best", "steps", "time", "state"]
    assert note == "not shown in 60 columns: recipe, framework, began, protocol"


def test_curves_in_the_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "runs/a", training_events((0.2, 0.6, 0.9)))
    write(tmp_path / "runs/empty", [])
    write(tmp_path / "runs/zero", training_events((0.0,)))
    assert call_zoo("runs", "--plot") == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("runs/zero "))
    assert row.split()[4:6] == ["top1", "0.0000"]
    assert any(line.startswith("runs/a ") and "top1  0.2000 ▁▅█ 0.9000" in line for line in lines)


def test_a_curve():
    points = [Point(None, None, value) for value in (8.0, 6.0, 4.0, 2.0, 1.0)]
    assert runs.curve(points) == "8.0000 █▆▄▂▁ 1.0000"
    assert runs.curve(points[:1]) == "8.0000 ▁ 8.0000" and runs.curve([]) == ""
    assert runs.curve([*points[:2], Point(None, None, float("nan"))]) == "8.0000 █▁? nan"
    many = runs.curve([Point(None, None, float(number)) for number in range(1000)]).split()
    assert many[0] == "0.0000" and len(many[1]) == 24 and list(many[1]) == sorted(many[1]) and many[2] == "999.0000"


def test_a_report_in_json_has_null_for_numbers_that_are_not_finite(capsys):
    print_report([], {"ratio": math.nan, "rows": [[math.inf, 0.5]]}, "-")
    assert json.loads(capsys.readouterr().out, parse_constant=int) == {"ratio": None, "rows": [[None, 0.5]]}
