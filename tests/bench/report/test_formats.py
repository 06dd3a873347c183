"""Tables as Markdown, CSV and HTML."""

import csv
import io

import pytest

from zoo.bench.report import formats
from zoo.bench.report.columns import Column, digits, gibibytes, percent, significant, whole_percent
from zoo.bench.report.tables import Table

TABLE = Table(
    "speeds",
    "Speeds",
    "",
    (Column("name", "name"), Column("speed", "samples/s", significant), Column("kind", "kind", if_varied=True)),
    (
        {"model": "tsm", "name": "a|b <c>", "speed": 1234.5678, "kind": "x"},
        {"model": "tsm", "name": "d", "speed": None, "kind": "x"},
        {"model": "resnet", "name": None, "speed": 2.0, "kind": "y"},
    ),
)


def test_markdown_has_numbers_to_the_right_and_no_broken_cells():
    assert formats.markdown(TABLE.of("tsm")) == [
        "| name | samples/s |",
        "| :-- | --: |",
        "| a\\|b <c> | 1234.6 |",
        "| d | - |",
    ]


def test_columns_that_tell_nothing_are_left_out():
    assert [column.key for column in TABLE.of("tsm").columns] == ["name", "speed"]
    assert [column.key for column in TABLE.of("resnet").columns] == ["speed"]
    assert [column.key for column in TABLE.without_empty().columns] == ["name", "speed", "kind"]


def test_csv_has_full_precision_and_every_column():
    rows = list(csv.DictReader(io.StringIO(formats.csv_text(TABLE))))
    assert rows[0] == {"model": "tsm", "name": "a|b <c>", "speed": "1234.5678", "kind": "x"}
    assert rows[1]["speed"] == "" and len(rows) == 3


def test_html_is_escaped():
    text = formats.html(TABLE.of("tsm"))
    assert '<td class="text">a|b &lt;c&gt;</td>' in text and "<c>" not in text
    assert '<td class="number">1234.6</td>' in text and '<td class="number">-</td>' in text


@pytest.mark.parametrize(
    "form, value, text",
    [
        (significant, 0.0, "0"),
        (significant, 0.0036771, "0.003677"),
        (significant, 1.23456, "1.235"),
        (significant, 12.3456, "12.35"),
        (significant, 369.81, "369.81"),
        (significant, 1234.56, "1234.6"),
        (significant, 24183.95, "24184"),
        (significant, 1e15, "1e+15"),
        (percent, 0.7102965, "71.03"),
        (whole_percent, 0.473, "47.3"),
        (gibibytes, 3 << 30, "3.00"),
        (gibibytes, 1e30, "9.313e+20"),
        (digits(2), 29.0196, "29.02"),
        (digits(2), 1e300, "1e+300"),
    ],
)
def test_numbers(form, value, text):
    assert form(value) == text
