"""The reviewers' table of trees and runs."""

from decimal import Decimal

import pytest

from tests.bench.submission.scales import events, write_run, write_scales
from tests.helpers.paths import ROOT
from zoo.bench.submission.summary import Row, report, rows, speedup, table
from zoo.data.errors import UserError

TABLE = """\
| model | cards | Time2train(sec) | throughput(samples/sec) | accuracy(%) | speed-up |
|---|---:|---:|---:|---:|---:|
| tsm | 1 | 16000.00 | 29.33 | 71.23 | 1.00 |
| tsm | 8 | 2000.00 | 234.60 | 71.23 | 8.00 |
| tsm | 32 | 520.00 | 902.09 | 71.23 | 30.77 |
"""  # 3 x 234,619 / 24000.25, 3000.25 and 780.25 s; 16000 / 2000 and 16000 / 520


def test_the_table_of_a_tree(good_tree):
    found = rows([str(good_tree)], None)
    assert table(found) == TABLE
    last = report(found)[-1]
    assert last["speedup"] == pytest.approx(16000 / 520)
    assert last["speedup_by_throughput"] == pytest.approx(24000.25 / 780.25)
    assert last["source"] == "ACME/linux/tsm/log/GPUx32.log"


def test_the_table_of_runs(tmp_path):
    found = rows(list(write_scales(tmp_path).values()), None)
    assert table(found) == TABLE.replace("| tsm |", "| tsm (torch, fp16) |")


def test_another_target(good_tree):
    found = rows([str(good_tree)], Decimal("60"))
    assert [row.time_to_train_s for row in found] == [8000, 1000, 260]
    assert [row.time_to_train_s for row in rows([str(good_tree)], Decimal("0.8"))] == [None] * 3


def test_gaps_are_dashes(tmp_path):
    run = write_run(tmp_path / "run", events(8, accuracies=(0.1,))[:-1])
    assert table(rows([run], None)).splitlines()[-1] == "| tsm (torch, fp16) | 8 | - | 234.62 | 10.00 | - |"
    nothing = write_run(tmp_path / "other", events(8)[:2])
    assert table(rows([nothing], None)).splitlines()[-1] == "| tsm (torch, fp16) | 8 | - | - | - | - |"


def test_published_logs(copied_tree):
    """As tests/airank/ORIGIN.txt and the reports have it: percent, counters from 0, no closing lines."""
    for cards, name in ((8, "tsm-pytorch-8gpu-amp-run2"), (32, "tsm-paddle-32gpu-amp")):
        path = copied_tree / f"ACME/linux/tsm/log/GPUx{cards}.log"
        path.write_bytes((ROOT / f"tests/airank/{name}.log").read_bytes())
    found = {row.cards: row for row in rows([str(copied_tree)], Decimal("0.71"))}
    assert found[8].time_to_train_s == pytest.approx(29802.621, abs=1e-3)
    assert found[8].accuracy_percent == pytest.approx(71.118421) and found[32].accuracy_percent == pytest.approx(
        71.03, abs=0.01
    )
    assert found[32].time_to_train_s == pytest.approx(5909.337, abs=1e-3)
    assert found[32].samples_per_s == pytest.approx(1786.6, abs=0.1)


def test_precisions_in_names_of_logs_are_kept_apart(copied_tree):
    folder = copied_tree / "ACME/linux/tsm/log"
    for name in ("GPUx1_AMP", "gPUx8-FP32"):
        (folder / f"{name}.log").write_bytes((folder / f"{name[:5]}.log".replace("gPU", "GPU")).read_bytes())
    lines = table(rows([str(copied_tree)], None)).splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == ["| tsm", "| tsm", "| tsm", "| tsm (AMP)", "| tsm (FP32)"]
    assert lines[4].endswith("| 71.23 | - |") and lines[3].endswith("| 71.23 | 1.00 |")


def test_the_speed_up_is_within_a_model():
    found = [Row("a", 1, 100.0, 5.0, None, ""), Row("b", 8, 10.0, 50.0, None, "")]
    assert speedup(found, found[1], "time_to_train_s") is None and speedup(found, found[0], "samples_per_s") == 1


def test_folders_without_a_log(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match=str(path)):
            rows([str(path)], None)
