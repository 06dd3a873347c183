"""Check of a tree: a good one is accepted, every omission or wrong value is named; and the reviewers' table."""

import json
from decimal import Decimal

import pytest

from tests.bench.submission.scales import events, write_run, write_scales
from tests.helpers.paths import ROOT
from zoo.bench.submission.check import Row, check, rows, speedup, summary
from zoo.data.errors import UserError

MODEL = "ACME/linux/tsm"
LOG = f"{MODEL}/log/GPUx8.log"
SYSTEM, CODE, DATA = "ACME/linux/system_information.json", f"{MODEL}/code/README.md", f"{MODEL}/data/README.md"
FIGURES = [  # cards, Time2train, throughput: 3 x 234,619 / 24000.25, 3000.25 and 780.25 s; speed-up
    ["1", "16000.00", "29.33", "71.23", "1.00"],
    ["8", "2000.00", "234.60", "71.23", "8.00"],
    ["32", "520.00", "902.09", "71.23", "30.77"],
]


def replaced(path, old, new):
    """Return a change of a tree: a text in a file."""

    def change(tree):
        text = (tree / path).read_text(encoding="utf-8")
        assert old in text
        (tree / path).write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


def without_line(path, words):
    """Return a change of a tree: the first line with these words is removed."""

    def change(tree):
        lines = (tree / path).read_text(encoding="utf-8").splitlines(True)
        lines.remove(next(line for line in lines if words in line))
        (tree / path).write_text("".join(lines), encoding="utf-8")

    return change


def removed(*paths):
    return lambda tree: [(tree / path).unlink() for path in paths]


def field(name, value):
    """Return a change of a tree: a field of system_information.json; None removes it."""

    def change(tree):
        fields = json.loads((tree / SYSTEM).read_text())
        fields.pop(name)
        (tree / SYSTEM).write_text(json.dumps(fields if value is None else {**fields, name: value}))

    return change


MUTATIONS = {
    "no system_information.json": (removed(SYSTEM), "no submitter/system/system_information.json"),
    "field missing": (field("software_stack", None), "field software_stack is missing"),
    "wrong type": (field("number_of_nodes", "4"), "field number_of_nodes must be an integer"),
    "no number": (field("number_of_nodes", True), "field number_of_nodes must be an integer"),
    "too small": (field("number_of_nodes", 0), "field number_of_nodes is 0"),
    "nothing": (field("hardware_name", " "), "which says nothing"),
    "no size": (field("host_memory_capacity", "much"), "not a size"),
    "a size of zero": (field("host_memory_capacity", "0 GB"), "not a size"),
    "too few accelerators": (field("accelerators_per_node", 4), "16 accelerators, but a log of 32 cards"),
    "unlisted model": (lambda tree: (tree / MODEL).rename(tree / "ACME/linux/arcface"), "AI-Rank lists no model"),
    "no README": (removed(CODE), "code/README.md: is missing"),
    "no data note": (removed(DATA), "data/README.md: no checksum"),
    "other checksum in the note": (replaced(DATA, "37724b", "aaaaaa"), "is not that of the data note"),
    "other samples in the note": (replaced(DATA, "samples: 234619", "samples: 240000"), "avg_ips is"),
    "no logs": (removed(*(f"{MODEL}/log/GPUx{n}.log" for n in (1, 8, 32))), "log: none of GPUx1.log"),
    "a log of noise": (lambda tree: (tree / LOG).write_bytes(bytes(range(256)) * 99), "GPUx8.log: no event"),
    "no target_quality_time": (without_line(LOG, "target_quality_time"), "GPUx8.log: no target_quality_time"),
    "no test_finish": (without_line(LOG, "test_finish"), "GPUx8.log: no test_finish"),
    "other avg_ips": (replaced(LOG, "avg_ips:234.599", "avg_ips:234.700"), "avg_ips is 234.700"),
    "target not reached": (replaced(LOG, "0.71230000", "0.71090000"), "no evaluation reaches the target"),
    "other checksum in the log": (replaced(LOG, "37724b", "bbbbbb"), "is not that of the data note"),
    "other warm-up": (replaced(CODE, "warm-up epochs: 0", "warm-up epochs: 1"), "avg_ips is"),
    "the log of another scale": (
        lambda tree: (tree / LOG).write_bytes((tree / MODEL / "log/GPUx1.log").read_bytes()),
        "GPUx8.log: the same file as GPUx1.log",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_named(name, copied_tree):
    assert check(str(copied_tree)) == []
    change, message = MUTATIONS[name]
    change(copied_tree)
    found = check(str(copied_tree))
    assert any(message in line for line in found), found


def test_a_demo_needs_no_target(copied_tree):
    (copied_tree / "DEMO.md").write_text("# A demo, not a submission\n")
    without_line(LOG, "target_quality_time")(copied_tree)
    field("hardware_name", "not recorded")(copied_tree)
    assert check(str(copied_tree)) == []


def test_other_folders(tmp_path):
    assert len(check(str(tmp_path))) == 1
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match=str(path)):
            rows([str(path)], None)
    with pytest.raises(UserError, match="missing"):
        check(str(tmp_path / "missing"))
    (tmp_path / "a/linux").mkdir(parents=True)
    (tmp_path / "a/linux/system_information.json").write_text("{")
    with pytest.raises(UserError, match="no JSON"):
        check(str(tmp_path))


def cells(found):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in summary(found)[2:]]


def test_the_table_of_a_tree_and_of_runs(good_tree, tmp_path):
    found = rows([str(good_tree)], None)
    assert cells(found) == [["tsm", *row] for row in FIGURES]
    assert speedup(found, found[-1], "samples_per_s") == pytest.approx(24000.25 / 780.25)
    of_runs = rows(list(write_scales(tmp_path).values()), None)
    assert cells(of_runs) == [["tsm (torch, fp16)", *row] for row in FIGURES]


def test_another_target(good_tree):
    assert [row.time_to_train_s for row in rows([str(good_tree)], Decimal("60"))] == [8000, 1000, 260]
    assert [row.time_to_train_s for row in rows([str(good_tree)], Decimal("0.8"))] == [None] * 3


def test_gaps_are_dashes(tmp_path):
    run = write_run(tmp_path / "run", events(8, accuracies=(0.1,))[:-1])
    nothing = write_run(tmp_path / "other", events(8)[:2])
    assert cells(rows([run, nothing], None)) == [
        ["tsm (torch, fp16)", "8", "-", "234.62", "10.00", "-"],
        ["tsm (torch, fp16)", "8", "-", "-", "-", "-"],
    ]
    others = [Row("a", 1, 100.0, 5.0, None, ""), Row("b", 8, 10.0, 50.0, None, "")]
    assert speedup(others, others[1], "time_to_train_s") is None


def test_published_logs(copied_tree):
    """As tests/airank/ORIGIN.txt and the reports have it: percent, counters from 0, no closing lines."""
    for cards, name in ((8, "tsm-pytorch-8gpu-amp-run2"), (32, "tsm-paddle-32gpu-amp")):
        path = copied_tree / f"{MODEL}/log/GPUx{cards}.log"
        path.write_bytes((ROOT / f"tests/airank/{name}.log").read_bytes())
    assert f"{LOG}: no test_finish" in check(str(copied_tree))
    found = {row.cards: row for row in rows([str(copied_tree)], Decimal("0.71"))}
    assert found[8].time_to_train_s == pytest.approx(29802.621, abs=1e-3)
    assert found[8].accuracy_percent == pytest.approx(71.118421)
    assert found[32].time_to_train_s == pytest.approx(5909.337, abs=1e-3)
    assert found[32].samples_per_s == pytest.approx(1786.6, abs=0.1)
