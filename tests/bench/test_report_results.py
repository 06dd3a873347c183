"""Statistics, speed-ups, MFU and ratios, their tables, and peaks of accelerators."""

import json

import pytest

from tests.evidence.test_dlperf import PUBLISHED, ranks_of
from tests.helpers.report_runs import speed_events, training_events, write
from zoo.bench.report import runs, tables
from zoo.bench.report.accelerators import memory, peak
from zoo.bench.report.results import group, ratios, speed_up, time_speed_up

REPORT = PUBLISHED["rn50"]  # of MindSpore, fp32, batch 128: case -> samples/s, then average, median and speed-up


def read(tmp_path, *several):
    return [runs.read(write(tmp_path / str(number), events)) for number, events in enumerate(several)]


def test_the_table_of_a_dlperf_report_follows_from_its_runs(tmp_path):
    worlds = [(int(case[0]), ranks_of(case)) for case in REPORT]
    speeds = [(rate, cards, nodes) for (nodes, cards), (rates, _) in zip(worlds, REPORT.values()) for rate in rates]
    found = read(tmp_path, *(speed_events(*speed, framework="mindspore") for speed in speeds))
    results = group(found)
    assert [(r.case.nodes, r.case.cards) for r in results] == worlds
    for result, (rates, printed) in zip(results, REPORT.values()):
        assert result.speeds == rates
        assert (result.speed.median, round(speed_up(result, results), 2)) == printed[1:]


def test_what_was_measured_while_others_computed_is_marked_in_every_table(tmp_path):
    """As zoo bench matrix notes it before each run; the last note of a run counts."""
    folders = [f"resnet/bz128/1n{cards}g/r_{number}" for cards in (1, 2) for number in (1, 2)]
    for folder, rate in zip(folders, (100.0, 101.0, 180.0, 181.0)):
        write(tmp_path / folder, speed_events(rate, cards=int(folder[15])))
    notes = [{"kind": "run", "folder": folder, "busy": True} for folder in folders[1:3]]
    notes.append({"kind": "run", "folder": folders[2], "busy": False})
    (tmp_path / "benchmark.jsonl").write_text("".join(f"{json.dumps(note)}\n" for note in notes) + '{"kind": "r')
    found = [runs.read(path) for path in runs.find(str(tmp_path))]
    shown = {table.name: table for table in tables.build(found, group(found), [])}
    marks = [row["remark"] for row in shown["throughput"].rows]
    assert marks == ["busy before 1 of 2", None]
    assert shown["usage"].rows[0]["remark"].startswith("busy before 1 of 2")
    assert [row["remark"] for row in shown["runs"].rows] == [None, "busy", None, None]
    (first, second) = ([*row.values()][-1] for row in shown["overview"].rows)
    assert first.endswith(") busy before 1 of 2") and second.endswith(")")


def test_speed_ups_that_are_noisy_or_impossible_are_withheld(tmp_path):
    rates = {1: (10.0, 10.1, 10.2), 2: (500.0, 507.0, 510.0), 4: (20.0, 40.0, 80.0), 8: (79.0, 80.0, 81.0)}
    results = group(
        read(tmp_path, *(speed_events(rate, cards) for cards, several in rates.items() for rate in several))
    )
    rows = next(table for table in tables.build([], results, []) if table.name == "throughput").rows
    assert [row["speed_up"] for row in rows] == [1.0, None, None, pytest.approx(80 / 10.1)]
    assert [row["efficiency"] for row in rows][1:3] == [None, None]
    assert [row["remark"] for row in rows] == [
        *(None, "no speed-up: 50.2 is more than 2 cards can give"),
        *("noisy; no speed-up: too noisy", None),
    ]


def test_threads_are_those_of_a_process(tmp_path):
    several = [speed_events(100.0, device=device) for device in ("cpu (2 threads)", "cuda:0 (V100)")]
    assert [result.threads for result in group(read(tmp_path, *several[:1]))] == ["2"]
    assert [result.threads for result in group(read(tmp_path / "gpu", several[1]))] == [None]


def test_mfu_by_hand(tmp_path):
    """1000 samples/s on 4 cards, 8.2e9 operations forward: 3 x 8.2e9 x 250 = 6.15e12 of 125e12 in fp16."""
    found = read(tmp_path, speed_events(1000.0, cards=4, precision="amp", flops_per_sample=8.2e9))
    (result,) = group(found)
    assert result.flops_per_card == pytest.approx(6.15e12) and result.mfu == pytest.approx(6.15 / 125)
    (given,) = group(found, peak_tflops=12.3)
    assert given.mfu == pytest.approx(0.5) and given.peak.source == "--peak-tflops"


def test_a_processor_has_no_mfu_unless_its_peak_is_given(tmp_path):
    events = speed_events(1000.0, device="cpu (2 threads)", flops_per_sample=1e9)
    for host in events[1]["hosts"]:
        host.update(accelerators=[], cpu="Tesla V100-SXM2-16GB")  # a name that must not matter
    found = read(tmp_path, events)
    assert group(found)[0].mfu is None and group(found)[0].flops_per_card == pytest.approx(3e12)
    assert group(found, peak_tflops=6.0)[0].mfu == pytest.approx(0.5)


def test_speed_up_is_relative_to_the_same_batch_per_card_or_the_same_global_batch(tmp_path):
    results = group(read(
        tmp_path,
        speed_events(100.0, batch=32),
        speed_events(150.0, batch=128),
        speed_events(360.0, cards=4, batch=32),  # the same batch per card comes first
        speed_events(120.0, cards=2, batch=16),
        speed_events(130.0, cards=2, batch=17),
        speed_events(999.0, cards=2, batch=32, framework="paddle"),
    ))  # fmt: skip
    found = {(r.case.framework, r.case.cards, r.case.batch): speed_up(r, results) for r in results}
    assert found[("torch", 4, 32)] == pytest.approx(3.6)
    assert found[("torch", 2, 16)] == pytest.approx(1.2)
    assert found[("torch", 2, 17)] is None and found[("paddle", 2, 32)] is None


def test_time2train_and_its_speed_up(tmp_path):
    """40 s on one card and 16 s on two, evaluations of 0.5 and 0.72 and a target of 0.711; all runs must reach it."""
    results = group(read(
        tmp_path,
        training_events(seconds=20.0),
        training_events(seconds=8.0, cards=2),
        training_events((0.1, 0.2), cards=4),
        training_events((0.5, 0.72), cards=4),
    ))  # fmt: skip
    assert [result.time_to_target for result in results] == [40.0, 16.0, None]
    assert [time_speed_up(result, results) for result in results] == [1.0, pytest.approx(2.5), None]


def test_speed_ups_of_training_and_mfu_beyond_what_is_possible_are_withheld(tmp_path):
    slow, fast = training_events(seconds=20.0), training_events(seconds=5.0, cards=2)
    found = read(tmp_path, slow, fast, training_events(seconds=3.0, cards=8))
    shown = {table.name: table.rows for table in tables.build(found, group(found, peak_tflops=1e-9), [])}
    assert [row["time_speed_up"] for row in shown["training"]] == [1.0, None, pytest.approx(20 / 3)]
    assert [row["ips_speed_up"] is None for row in shown["training"]] == [False, True, False]
    assert shown["training"][1]["remark"].startswith("no speed-up by Time2train: 4.0 is more than 2 cards can give; no")
    assert all(row["mfu"] is None and "no MFU: " in row["remark"] for row in shown["usage"])


def test_an_interval_of_a_ratio_that_says_nothing_is_left_out(tmp_path):
    several = [speed_events(rate, framework=name) for name in ("torch", "paddle") for rate in (10.0, 50.0)]
    (ratio,) = ratios(group(read(tmp_path, *several)))
    assert ratio.value == pytest.approx(1.0) and ratio.low is ratio.high is None and "noisy" in ratio.mark


def test_frameworks_are_compared_where_all_else_is_equal(tmp_path):
    (ratio,) = ratios(group(read(
        tmp_path,
        speed_events(100.0, precision="amp"),
        speed_events(102.0, precision="amp"),
        speed_events(80.8, precision="amp", framework="paddle", recipe="other"),
        speed_events(50.0, batch=64, framework="paddle", precision="amp"),
        speed_events(60.0, framework="mindspore", precision="fp32"),
    )))  # fmt: skip
    assert (ratio.case.framework, ratio.base.framework) == ("paddle", "torch")
    assert ratio.value == pytest.approx(0.8) and ratio.low is None
    several = [speed_events(rate * factor, framework=name) for name, factor in (("torch", 2), ("paddle", 1))
               for rate in (50.0, 50.5, 51.0)]  # fmt: skip
    (ratio,) = ratios(group(read(tmp_path, *several)))
    assert ratio.value == pytest.approx(0.5) and 0.4 < ratio.low < 0.5 < ratio.high < 0.6


def build(tmp_path, *several):
    """Return the tables of runs by name."""
    found = [runs.read(write(tmp_path / str(number), events)) for number, events in enumerate(several)]
    results = group(found)
    return {table.name: table.of("resnet") for table in tables.build(found, results, ratios(results))}


def test_columns_name_what_would_be_the_same_without(tmp_path):
    training = training_events(model="resnet", recipe="resnet50_imagenet", protocol="imagenet/224-of-256", batch=128,
                               precision="fp32", compute="fp32", level=None)  # fmt: skip
    several = [
        speed_events(100.0),
        speed_events(90.0, accumulate=2),
        speed_events(80.0, hosts=[], device="cuda:0 (NVIDIA T4)", nodes=1),
        training,
        speed_events(70.0, framework="paddle"),
    ]
    overview = build(tmp_path, *several)["overview"]
    titles = set(overview.titles) - {"nodes", "cards"}
    assert len(titles) == 5 and {70.0, 80.0, 90.0, 100.0} < {value for row in overview.rows for value in row.values()}
    assert all(any(word in title for title in titles) for word in ("accumulate 2", "NVIDIA T4", "paddle"))


@pytest.mark.parametrize(
    "name, compute, tflops, source",  # None: no peak is guessed
    [
        ("Tesla V100-SXM2-16GB", "fp32", 15.7, "fp32"),
        ("Tesla V100-SXM2-16GB", "fp16", 125, "fp16"),
        ("Tesla V100-PCIE-16GB", "fp16", 112, "fp16"),
        ("NVIDIA A100-SXM4-80GB", "fp32", 156, "tf32"),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4, "bf16"),
        ("NVIDIA H100 PCIe", "bf16", 756, "bf16"),
        ("NVIDIA H200", "fp64", 67, "fp64"),
        ("Ascend910A", "fp16", 256, "fp16"),
        ("AMD EPYC 7763", "fp32", None, None),
        ("8 x NVIDIA H100 80GB HBM3", "bf16", None, None),
        ("Tesla V100-SXM2-16GB", "bf16", None, None),
        ("NVIDIA RTX 3090 Ti", "fp16", None, None),
        ("Ascend910B3", "fp16", None, None),
    ],
)
def test_peaks_of_data_sheets(name, compute, tflops, source):
    assert peak(name, compute) == (tflops and (tflops * 1e12, source))


def test_without_tf32_the_peak_is_that_of_fp32_and_a_given_one_counts():
    assert peak("NVIDIA A100-SXM4-80GB", "fp32", tf32=False) == (19.5e12, "fp32")
    assert peak(None, "fp32", override_tflops=0.5) == (0.5e12, "--peak-tflops")


@pytest.mark.parametrize(
    "name, size",
    [
        ("A100", 40),
        ("A100 80 GB", 80),
        ("V100", 16),
        ("NVIDIA H100 80GB HBM3", 80),
        ("H200", 141),
        ("V100 24GB", None),  # none is sold with it
        ("AMD EPYC 7763", None),
    ],
)
def test_memory_of_data_sheets(name, size):
    assert memory(name) == size
