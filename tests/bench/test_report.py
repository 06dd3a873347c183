"""tools/report.py: from folders and logs to tables, and what it does with bad input."""

import copy
import csv
import json
import random
from pathlib import Path

import pytest

from tests.bench.report.runs import speed_events, training_events, write
from tests.helpers.journals import full_begin, full_load
from zoo.bench.commands import report
from zoo.bench.commands.report import main

LOGS = Path(__file__).resolve().parents[1] / "airank"
HUGE = (
    float("nan"),
    float("inf"),
    -1,
    0,
    1e308,
    -1e308,
    10**400,
    "x",
    None,
    [],
    {},
    True,
    [1],
    {"all": [None]},
    "9" * 5000,
)


@pytest.fixture
def matrix(tmp_path):
    """Three repeats each on one card and on two, in two frameworks."""
    folder = tmp_path / "matrix"
    for name, factor in (("torch", 1.0), ("paddle", 0.8)):
        for cards in (1, 2):
            for run, noise in enumerate((0.99, 1.0, 1.02), 1):
                rate = 100.0 * factor * noise * (1 if cards == 1 else 1.8)
                path = folder / name / "resnet/bz128" / f"1n{cards}g" / f"resnet_b128_fp32_{run}"
                write(path, speed_events(rate, cards, framework=name, flops_per_sample=1e9))
    return folder


def test_a_matrix_as_markdown_csv_and_json(matrix, tmp_path, capsys):
    arguments = [
        "--json",
        str(tmp_path / "out/r.json"),
        "--csv",
        str(tmp_path / "csv"),
        "--markdown",
        str(tmp_path / "r.md"),
    ]
    assert main([str(matrix), *arguments]) == 0
    printed = capsys.readouterr().out
    assert "| 1 | 100.00 | 80.00 |" in printed and "| 2 | 180.00 | 144.00 |" in printed
    assert (tmp_path / "r.md").read_text() == printed
    found = json.loads((tmp_path / "out/r.json").read_text())
    torch_2 = found["tables"]["throughput"][1]
    assert (torch_2["median"], torch_2["least"], torch_2["most"], torch_2["runs"]) == (
        180.0,
        pytest.approx(178.2),
        pytest.approx(183.6),
        3,
    )
    assert torch_2["mean"] == pytest.approx(180.6) and torch_2["cv"] == pytest.approx(0.015275 * 180 / 180.6, rel=1e-3)
    assert torch_2["speed_up"] == pytest.approx(1.8) and torch_2["efficiency"] == pytest.approx(0.9)
    assert torch_2["low"] < 180 < torch_2["high"]
    usage = found["tables"]["usage"][1]
    assert usage["tflops"] == pytest.approx(0.27) and usage["mfu"] == pytest.approx(0.27 / 15.7)  # 3 x 1e9 x 180 / 2
    assert [row["ratio"] for row in found["tables"]["ratios"]] == [pytest.approx(0.8)] * 2
    assert found["dlperf"]["torch fp32 batch 128"]["resnet"]["1n2g"]["speedup"] == 1.8 and found["warnings"] == []
    with open(tmp_path / "csv/throughput.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["median"]) for row in rows] == [100.0, 180.0, 80.0, 144.0]
    assert {path.stem for path in (tmp_path / "csv").iterdir()} == {"overview", "throughput", "usage", "ratios", "runs"}


def test_a_training_run_has_a_row_as_in_the_summary_of_ai_rank(tmp_path, capsys):
    one, two = (write(tmp_path / str(c), training_events(seconds=20.0 / c, cards=c)) for c in (1, 2))
    assert main([one, two, "--json", str(tmp_path / "r.json")]) == 0
    first, second = json.loads((tmp_path / "r.json").read_text())["tables"]["training"]
    assert (first["time_to_target"], second["time_to_target"]) == (40.0, 20.0)
    assert (second["time_speed_up"], second["time_efficiency"]) == (2.0, 1.0)
    assert first["avg_ips"] == pytest.approx(3000 / 60.5) and second["ips_speed_up"] == pytest.approx(60.5 / 30.5)
    assert (first["accuracy"], first["target"], first["reached"]) == (0.72, 0.711, "1 of 1")
    assert "speed-up by Time2train" in capsys.readouterr().out


def test_a_page_and_plots(matrix, tmp_path):
    pytest.importorskip("matplotlib")
    write(matrix / "killed", training_events()[:-1])
    assert (
        main([str(matrix), "--html", str(tmp_path / "r.html"), "--png", str(tmp_path / "png"), "--title", "A & B"]) == 0
    )
    text = (tmp_path / "r.html").read_text()
    assert "<h1>A &amp; B</h1>" in text and text.count("<svg") == 5 and "1 of 13 runs are not complete" in text
    names = {"resnet-throughput", "resnet-scaling", "resnet-steps", "tsm-loss", "tsm-metric"}
    images = {path.stem: path.read_bytes() for path in (tmp_path / "png").iterdir()}
    assert set(images) == names and all(data.startswith(b"\x89PNG") for data in images.values())


def test_without_matplotlib_plots_are_refused_before_anything_is_read(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["/nowhere", "--html", "x.html"]) == 2
    assert "plots need matplotlib: pip install '.[plot]'" in capsys.readouterr().err


def test_unfinished_runs_are_listed_with_their_state(tmp_path, capsys):
    write(tmp_path / "ok", training_events())
    write(tmp_path / "killed", training_events()[:-1])
    write(tmp_path / "failed", [full_load(), full_begin()])
    (tmp_path / "failed.log").write_text("error: the loss is not finite\n")
    write(tmp_path / "empty", [])
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "3 of 4 runs are not complete" in printed
    states = {
        "ok": "complete | -",
        "killed": "incomplete | step 300 of 750",
        "empty": "incomplete | it has not begun",
        "failed": "failed | step 0 of 750: error: the loss is not finite",
    }
    for path, state in states.items():
        assert f"| {tmp_path}/{path} | {state}" in printed


def test_runs_whose_method_changed_in_a_resume_are_listed_but_do_not_count(tmp_path, capsys):
    write(tmp_path / "whole", training_events())
    events = training_events(accuracies=(0.9, 0.9, 0.9))
    optimizer = {**full_begin(batch=10)["optimizer"], "lr": 0.5}
    events.insert(5, {"event": "resume", "time": 121.0, "step": 100, "framework": "paddle", "optimizer": optimizer})
    write(tmp_path / "other", events)
    assert main([str(tmp_path), "--json", str(tmp_path / "r.json")]) == 0
    printed = capsys.readouterr().out
    assert "> 1 of 2 runs are mixed, resumed with other settings, and left out of the statistics: see Runs" in printed
    assert "are not complete" not in printed
    assert f"| {tmp_path}/other | mixed | resumed with another framework, optimizer.lr |" in printed
    (row,) = json.loads((tmp_path / "r.json").read_text())["tables"]["training"]
    assert (row["accuracy"], row["runs"]) == (0.72, 1)


def test_only_unfinished_runs(tmp_path, capsys):
    write(tmp_path / "empty", [])
    assert main([str(tmp_path)]) == 0 and "it has not begun" in capsys.readouterr().out


def test_different_protocols_are_refused_unless_forced(tmp_path, capsys):
    write(tmp_path / "a", training_events())
    write(tmp_path / "b", training_events(protocol="k400/8x10x3@256"))
    assert main([str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "different protocols" in captured.err and "k400/8x10x3@256" in captured.err
    assert main([str(tmp_path), "--force"]) == 0
    assert "> NOT COMPARABLE, forced" in capsys.readouterr().out


def test_an_unfinished_run_of_another_protocol_does_not_matter(tmp_path):
    write(tmp_path / "a", training_events())
    write(tmp_path / "b", training_events(protocol="other")[:-1])
    assert main([str(tmp_path)]) == 0


def test_a_result_above_the_peak_is_a_warning(matrix, capsys):
    assert main([str(matrix), "--peak-tflops", "0.25"]) == 0
    warning = "> the MFU of resnet with torch, fp32, 1 cards is above 100 %"
    assert capsys.readouterr().out.startswith(warning)  # 3 x 1e9 x 100 of 0.25e12
    assert main([str(matrix), "--peak-tflops", "0.31"]) == 0
    assert "above 100 %" not in capsys.readouterr().out


def test_logs_of_others_beside_runs(capsys):
    paths = [str(LOGS / f"tsm-paddle-{cards}gpu-amp.log") for cards in (8, 32)]
    assert main([*paths, "--target", "0.71", "--samples", "234619"]) == 0
    printed = capsys.readouterr().out
    assert "| paddle | amp | 8 | 22549 | 478.62 | 71.00 | 71.00 | 1 of 1 | 46 | 1 |" in printed
    assert "| paddle | amp | 32 | 5909.3 | 1786.6 | 71.03 | 71.00 | 1 of 1 | 45 | 1 |" in printed


def test_a_run_that_is_named_twice_counts_once(matrix, capsys):
    run = str(matrix / "torch/resnet/bz128/1n1g/resnet_b128_fp32_1")
    assert main([run, run + "/", str(Path(run).parent)]) == 0
    assert "| 3 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["missing"], "missing does not exist; give the folder of a run"),
        (["."], ". holds no run: no events.jsonl"),
        (["run/events.jsonl"], "is the journal of a run; give its folder, run"),
        (["run", "--peak-tflops", "0"], "--peak-tflops: must be a number above 0, not 0.0"),
        (["run", "--peak-tflops", "nan"], "--peak-tflops: must be a number above 0, not nan"),
        (["run", "--samples", "-1"], "--samples: must be a number above 0, not -1"),
        (["run", "--target", "71"], "--target: must be a fraction, such as 0.711, not 71"),
        (["run", "--json", "run"], "cannot be written: Is a directory"),
        (["run", "--csv", "run/events.jsonl"], "run/events.jsonl cannot be written"),
    ],
)
def test_bad_arguments(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if arguments[0] != ".":
        write(tmp_path / "run", training_events())
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def mutate(lines, rng):
    """Damage a journal in one of several ways."""
    lines = list(lines)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(lines))
        kind = rng.randrange(7)
        if kind == 0:
            lines[place] = lines[place][: rng.randrange(len(lines[place]) + 1)]
        elif kind == 1:
            del lines[place]
        elif kind == 2:
            lines.insert(rng.randrange(len(lines) + 1), lines[place])
        elif kind == 3:
            at = rng.randrange(len(lines[place]) + 1)
            lines[place] = lines[place][:at] + rng.choice('0123456789eE.-+"{}[],:\x00é') + lines[place][at + 1 :]
        else:
            lines[place] = damaged_line(lines[place], rng)
        lines = lines or [""]
    return lines


def damaged_line(line, rng):
    try:
        return json.dumps(damaged(json.loads(line), rng))
    except (ValueError, TypeError, IndexError, KeyError):  # damaged already
        return line


def damaged(event, rng):
    """Replace, remove or rename a value anywhere in an event."""
    event = copy.deepcopy(event)
    holder = event
    while True:
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        if isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.8:
            holder = holder[key]
            continue
        if rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = rng.choice(HUGE)
        return event


def valid_lines(events):
    return [json.dumps(event) for event in events]


def test_mutated_journals_never_crash(tmp_path, capsys):
    """500 damaged journals, each beside a good one: tables and JSON are made, or different protocols are refused."""
    rng = random.Random(0)
    resumed = [*training_events(), {**full_begin(), "event": "resume", "time": 300, "step": 100, "path": "x"}]
    speed = speed_events(100.0, cards=2, step_ms=[5.0, 6.0, 7.0])
    originals = [valid_lines(events) for events in (training_events(), speed, resumed)]
    good = write(tmp_path / "good", training_events())
    refused = 0
    for number in range(500):
        lines = mutate(rng.choice(originals), rng)
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        (folder / "events.jsonl").write_bytes("\n".join(lines).encode(errors="surrogatepass"))
        code = main([good, str(folder), "--json", str(tmp_path / "r.json"), "--csv", str(tmp_path / "csv")])
        error = capsys.readouterr().err
        assert code == 0 or "different protocols" in error, lines
        refused += code == 2
        if code == 0:
            assert json.loads((tmp_path / "r.json").read_text())
    assert refused < 50


def test_plots_of_mutated_journals_never_crash(tmp_path):
    pytest.importorskip("matplotlib")
    rng = random.Random(1)
    for number in range(40):
        lines = mutate(valid_lines(rng.choice([training_events(), speed_events(9.0, step_ms=[1.0, 2.0])])), rng)
        folder = tmp_path / f"runs/run{number}"
        folder.mkdir(parents=True)
        (folder / "events.jsonl").write_text("\n".join(lines), errors="replace")
    assert main([str(tmp_path / "runs"), "--force", "--html", str(tmp_path / "r.html")]) == 0
    assert "<svg" in (tmp_path / "r.html").read_text()


def test_mutated_logs_never_crash(tmp_path):
    rng = random.Random(2)
    originals = [path.read_text(errors="replace").splitlines()[-200:] for path in sorted(LOGS.glob("*.log"))]
    for number in range(300):
        lines = [line for line in rng.choice(originals) if line] or [""]
        path = tmp_path / f"GPUx{number}.log"
        path.write_text("\n".join(cut(lines, rng)))
        assert report.read([str(path)], rng.choice([None, 0.5]), rng.choice([None, 1000]))[0].path == str(path)


def cut(lines, rng):
    """Damage the numbers and the ends of some lines."""
    lines = list(lines)
    for _ in range(rng.randint(1, 5)):
        place = rng.randrange(len(lines))
        text = lines[place]
        at = rng.randrange(len(text) + 1)
        lines[place] = rng.choice((text[:at], text[:at] + "9" * rng.randint(1, 30) + text[at:], text[at:], text * 2,
                                   text.replace(".", "e"), text.replace("1", "-")))  # fmt: skip
    return lines
