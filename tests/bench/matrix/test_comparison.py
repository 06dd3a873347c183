"""Comparisons of recorded runs: a slowdown, too few runs, what cannot be compared."""

import json

import numpy as np
import pytest

from tests.helpers.journals import write_journal
from tests.helpers.speed_runs import speed_events, write_speed_run
from zoo.bench.matrix import comparison
from zoo.bench.matrix.comparison import read_folder
from zoo.data.errors import UserError


def write_runs(folder, seed, runs=6, factor=1.0, **fields):
    """Write runs of a case with 100 / factor samples/s, give or take 0.4 %."""
    rng = np.random.default_rng(seed)
    for number in range(1, runs + 1):
        name = f"{fields.get('framework', 'torch')}_{number}"
        write_speed_run(folder / name, 100 / factor * np.exp(rng.normal(0, 0.004)), **fields)


def compare(old, new, paired=False):
    return comparison.compare(read_folder(old, "old"), read_folder(new, "new"), 0.03, paired)


@pytest.mark.parametrize("paired", [False, True])
def test_a_slowdown_of_5_percent_is_found_and_written(tmp_path, paired):
    write_runs(tmp_path / "old", 1)
    write_runs(tmp_path / "new", 2, factor=1.05)
    found = compare(tmp_path / "old", tmp_path / "new", paired)
    (row,) = json.loads(json.dumps(comparison.as_json(found)))["cases"]
    assert row["verdict"] == "slower" and row["ratio"] == pytest.approx(1 / 1.05, abs=0.01)
    assert row["interval"][0] < row["ratio"] < row["interval"][1] < 1


def test_too_few_runs(tmp_path):
    write_runs(tmp_path / "old", 1, runs=3)
    write_runs(tmp_path / "new", 2, runs=3, factor=1.3)
    found = compare(tmp_path / "old", tmp_path / "new")
    assert found.rows[0].verdict == ("cannot tell", 4)  # three runs of each have no significant order
    assert "cannot tell: needs about 4 runs of each" in comparison.lines(found)[1]
    write_runs(tmp_path / "one", 3, runs=1)
    found = compare(tmp_path / "old", tmp_path / "one")
    assert found.rows[0].verdict == ("cannot tell", 4) and found.rows[0].ratio is None
    assert "3/1" in comparison.lines(found)[1]


def test_what_is_not_compared_is_named(tmp_path):
    write_runs(tmp_path / "old", 1)
    write_runs(tmp_path / "old", 1, framework="paddle")
    write_runs(tmp_path / "new", 2, protocol="k400/8x1x1@224")
    write_runs(tmp_path / "new", 2, framework="mindspore")
    found = compare(tmp_path / "old", tmp_path / "new")
    reasons = ["only in the older", "only in the newer", "the protocols differ"]
    assert found.rows == [] and all(reason in note for reason, note in zip(reasons, found.notes, strict=True))


def test_folders_without_speed_runs_of_one_variant_are_refused(tmp_path):
    with pytest.raises(UserError, match="--against .*there is no such folder"):
        read_folder(tmp_path / "none", "--against")
    write_journal(tmp_path / "half", speed_events(100.0)[:-1])
    with pytest.raises(UserError, match="no complete speed run"):
        read_folder(tmp_path, "--against")
    (tmp_path / "matrix.json").write_text(json.dumps({"variants": {"slow": {}}}))
    with pytest.raises(UserError, match="--against .*base"):
        read_folder(tmp_path, "--against")
