"""Tables as text, Markdown and CSV."""

from zoo.table import csv_text, table

ROWS = [("tsm", "12.5", None), ("a|b", "7", "x\ny")]
COLUMNS = ("model", "samples/s", "remark")


def test_text():
    assert table(ROWS, COLUMNS) == ["model  samples/s  remark", "tsm         12.5  -", "a|b            7  x y"]


def test_markdown():
    assert table(ROWS, COLUMNS, markdown=True) == [
        "| model | samples/s | remark |",
        "| ----- | --------: | ------ |",
        "| tsm   |      12.5 | -      |",
        "| a\\|b  |         7 | x y    |",
    ]


def test_no_rows():
    assert table([], ["a"], markdown=True) == ["| a   |", "| --- |"]


def test_csv():
    assert csv_text([{"a": 0.1 + 0.2, "b": None, "left out": 1}], ["a", "b"]) == "a,b\n0.30000000000000004,\n"
