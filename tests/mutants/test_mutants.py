"""Every planted fault still applies; the unit tests notice those of a sample, and `zoo compare` reports them.

`python -m tests.mutants.run` tries them all, with --compare the reports.
"""

import importlib.util
from collections import Counter

import pytest

from tests.mutants import comparison
from tests.mutants.fault import FRAMEWORKS, SHARED, Fault, find_file, find_test, read_table
from tests.mutants.run import problems, run, sound_key

MIN_FAULTS = 250
MIN_REPORTED, MIN_NAMED = 0.95, 0.8
SAMPLE = 12  # every twelfth fault is tried


def missing(*names):
    return [name for name in names if importlib.util.find_spec(name) is None]


def test_every_fault_applies_in_one_place_and_its_test_exists():
    wrong = []
    for fault in read_table():
        try:
            path = find_file(fault)
            compile(path.read_text(encoding="utf-8").replace(fault.old, fault.new), path, "exec")
            find_test(fault.test)
        except (ValueError, SyntaxError) as error:
            wrong.append(str(error))
    assert wrong == []


def test_names_are_unique_and_no_framework_is_left_out():
    assert [key for key, count in Counter(fault.key for fault in read_table()).items() if count > 1] == []
    assert {fault.framework for fault in read_table()} == set(FRAMEWORKS)
    assert len(read_table()) >= MIN_FAULTS


def test_problems_are_reported():
    """A fault that is not noticed, one whose test crashes, and a test that fails by itself."""
    faults = [Fault("torch", name, "", "", test) for name, test in zip("abcd", ("k", "k", "k", "l"))]
    results = {sound_key("torch", "k"): "passed", sound_key("torch", "l"): "failed"}
    results.update(zip((fault.key for fault in faults), ("failed", "passed", "error", "failed")))
    rows = {key: {"outcome": outcome, "message": ""} for key, outcome in results.items()}
    lines = problems(faults, rows)
    assert [line.split(": ")[1] for line in lines] == ["b", "c", "d"] and "without the fault" in lines[2]


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_faults_are_noticed(framework):
    if missing("torch" if framework == SHARED else framework):
        pytest.skip(f"{framework} is not installed")
    faults = [fault for fault in read_table() if fault.framework == framework][::SAMPLE]
    assert problems(faults, run(faults)) == []


@pytest.mark.slow
@pytest.mark.skipif(bool(missing(*comparison.COMPARED)), reason="compares all frameworks")
def test_faults_are_reported_with_their_file():
    """Every 32nd of those that need options, which are not compared with slow frameworks."""
    faults = [fault for fault in read_table() if fault.recipe and fault.options and fault.framework != "mindspore"]
    faults = faults[::32]
    assert len(faults) >= 4
    silent, unnamed, alarms = comparison.misses(faults, comparison.compare(faults))
    assert alarms == []
    assert len(silent) <= (1 - MIN_REPORTED) * len(faults), "\n".join(silent)
    assert len(silent) + len(unnamed) <= (1 - MIN_NAMED) * len(faults), "\n".join(silent + unnamed)
