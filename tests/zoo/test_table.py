"""Tables and texts in terminals of any width."""

import pytest

from tests.helpers.cli import call_zoo
from zoo import cli
from zoo.table import table, wrapped

ROWS = [("runs/a", 1.5, "left and right, " * 3), ("b", None, "x")]


def test_a_table_without_a_width_has_a_line_per_row():
    lines = table(ROWS, ("run", "n", "what"))
    assert lines == ["run       n  what", f"runs/a  1.5  {('left and right, ' * 3).strip()}", "b         -  x"]
    assert table(ROWS, ("run", "n", "what"), width=61) == lines


def test_chinese_characters_take_two_columns():
    assert table([("猫", "照片", 1), ("cat", "x", 10)], ("name", "what", "n")) == [
        "name  what   n",
        "猫    照片   1",
        "cat   x     10",
    ]


def test_the_last_column_is_wrapped_below_itself():
    assert table(ROWS, ("run", "n", "what"), width=34) == [
        "run       n  what",
        "runs/a  1.5  left and right, left",
        "             and right, left and",
        "             right,",
        "b         -  x",
    ]


@pytest.mark.parametrize("markdown", [False, True])
def test_a_table_that_is_wider_by_other_columns_becomes_a_block_per_row(markdown):
    rows = [("runs/a", "w" * 30, 2, None), ("b", "w", 3, "yes")]
    assert table(rows, ("run", "recipe", "steps", "note"), width=40, markdown=markdown) == [
        "runs/a",
        f"  recipe  {'w' * 30}",
        "  steps   2",
        "b",
        "  recipe  w",
        "  steps   3",
        "  note    yes",
    ]


@pytest.mark.parametrize(
    "line, expected",
    [
        ("short", ["short"]),
        ("data: 64 training samples, 8 classes", ["data: 64 training samples, 8", "  classes"]),
        ("page  none: jinja2 is not there", ["page  none: jinja2 is not", "      there"]),
        ("  zoo train        it trains a recipe", ["  zoo train  it trains a", "    recipe"]),
        (f"file {'x' * 40} is whole", ["file", f"  {'x' * 40}", "  is whole"]),  # a path is never cut
    ],
)
def test_lines_are_broken_between_words(line, expected):
    assert wrapped(line, 28).split("\n") == expected
    assert wrapped(line, None) == line


@pytest.mark.parametrize(
    "width, name",
    [
        (80, "train"),
        (80, "predict"),
        (80, "convert"),
        (80, "data check"),
        (60, "train"),
        (60, "finetune"),
        (60, "runs"),
    ],
)
def test_help_fits_a_terminal(name, width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit):
        call_zoo(*name.split(), "--help")
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if len(line) > width and len(line.split()) > 1]  # a name may be longer


def test_the_list_of_commands_fits_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, cli.usage(cli.COMMANDS).splitlines())) <= 60
