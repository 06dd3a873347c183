"""The list of faults stays true: every fault still applies, and its test exists."""

import ast
from collections import Counter
from functools import cache

import pytest

from tests.helpers.paths import CONFIGS, ROOT
from tests.mutants.fault import Fault, mutated
from tests.mutants.faults import FAULTS
from tests.mutants.jobs import FRAMEWORKS
from tests.mutants.run import problems, sound_key
from tests.mutants.table import PAGE, cell, names, page

MIN_FAULTS = 60


@cache
def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def functions(name):
    return {node.name for node in ast.parse(read(name)).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.key)
def test_a_fault_applies_in_one_place_and_its_test_exists(fault):
    assert compile(mutated(read(fault.file), fault), fault.file, "exec")
    path, _, test = fault.killer.partition("::")
    assert not test or test.partition("[")[0] in functions(path)
    shared = not any(framework in fault.file for framework in FRAMEWORKS)  # planted in the tree of one framework
    assert shared or fault.framework in fault.file
    assert not fault.recipe or (CONFIGS / f"{fault.recipe}_demo.yaml").exists()


def test_names_are_unique_and_no_framework_is_left_out():
    assert [key for key, count in Counter(fault.key for fault in FAULTS).items() if count > 1] == []
    assert {fault.framework for fault in FAULTS} == set(FRAMEWORKS)
    assert len(FAULTS) >= MIN_FAULTS


def test_text_that_is_missing_or_there_twice_is_an_error():
    for old in ("x", "z"):
        with pytest.raises(ValueError, match="a name: the old text occurs . times in file.py, not once"):
            mutated("x = x", Fault("torch", "a name", "file.py", old, "y", "killer"))
    assert mutated("x = 1", Fault("torch", "a name", "file.py", "x", "y", "killer")) == "y = 1"


def test_problems_are_reported():
    """A fault that is not noticed, one whose test crashes, and a test that fails by itself."""
    faults = [Fault("torch", name, "file.py", "", "", killer) for name, killer in zip("abcd", ("k", "k", "k", "l"))]
    results = {sound_key("torch", "k"): "passed", sound_key("torch", "l"): "failed"}
    results.update(zip((fault.key for fault in faults), ("failed", "passed", "error", "failed")))
    rows = {key: {"outcome": outcome, "message": ""} for key, outcome in results.items()}
    assert problems(faults, rows) == [
        "torch: b: k passed",
        "torch: c: k error",
        "torch: d: l fails without the fault: ",
    ]


def test_the_page_has_every_fault():
    """Written by `python -m tests.mutants.run --table`."""
    assert names(read(PAGE)) == [fault.key for fault in FAULTS]


def test_cells_of_the_page():
    fault = Fault("torch", "a name", "file.py", "x", "y", "tests/a.py::test_b", "tsm")
    row = {"outcome": "reported", "what": "update 1: loss of x differs by 1", "cause": "a | b", "named": False}
    assert cell(fault, {"compare torch: a name": row}) == "update 1: loss of x (another file); a \\| b"
    assert cell(fault._replace(recipe=""), {}) == "no" and cell(fault, {}) == ""
    assert cell(fault, {"compare torch: a name": {"outcome": "silent"}}) == "**not reported**"
    assert names(page([fault], {})) == ["torch: a name"]
    written = page([fault], {"compare torch: a name": row})
    assert "Of the 1 that were compared, 1 are reported, and of 0 the file is named." in written
    assert page([fault], {}, written) == written  # without a result, a cell stays as it was
