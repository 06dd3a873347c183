"""A folder belongs to one check, and to one program at a time."""

import pytest

from zoo.bench.gpu_checks.results import Results, read_all
from zoo.bench.gpu_checks.step import Step
from zoo.data.errors import UserError

STEP = Step("a", "group", (), 1.0, lambda folder: {})


def test_results_are_kept_by_name(tmp_path):
    results = Results(tmp_path / "out", {"dry": False})
    assert results.get(STEP) is None
    results.put(STEP, {"state": "done"})
    assert results.get(STEP) == {"state": "done"} and read_all(tmp_path / "out", [STEP]) == {"a": {"state": "done"}}
    results.forget(STEP)
    assert results.get(STEP) is None


def test_a_damaged_result_counts_as_none(tmp_path):
    results = Results(tmp_path / "out", {"dry": False})
    (tmp_path / "out/results/a.json").write_text('{"state": ')
    assert results.get(STEP) is None


def test_another_check_or_other_files_are_refused(tmp_path):
    Results(tmp_path / "out", {"dry": False})._lock.close()
    with pytest.raises(UserError, match="choose a new folder"):
        Results(tmp_path / "out", {"dry": True})
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.tex").write_text("")
    with pytest.raises(UserError, match="something else"):
        Results(tmp_path / "other", {"dry": False})
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--out"):
        Results(tmp_path / "file", {"dry": False})


def test_one_program_at_a_time(tmp_path):
    first = Results(tmp_path / "out", {"dry": False})
    with pytest.raises(UserError, match="another check is running"):
        Results(tmp_path / "out", {"dry": False})
    first._lock.close()
    Results(tmp_path / "out", {"dry": False})
