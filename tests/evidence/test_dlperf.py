"""`python -m evidence dlperf` on logs made from the published results of DLPerf.

PUBLISHED holds what its scripts printed for the runs of MindSpore/resnet50v1.5 and PaddlePaddle/PLSC (READMEs of
github.com/Oneflow-Inc/DLPerf, commits a841997 and 67b8984). The raw logs were not published; those here have the same
lines and give the same speeds.
"""

import json
import random

import pytest

from evidence.__main__ import main

PUBLISHED = {
    "rn50": {  # case: speeds by run, (average, median, speed-up)
        "1n1g": ([371.01, 371.31, 369.02, 369.81, 369.0], (370.03, 369.81, 1.0)),
        "1n2g": ([710.7, 710.68, 709.28, 710.96, 709.78], (710.28, 710.68, 1.92)),
        "1n4g": ([1418.08, 1419.13, 1419.97, 1418.66, 1417.93], (1418.75, 1418.66, 3.84)),
        "1n8g": ([2768.28, 2762.27, 2778.1, 2788.99, 2773.82], (2774.29, 2773.82, 7.5)),
        "2n8g": ([5499.46, 5480.69, 5484.01, 5483.22, 5474.62], (5484.4, 5483.22, 14.83)),
        "4n8g": ([10758.88, 10716.94, 10731.78, 10724.0, 10757.37], (10737.79, 10731.78, 29.02)),
    },
    "r50": {
        "1n1g": ([397.44, 398.05, 398.98, 397.64, 397.78], (397.98, 397.78, 1.0)),
        "1n4g": ([1555.18, 1534.62, 1540.66, 1539.66, 1535.04], (1541.03, 1539.66, 3.87)),
        "1n8g": ([2536.04, 2545.3, 2563.28, 2554.13, 2542.14], (2548.18, 2545.3, 6.4)),
        "2n8g": ([5950.34, 5953.84, 5982.75, 5961.68, 5934.43], (5956.61, 5953.84, 14.97)),
        "4n8g": ([11165.17, 11109.91, 11084.53, 11077.58, 10997.67], (11086.97, 11084.53, 27.87)),
    },
}
BATCH = 128
TRUE_SPEEDUP = 1.1  # of the batches that the script for PLSC leaves out on several cards


def ranks_of(case):
    return int(case[0]) * int(case[2])


def mindspore_log(case, speed, steps=200, group=10):
    """Return the log of a run of `steps` steps with the speed that the script prints."""
    rng = random.Random(0)
    milliseconds = ranks_of(case) * BATCH * group / speed * 1e3
    lines = []
    for epoch in range(1, steps // group + 1):
        of_ranks = [
            [
                f"epoch: {epoch} step: {group}, loss is 6.{rank}",
                f"epoch time: {(milliseconds if epoch > 10 else 9 * milliseconds):.3f} ms, per step time: 1.000 ms",
            ]
            for rank in range(ranks_of(case))
        ]
        rng.shuffle(of_ranks)
        lines += [line for of_rank in of_ranks for line in of_rank]
    return lines


def plsc_log(case, speed, seconds_per_batch=0.5):
    """Return the log of 151 batches; the lines that the script takes on several cards hold `speed`."""
    nodes, ranks = int(case[0]), ranks_of(case)
    lines = []
    for batch in range(0, 151, 10):
        for rank in range(ranks):
            taken = 5 * nodes <= len(lines) < 15 * nodes
            printed = speed if taken or ranks == 1 else speed * TRUE_SPEEDUP
            seconds = batch * seconds_per_batch
            stamp = f"2021-01-11 10:{20 + int(seconds // 60):02}:{int(seconds % 60):02},{int(seconds % 1 * 1000):03}"
            lines.append(
                f"INFO {stamp} entry.py:1020] Pass:0 batch:{batch} lr:0.10000000 loss:35.{rank} qps:{printed:.2f}"
            )
    return lines


def write_logs(folder, model, cases=None):
    make = mindspore_log if model == "rn50" else plsc_log
    for case in cases or PUBLISHED[model]:
        (folder / case).mkdir(parents=True)
        for run, speed in enumerate(PUBLISHED[model][case][0], 1):
            (folder / case / f"{model}_b{BATCH}_fp32_{run}.log").write_text("\n".join(make(case, speed)) + "\n")


def extract(folder, tmp_path, *options):
    out = tmp_path / "out.json"
    assert main(["dlperf", str(folder), "--json", str(out), *map(str, options)]) == 0
    found = json.loads(out.read_text())
    out.unlink()
    return found


@pytest.mark.parametrize("model, options", [("rn50", ("--drop", 100, "--last", 200)), ("r50", ())])
def test_published_rows_to_the_last_digit(model, options, tmp_path, capsys):
    write_logs(tmp_path / "bz128", model)
    published = extract(tmp_path / "bz128", tmp_path, *options)["published"]
    assert published == {
        model: {
            case: {
                "average_speed": average,
                "batch_size_per_device": BATCH,
                "median_speed": median,
                "speedup": speedup,
            }
            for case, (_, (average, median, speedup)) in PUBLISHED[model].items()
        }
    }
    assert f"{PUBLISHED[model]['4n8g'][1][1]:.2f}" in capsys.readouterr().out


def test_mindspore_is_counted_correctly_where_all_ranks_write(tmp_path):
    write_logs(tmp_path / "bz128", "rn50")
    found = extract(tmp_path / "bz128", tmp_path, "--drop", 100, "--last", 200)
    for case, row in found["published"]["rn50"].items():
        assert found["corrected"]["rn50"][case] == pytest.approx(row, abs=0.02)
    assert not any(run["remarks"] for run in found["runs"])


def test_a_log_of_rank_0_alone(tmp_path):
    lines = mindspore_log("1n1g", 100.0)  # a group of 10 steps in 12.8 s, on 8 cards then 800 samples/s
    folder = tmp_path / "bz128" / "1n8g"
    folder.mkdir(parents=True)
    (folder / "rn50_b128_fp32_1.log").write_text("\n".join(lines))
    run = extract(tmp_path / "bz128", tmp_path, "--drop", 100, "--last", 200)["runs"][0]
    assert run["corrected"] == pytest.approx(800.0, rel=1e-6) and run["published"] == 6400.0
    assert "1 of 8 ranks" in run["remarks"][0]


def test_plsc_is_counted_over_the_right_batches(tmp_path):
    write_logs(tmp_path / "bz128", "r50")
    found = extract(tmp_path / "bz128", tmp_path)
    assert found["corrected"]["r50"]["1n1g"]["median_speed"] == 397.78
    true = 2545.3 * TRUE_SPEEDUP
    assert found["corrected"]["r50"]["1n8g"]["median_speed"] == pytest.approx(true, abs=0.01)
    remarks = {run["path"].split("/")[-2]: run["remarks"] for run in found["runs"]}
    assert remarks["1n8g"] == ["the script takes lines of batch 0 (3x), 10 (7x) instead of 60 to 150"]
    assert remarks["1n1g"][0].startswith("the script takes lines of batch 50 (1x)")


def test_without_one_card_the_scripts_write_no_medians(tmp_path, capsys):
    write_logs(tmp_path / "bz128", "rn50", ["1n8g"])
    found = extract(tmp_path / "bz128", tmp_path, "--drop", 100, "--last", 200)
    assert found["published"]["rn50"] == {
        "1n8g": {"average_speed": 2773.82, "batch_size_per_device": BATCH, "speedup": 1.0},
        "1n1g": {"average_speed": {}},
    }
    assert "without a run 1n1g" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, message",
    [
        (["{}/missing"], "no log of DLPerf"),
        (["{}"], "no line of MindSpore's"),
        (["{}"], "other.log: not named"),
        (["{}", "--drop", "3"], "--drop, --last"),
        (["{}", "--drop", "9", "--last", "3"], "--drop, --last"),
    ],
)
def test_what_cannot_be_read(words, message, tmp_path, capsys):
    (tmp_path / "1n1g").mkdir()
    (tmp_path / "1n1g/r50_b128_fp32_1.log").write_text("nothing\n")
    (tmp_path / "1n1g/other.log").write_text("nothing\n")
    assert main(["dlperf", *(word.format(tmp_path) for word in words)]) == 2
    assert message in capsys.readouterr().err
