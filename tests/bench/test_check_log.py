"""`zoo airank log` on published logs (tests/airank/ORIGIN.txt) and on logs with deviations."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from zoo import cli
from zoo.bench.airank_log import deviations, measure, parse

LOGS = Path(__file__).resolve().parents[1] / "airank"

# file, evaluations, counters, best, at, target, declared and recomputed time to it, total time, avg_ips
VALUES = """
tsm-pytorch-1gpu-amp            2  0..1           48.188259          1       70.0 - - - -
tsm-pytorch-1gpu-fp32           2  0..1           48.436235          1       70.0 - - - -
tsm-pytorch-8gpu-amp            31 0..30          70.121457          30      70.0 23711.15 23711.152 - -
tsm-pytorch-8gpu-fp32           29 0..28          70.070850          28      70.0 34883.65 34883.646 - -
tsm-pytorch-1gpu-amp-run2       0  -              -                  -       71.0 - - - -
tsm-pytorch-8gpu-amp-run2       47 0..46          71.118421          46      71.0 29802.62 29802.621 - -
tsm-paddle-1gpu-amp             0  -              -                  -       0.710 - - - -
tsm-paddle-8gpu-amp             46 1..46          0.7100374425611188 46      0.710 22549.332193613052 22549.332 - -
tsm-paddle-32gpu-amp            45 1..45          0.710296474970304  45      0.710 5909.337284326553 5909.337 - -
deeplabv3plus-pytorch-8gpu-fp16 8  86..688        78.6               688     78.5 - 44338.457 44338.456 4.7
deeplabv3plus-paddle-1gpu-fp16  0  -              -                  -       78.5 - - - -
deeplabv3plus-paddle-32gpu-fp16 45 1.08..48.40    79.13218140602112  48.40   78.5 3279.83 3276.446 3279.83 43.90
hrnet-paddle-1gpu-bs8           0  -              -                  -       78.0 - - - -
hrnet-paddle-8gpu-bs8           49 43.03..2108.24 79.3072760105133   2108.24 78.0 82322.66 82320.861 82322.66 76.19
hrnet-paddle-32gpu-bs4          80 4.30..344.20   78.28779816627502  344.20  78.0 22300.63 22299.157 22300.63 45.92
hrnet-pytorch-1gpu-bs8          0  -              -                  -       78.0 - - 74.81765532493591 10
hrnet-pytorch-1gpu-fp16         0  -              -                  -       78.0 - - 325.2171633243561 6
bert-pytorch-32gpu-fp16.excerpt 49 1..9680 0.7120622396469116 9680 0.712 - 427159.639 427159.6386215687 15020.90
"""

GOOD = """\
AI-Rank-log 1700000000.000000 load_data, checksum:37724b19b6e5d41f9f147936d60b3c29
AI-Rank-log 1700000001.000000 test_begin
AI-Rank-log 1700000011.000000 eval_accuracy:0.50000000, total_epoch_cnt:1
AI-Rank-log 1700000021.000000 eval_accuracy:0.71100000, total_epoch_cnt:2
AI-Rank-log 1700000021.000000 target_quality_time:20.000000sec
AI-Rank-log 1700000031.000000 eval_accuracy:0.70000000, total_epoch_cnt:3
AI-Rank-log 1700000031.500000 test_finish
AI-Rank-log 1700000031.500000 total_use_time:30.500000sec
AI-Rank-log 1700000031.500000 avg_ips:98.361images/sec
"""  # 3 epochs of 1000 samples in 30.5 s
TARGET = Decimal("0.711")


def log(name):
    with open(LOGS / f"{name}.log", encoding="utf-8") as file:
        return parse(file)


def strict(text, target=TARGET, samples=1000, warmup=0):
    return deviations(parse(text.splitlines()), target, samples, warmup)


def number(text):
    return None if text == "-" else float(text)


@pytest.mark.parametrize("row", VALUES.strip().splitlines(), ids=lambda row: row.split()[0])
def test_values_computed_by_hand(row):
    name, evaluations, counters, best, at, target, declared, recomputed, total, ips = row.split()
    got = measure(log(name), Decimal(target))
    assert got["kind"] == "training" and got["evaluations"] == int(evaluations)
    assert got["counters"] == (None if counters == "-" else counters)
    assert (got["best"], got["best_counter"]) == (number(best), number(at))
    assert got["target_quality_time"] == number(declared) and got["total_use_time"] == number(total)
    assert got["avg_ips"] == number(ips)
    assert got["time_to_target"] == pytest.approx(number(recomputed), abs=6e-4)
    assert deviations(log(name), Decimal(target))  # none of them follows every rule


@pytest.mark.parametrize(
    "path", sorted(LOGS.glob("noise-*.log")) + sorted(LOGS.glob("inference-*.log")), ids=lambda path: path.name
)
def test_other_text_and_inference_have_no_events(path):
    found = log(path.name[:-4])
    kind = "inference" if path.name.startswith("inference") else "other"
    assert found.events == [] and found.kind == kind
    assert measure(found, TARGET)["evaluations"] == 0 and len(deviations(found, TARGET)) == 1


@pytest.mark.parametrize(
    "name, samples, ips",
    [
        ("tsm-paddle-8gpu-amp", 234619, 478.6),
        ("tsm-paddle-32gpu-amp", 234619, 1786.6),
        ("tsm-pytorch-8gpu-amp", 234584, 306.7),
        ("tsm-pytorch-8gpu-fp32", 234584, 195.0),
        ("deeplabv3plus-pytorch-8gpu-fp16", 2975, 46.2),
        ("deeplabv3plus-paddle-32gpu-fp16", 2975, 43.9),
        ("hrnet-paddle-8gpu-bs8", 2975, 76.19),
    ],
)
def test_throughput_by_definition(name, samples, ips):
    """A counter from 0 means one epoch more, and without test_finish the last evaluation ends the run."""
    assert measure(log(name), None, samples)["samples_per_s"] == pytest.approx(ips, abs=0.06)


def test_the_published_target_is_missed_by_logs_that_declare_one():
    for name in ("tsm-paddle-8gpu-amp", "tsm-paddle-32gpu-amp", "tsm-pytorch-8gpu-amp", "tsm-pytorch-8gpu-fp32"):
        assert measure(log(name), TARGET)["time_to_target"] is None
        assert any("no evaluation reaches the target 0.711" in line for line in deviations(log(name), TARGET))
    assert measure(log("tsm-pytorch-8gpu-amp-run2"), TARGET)["target_epoch"] == 47


def test_a_log_that_follows_the_rules():
    assert strict(GOOD) == []
    got = measure(parse(GOOD.splitlines()), TARGET, 1000)
    assert got["time_to_target"] == got["target_quality_time"] == 20 and got["target_epoch"] == 2
    assert got["best"] == 0.711 and got["total_time"] == got["total_use_time"] == 30.5
    assert got["samples_per_s"] == pytest.approx(3000 / 30.5) and got["checksum"].startswith("37724b")


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("AI-Rank-log 1700000001", "INFO: AI-Rank-log 1700000001", "other text in front"),
        ("001.000000 test_begin", "001.000000  test_begin", "blanks"),
        ("001.000000 test_begin", "001 test_begin", "blanks"),
        ("eval_accuracy:0.50000000", "eval_accuracy: 0.50000000", "blanks"),
        ("eval_accuracy:0.50000000", "eval_accuracy:5e-1", "blanks"),
        ("images/sec", "samples/sec", "units"),
        ("cnt:1\n", "cnt:1Epoch 2\n", "directly behind the event"),
        ("test_begin\n", "test_begin\nAI-Rank-log eta: 1:00 loss: 2\n", "without a time stamp"),
        ("37724b19b6e5d41f9f147936d60b3c29", "xxxx", "checksum is xxxx"),
        (", checksum:37724b19b6e5d41f9f147936d60b3c29", "", "checksum is missing"),
        ("cnt:1\n", "cnt:0\n", "does not go 1, 2, 3"),
        ("cnt:3\n", "cnt:4\n", "does not go 1, 2, 3"),
        ("cnt:2\n", "cnt:1\n", "does not rise"),
        ("total_epoch_cnt:1", "global_step:1", "global_step"),
        ("0.50000000", "50.000000", "percent"),
        ("0.50000000", "nan", "not a number"),
        ("0.50000000", "5e-99999999999999999999", "line 3: the accuracy is not a number"),
        ("cnt:2", "cnt:" + 20 * "9", "line 4: total_epoch_cnt is not a number that can be meant"),
        ("avg_ips:98.361", "avg_ips:1e99999999999999999999", "avg_ips is not a number that can be meant"),
        ("total_use_time:30.500000", "total_use_time:1e30", "total_use_time is not a number that can be meant"),
        ("0.71100000", "0.71099999", "no evaluation reaches the target"),
        ("0.50000000", "0.80000000", "is not right behind it"),
        ("target_quality_time:20.000000", "target_quality_time:20.002", "20.002 s, by the time stamps 20"),
        ("target_quality_time:20.000000", "target_quality_time:20.01", "20.01 s, by the time stamps 20"),
        ("total_use_time:30.500000", "total_use_time:30.498", "by the time stamps 30.5"),
        ("avg_ips:98.361", "avg_ips:100.000", "by definition 98.361"),
        ("1700000021.000000 eval", "1700000005.000000 eval", "is before that of line 3"),
        ("1700000011.000000 eval", "1700000001.020000 eval", "made by hand"),
    ],
)
def test_every_rule_is_checked(old, new, message):
    assert old in GOOD
    found = strict(GOOD.replace(old, new, 1))
    assert any(message in line for line in found), found


@pytest.mark.parametrize(
    "first, second, message",
    [
        (0, 1, "load_data comes after"),
        (6, 7, "test_finish comes after"),
        (4, 5, "not right behind"),
        (3, 4, "not right behind"),
    ],
)
def test_swapped_lines(first, second, message):
    lines = GOOD.splitlines(True)
    lines[first], lines[second] = lines[second], lines[first]
    assert any(message in line for line in strict("".join(lines)))


def test_target_and_samples_are_checked_only_if_given():
    wrong = GOOD.replace("avg_ips:98.361", "avg_ips:1").replace("0.71100000", "0.60000000")
    assert strict(wrong, target=None, samples=None) == []
    assert len(strict(wrong)) == 2
    assert strict(GOOD.replace("AI-Rank-log 1700000021.000000 target_quality_time:20.000000sec\n", "")) == [
        "line 4 reaches the target 0.711, but target_quality_time is not right behind it"
    ]


def test_a_warm_up_that_ends_between_evaluations_is_counted_from_the_last_one_in_it():
    text = GOOD.replace("cnt:1\n", "cnt:0.750000\n").replace("cnt:2\n", "cnt:1.500000\n")
    text = text.replace("cnt:3\n", "cnt:2.250000\n").replace("98.361", "73.171")  # 1.5 epochs of 1000 in 20.5 s
    assert strict(text, warmup=1) == [] and strict(text)
    assert measure(parse(text.splitlines()), None, 1000, 1)["samples_per_s"] == pytest.approx(1500 / 20.5)


def test_the_decimals_of_the_counter_bound_the_error_of_avg_ips():
    coarse = GOOD.replace("cnt:3\n", "cnt:2.67\n")  # rounded from 2.666...: 87.432, 0.1 % less than by the counter
    assert strict(coarse.replace("98.361", "87.432")) == []
    fine = GOOD.replace("cnt:3\n", "cnt:2.666667\n")
    assert strict(fine.replace("98.361", "87.432")) == []
    assert strict(fine.replace("98.361", "87.450")) == ["avg_ips is 87.450, by definition 87.432"]


def test_two_ranks_on_one_line():
    line = "AI-Rank-log 1700000001.0 test_begin- AI-Rank-log 1700000011.0 eval_accuracy:0.5, total_epoch_cnt:1"
    assert [event.name for event in parse([line]).events] == ["test_begin", "eval_accuracy"]


def test_full_width_colons_and_any_blanks():
    found = parse(["x\ty - AI-Rank-log\t1700000011.5   eval_accuracy ： 1.1e-05 , total_epoch_cnt : 3\r\n"]).events[0]
    assert (found.value, found.counter, found.time) == (Decimal("1.1e-05"), 3, Decimal("1700000011.5"))


def run(capsys, *arguments):
    code = cli.main(["airank", "log", *map(str, arguments)])
    return code, capsys.readouterr()


def test_exit_codes_and_json(tmp_path, capsys):
    path, published = tmp_path / "airank.log", LOGS / "tsm-paddle-8gpu-amp.log"
    path.write_text(GOOD, encoding="utf-8")
    code, out = run(capsys, path, "--target", "0.711", "--samples", 1000)
    assert code == 0 and "deviates: nowhere" in out.out and "time_to_target      20\n" in out.out
    assert run(capsys, path, "--target", "0.8")[0] == 1
    code, out = run(capsys, path, published, "--json")
    reports = json.loads(out.out)
    assert code == 1 and [report["file"] for report in reports] == [str(path), str(published)]
    assert reports[1]["best"] == 0.7100374425611188 and "no test_finish" in reports[1]["deviations"]
    for bad in ([tmp_path / "missing.log"], [tmp_path]):
        code, out = run(capsys, *bad)
        assert code == 2 and out.err.startswith("error: ") and len(out.err.splitlines()) == 1
