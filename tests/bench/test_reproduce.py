"""zoo reproduce: the commands that repeat the rows of the published reports, and the comparison with a row."""

import csv
import json

import pytest

from evidence.scale import published
from tests.helpers.report_runs import training_events, write
from zoo import cli
from zoo.bench.commands import reproduce
from zoo.commands import train


def rows():
    with open(reproduce.REPORTS, encoding="utf-8", newline="") as file:
        return [reproduce.Row(**row) for row in csv.DictReader(file)]


def test_the_rows_are_those_of_the_evidence():
    """What predicts throughput was held against the same numbers, but for those of a recipe's first row."""
    known = {speed for table in published.tables("report") for speed in table.rows.values()}
    assert known - {float(row.samples_per_s) for row in rows()} == set()
    assert {float(row.samples_per_s) for row in rows()} - known == {1380.045, 2545.3}  # one row alone; an artefact


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.recipe}-{row.precision}-{row.world}")
def test_the_steps_of_every_row_are_commands_that_are_understood(row):
    arguments = reproduce.parser().parse_args([row.recipe, "-n", "3", "-o", "data.workers=2"])
    _, plan, estimate, matrix = reproduce.steps(row, arguments, "out")
    request = train.read(train.parse(plan[1:]))
    assert (request.config.train.precision, str(request.config.train.batch)) == (row.precision, row.batch)
    assert request.config.data.workers == 2 and plan[-1] == row.world == estimate[-1]
    assert (matrix[matrix.index("--drop") + 1] if "--drop" in matrix else "") == row.drop
    for option, value in (("--worlds", row.world), ("--precisions", row.precision), ("--batches", row.batch)):
        assert matrix[matrix.index(option) + 1] == value
    assert cli.main([*matrix, "--repeats", "3", "--dry-run", "--frameworks", "none"]) == 2  # the last option counts


def test_the_small_steps_are_those_of_the_demo():
    arguments = reproduce.parser().parse_args(["tsm_paddle_airank", "--small"])
    for step in reproduce.steps(rows()[1], arguments, "out"):
        assert step[step.index("-c") + 1] == "tsm_demo"


@pytest.mark.parametrize("words, world", [(["--world", "1x8", "--precision", "amp"], "1x8"), (["--small"], "1x1")])
def test_a_published_training_is_repeated_and_compared(words, world, tmp_path, monkeypatch, capsys):
    started = []

    def run(command):
        started.append(command)
        write(tmp_path / "run", training_events((0.5, 0.7), recipe="tsm_k400"))
        return 0

    monkeypatch.setattr(reproduce.subprocess, "call", run)
    assert cli.main(["reproduce", "tsm_k400", *words, "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.endswith("top1 0.7000; target of tsm_k400: 0.7110\n")
    *_, estimate, training = started
    assert estimate[-1] == world and training[-3:] == ["--out", str(tmp_path / "run"), "--resume"]
    assert ("launch" in training) == (world == "1x8") == ("train.precision=amp" in training)
    assert training[training.index("-c") + 1] == ("tsm_k400" if world == "1x8" else "tsm_demo")
    assert cli.main(["reproduce", "tsm_k400", "-n", "3"]) == 2 and "is trained once" in capsys.readouterr().err


def test_the_comparison_has_an_interval(tmp_path):
    case = {"median": 82.0, "low": 80.0, "high": 84.0}
    content = {"runs_on_a_busy_machine": 0, "cases": [case]}
    (tmp_path / "results.json").write_text(json.dumps(content))
    row = rows()[1]._replace(samples_per_s="80")
    assert reproduce.compare(row, str(tmp_path), is_small=False) == (
        "82 (95% interval 80 to 84) samples/s; tsm_paddle_airank, amp, 1x1: 80; ratio 1.025 (95% interval 1 to 1.05)"
    )
    content = {"runs_on_a_busy_machine": 2, "cases": [{**case, "low": 1.0}]}
    (tmp_path / "results.json").write_text(json.dumps(content))
    assert reproduce.compare(row, str(tmp_path), is_small=True) == (
        "82 (too noisy) samples/s (the machine was busy before 2 runs), of the demo, which no report has"
    )


@pytest.mark.parametrize(
    "words, message",
    [
        (["tsm_padle_airank"], "did you mean tsm_paddle_airank?"),
        (["tsm_torch_airank", "--world", "1x8"], "no such row, but 4x8 in amp"),
        (["tsm_torch_airank", "-o", "data.rot=x"], "data.root"),
    ],
)
def test_mistakes(words, message, capfd):
    assert cli.main(["reproduce", *words]) == 2
    assert message in capfd.readouterr().err


def test_the_list(capsys):
    assert cli.main(["reproduce"]) == 0
    assert capsys.readouterr().out.count("resnet50_mindspore_dlperf") == 12
