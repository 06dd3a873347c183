"""Ratios are those of the passes, and the lines of the table say what was measured."""

import json

import pytest

from zoo.bench.peers import report
from zoo.bench.peers.contender import BARE, DALI, OURS, Contender
from zoo.bench.peers.passes import Seconds


def rows():
    """A machine that slows down: medians of ratios differ from ratios of medians, 2 from 1 for the bare loop."""
    cpu = {
        ("clips", OURS): (0.1, 0.2, 0.4),
        ("clips", BARE): (0.2, 0.1, 0.8),
        ("packs", OURS): (0.01, 0.02, 0.04),
        ("packs", DALI): (0.02, 0.04, 0.08),
        ("frames", "peer"): (0.05, 0.1, 0.2),
        ("frames", OURS): (0.025, 0.05, 0.1),
    }
    contenders = [Contender(*key, print, print) for key in cpu]
    one_thread = [[Seconds(2 * value, value) for value in values] for values in cpu.values()]
    workers = [[Seconds(value / 2, 1.1 * value) for value in values] for values in cpu.values()]
    return report.rows(contenders, one_thread, workers)


def test_ratios_to_the_own_loader_on_the_same_files():
    measured = json.loads(json.dumps(rows()))
    assert [row["cpu_ratio"] for row in measured] == pytest.approx([1, 2, 1, 2, 2, 1])
    assert [row["ratio"] for row in measured] == pytest.approx([1, 2, 1, 2, 2, 1])
    bare = measured[1]
    assert (bare["cpu_ms"], bare["wall_ms"]) == pytest.approx((200, 400))
    assert (bare["samples_per_s"], bare["worker_cpu_ms"]) == pytest.approx((10, 220))
    assert bare["passes"]["cpu_s"] == [0.2, 0.1, 0.8]


def test_the_table():
    lines = report.table(rows())
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2] == "| clips | this loader | 200 |  | 10.0 |  | 220 |"
    assert lines[3] == "|  | bare loop | 200 | 2.00x | 10.0 | 2.00x | 220 |"


def test_other_files_of_the_same_samples():
    assert report.between_files(rows()) == [
        "packs: 10.0x of this loader on clips, by CPU time",
        "packs: 5.0x of peer on frames, by CPU time",
        "frames: 4.0x of this loader on clips, by CPU time",
    ]
