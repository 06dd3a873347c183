"""Further logs of a run: found by name, and the table of numbers against the events that it shows."""

import csv
from types import SimpleNamespace

import pytest

from tests.zoo.config.recipe_files import SMALL, build
from zoo.config.schema import Config
from zoo.logs import listeners
from zoo.logs.journal import Journal


def table(folder):
    with open(folder / "metrics.csv", encoding="utf-8", newline="") as file:
        return [[row.get(name, "") for name in ("event", "step", "loss", "top1")] for row in csv.DictReader(file)]


def test_a_recipe_names_listeners(tmp_path):
    config, _ = build(tmp_path, SMALL, "listeners=[metrics_csv]")
    assert isinstance(config, Config) and config.listeners == ("metrics_csv",)
    listeners.check_names(config.listeners)
    assert build(tmp_path)[0].listeners == ()


@pytest.mark.parametrize(
    "names, message",
    [
        (
            ("metrics_cvs",),
            "listeners: there is no 'metrics_cvs'; there are: .*metrics_csv.*; did you mean metrics_csv?",
        ),
        (("metrics_csv", "metrics_csv"), "listeners: metrics_csv is given twice"),
        (("__init__",), "listeners: there is no '__init__'"),
    ],
)
def test_names_that_are_wrong(names, message):
    with pytest.raises(listeners.UserError, match=message):
        listeners.check_names(names)


def test_a_table_of_numbers_without_what_a_resume_reverts(tmp_path):
    opened = listeners.open_listeners(str(tmp_path), SimpleNamespace(listeners=("metrics_csv",)))
    with Journal(str(tmp_path), opened) as journal:
        journal.add("begin", seed=1)
        journal.add("train", step=1, loss=0.5, step_ms={"p50": 3.0})
        journal.add("train", step=2, loss=0.25)
        assert not (tmp_path / "metrics.csv").exists()
        journal.add("eval", step=2, accuracy=0.5, top1=0.5, loss=0.75)
        assert table(tmp_path) == [["train", "1", "0.5", ""], ["train", "2", "0.25", ""], ["eval", "2", "0.75", "0.5"]]
        journal.add("resume", step=1)
        journal.add("end", step=1)
    assert table(tmp_path) == [["train", "1", "0.5", ""]]
    (tmp_path / "metrics.csv").unlink()  # as if a kill had come before it
    listeners.open_listeners(str(tmp_path), SimpleNamespace(listeners=("metrics_csv",)))
    assert table(tmp_path) == [["train", "1", "0.5", ""]]
