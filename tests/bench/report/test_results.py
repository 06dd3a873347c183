"""Statistics, speed-ups, MFU and ratios; DLPerf's published tables from their own runs."""

import pytest

from tests.bench.test_extract import PUBLISHED, ranks_of
from tests.helpers.report_runs import speed_events, training_events, write
from zoo.bench.report import runs, tables
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
    of_dlperf = tables.dlperf(found)["mindspore fp32 batch 128"]["resnet"]
    for result, (case, (rates, printed)) in zip(results, REPORT.items()):
        assert result.speeds == rates
        assert (result.speed.median, round(speed_up(result, results), 2)) == printed[1:]
        assert tuple(of_dlperf[case][key] for key in ("average_speed", "median_speed", "speedup")) == printed
    assert of_dlperf["4n8g"]["batch_size_per_device"] == 128


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


def test_runs_that_are_not_complete_do_not_count(tmp_path):
    assert group(read(tmp_path, speed_events(100.0), speed_events(900.0)[:-1]))[0].speeds == [100.0]


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


def test_cases_are_sorted_by_numbers_and_frameworks_in_their_usual_order(tmp_path):
    found = read(tmp_path, *(speed_events(1.0, cards=cards, framework=name)
                             for name in ("mindspore", "torch") for cards in (16, 2)))  # fmt: skip
    assert [(r.case.framework, r.case.cards) for r in group(found)] == [
        ("torch", 2), ("torch", 16), ("mindspore", 2), ("mindspore", 16)]  # fmt: skip
