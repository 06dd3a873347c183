"""Steps are run once, in order; one that fails, hangs or cannot run does not keep the others from running."""

import json

import pytest

from zoo.bench.gpu_checks import execution
from zoo.bench.gpu_checks.results import Results, read_all
from zoo.bench.gpu_checks.step import Step
from zoo.bench.matrix.process import StopSignal


def values(folder):
    return json.loads((folder / "values.json").read_text())


def step(name, program, **fields):
    return Step(name, "group", ("-c", program), **{"seconds": 60.0, "read": values, **fields})


@pytest.fixture
def check(tmp_path):
    """Run steps in a folder; return states by name, the lines, and the names of those that are left."""
    path = tmp_path / "out"

    def run(steps, budget=600.0):
        results, lines = Results(path, {"dry": True}), []
        left = execution.run_all(steps, results, budget, StopSignal(), lines.append)
        results._lock.close()
        return read_all(path, steps), lines, [step.name for step in left]

    run.path = path
    return run


def writing(check, name, value):
    """Return a program that writes a result, and a line to a file that counts its runs."""
    folder = check.path / "runs" / name
    return (
        f"import json; open({str(folder / 'values.json')!r}, 'w').write(json.dumps({value!r})); "
        f"open({str(check.path / 'count')!r}, 'a').write('{name} ')"
    )


def test_what_is_done_is_not_repeated(check):
    steps = [step(name, writing(check, name, {"x": 1})) for name in ("a", "b")]
    found, lines, left = check(steps)
    assert [result["state"] for result in found.values()] == ["done", "done"] and left == []
    assert found["a"]["values"] == {"x": 1} and "a" in lines[0] and '"x": 1' in lines[0]
    again, lines, _ = check(steps)
    assert lines == [] and again == found and (check.path / "count").read_text() == "a b "


def test_a_failure_is_recorded_and_the_rest_goes_on(check):
    bad = "print('one'); print('error: the GPU is on fire'); raise SystemExit(2)"
    steps = [step("bad", bad), step("good", writing(check, "good", {"x": 2}))]
    found, _, _ = check(steps)
    assert found["bad"]["state"] == "failed" and "the GPU is on fire" in found["bad"]["reason"]
    assert found["bad"]["tail"] == ["one", "error: the GPU is on fire"] and found["good"]["state"] == "done"
    assert check(steps)[1] == []  # a failure is not repeated by itself


def test_a_step_that_wrote_nothing_has_failed(check):
    found, _, _ = check([step("silent", "pass")])
    assert found["silent"]["state"] == "failed" and "no result" in found["silent"]["reason"]


def test_an_accepted_exit_code_is_a_result(check):
    program = writing(check, "differs", {"beyond": ["loss"]}) + "; raise SystemExit(1)"
    found, _, _ = check([step("differs", program, accepts=(0, 1))])
    assert found["differs"]["state"] == "done" and found["differs"]["values"] == {"beyond": ["loss"]}
    crashed, _, _ = check([step("crashes", "1 / 0", accepts=(0, 1))])  # Python's own exit code 1
    assert crashed["crashes"]["state"] == "failed" and "ZeroDivisionError" in crashed["crashes"]["reason"]


def test_a_step_that_hangs_is_ended_at_its_limit(check):
    found, _, _ = check([step("hangs", "import time; print('waiting', flush=True); time.sleep(60)", seconds=2.0)])
    assert found["hangs"]["state"] == "failed" and "did not end within 2 s" in found["hangs"]["reason"]
    assert found["hangs"]["seconds"] < 20 and found["hangs"]["tail"] == ["waiting"]


def test_the_budget_ends_a_step_without_a_result(check, monkeypatch):
    monkeypatch.setattr(execution, "MIN_SECONDS", 1.0)
    steps = [step("long", "import time; time.sleep(60)"), step("next", "pass")]
    found, _, left = check(steps, budget=2.0)
    assert found == {} and left == ["long", "next"]
    monkeypatch.setattr(execution, "MIN_SECONDS", 3.0)
    assert check(steps, budget=2.0)[2] == ["long", "next"]


def test_what_cannot_run_is_skipped_until_it_can(check):
    found, lines, _ = check([step("files", "pass", missing="not installed: cv2")])
    assert found["files"]["state"] == "skipped" and lines[0].endswith("skipped: not installed: cv2")
    found, _, _ = check([step("files", writing(check, "files", {}))])
    assert found["files"]["state"] == "done"
