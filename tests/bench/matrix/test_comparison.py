"""Comparisons of recorded runs: a planted slowdown, equal runs, what cannot be compared."""

import json

import numpy as np
import pytest

from tests.helpers.journals import write_journal
from tests.helpers.speed_runs import noisy_steps, speed_events, write_speed_run
from zoo.bench.matrix import comparison
from zoo.bench.matrix.comparison import read_folder
from zoo.data.errors import UserError

NOISE = 0.004  # of the state of the machine, from run to run


def write_runs(folder, seed, runs=6, factor=1.0, **fields):
    """Write runs of a case whose step takes 80 ms times `factor`."""
    rng = np.random.default_rng(seed)
    for number in range(1, runs + 1):
        steps = noisy_steps(rng, 80 * factor * np.exp(rng.normal(0, NOISE)))
        batch = fields.get("batch", 8)
        write_speed_run(folder / f"{fields.get('framework', 'torch')}_{number}", 1000 * batch / np.mean(steps),
                        steps=steps, **fields)  # fmt: skip


def compare(old, new, paired=False):
    return comparison.compare(read_folder(old, "old"), read_folder(new, "new"), 0.03, paired)


@pytest.mark.parametrize("paired", [False, True])
def test_a_slowdown_of_5_percent_in_one_framework_is_found(tmp_path, paired):
    for framework in ("torch", "paddle", "mindspore"):
        write_runs(tmp_path / "old", len(framework), framework=framework)
        factor = 1.05 if framework == "paddle" else 1.0
        write_runs(tmp_path / "new", 10 + len(framework), factor=factor, framework=framework)
    found = compare(tmp_path / "old", tmp_path / "new", paired)
    assert {row.case.split()[1]: row.verdict.name for row in found.rows} == {
        "torch": "no slowdown",
        "paddle": "slower",
        "mindspore": "no slowdown",
    }
    assert [row.case.split()[1] for row in found.regressions] == ["paddle"]
    text = comparison.lines(found)
    assert "1 slower, 2 not slower by as much" in text[-1]
    as_json = json.loads(json.dumps(comparison.as_json(found)))
    row = next(case for case in as_json["cases"] if "paddle" in case["case"])
    assert row["interval"][0] < row["ratio"] < row["interval"][1] < 1 and row["ratio"] == pytest.approx(
        1 / 1.05, abs=0.01
    )
    assert row["steps_test"]["share"] > 0.6  # in which the newer is slower


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
    assert found.rows == []
    assert [note.split(": ")[1].split(" (")[0] for note in found.notes] == [
        "only in the older runs",
        "only in the newer runs",
        "the protocols differ",
    ]


def test_folders_without_speed_runs_are_refused(tmp_path):
    with pytest.raises(UserError, match="--against .*there is no such folder"):
        read_folder(tmp_path / "none", "--against")
    write_journal(tmp_path / "half", speed_events(100.0)[:-1])
    with pytest.raises(UserError, match="no complete speed run"):
        read_folder(tmp_path, "--against")


def test_a_matrix_with_variants_is_named_by_one_of_them(tmp_path):
    write_runs(tmp_path / "m/base", 1)
    write_runs(tmp_path / "m/slow", 2)
    (tmp_path / "m/matrix.json").write_text(json.dumps({"variants": {"slow": {}}}))
    with pytest.raises(UserError, match="--against .*m/base"):
        read_folder(tmp_path / "m", "--against")
    assert len(read_folder(tmp_path / "m/slow", "--against")) == 1
