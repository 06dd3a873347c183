"""zoo report: from folders and logs to tables, plots and a page; what may be compared, and bad input."""

import csv
import json
import re
from pathlib import Path

import pytest

from tests.helpers.journals import full_begin, full_load
from tests.helpers.report_runs import speed_events, training_events, write
from zoo import cli
from zoo.bench.report import logs, runs
from zoo.bench.report.results import check
from zoo.data.errors import UserError

LOGS = Path(__file__).resolve().parents[1] / "airank"


def main(*words):
    return cli.main(["report", *map(str, words)])


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


def squeezed(text):
    """Return a table without the spaces that align it."""
    return " ".join(text.split())


def test_a_matrix_as_markdown_csv_and_json(matrix, tmp_path, capsys):
    written = ["--json", tmp_path / "r.json", "--csv", tmp_path / "csv"]
    assert main(matrix, *written) == 0
    printed = capsys.readouterr().out
    limits = r"\([\d.]+ to [\d.]+\)"
    assert re.search(rf"\| 1 \| 100.00 {limits} \| 80.00 {limits} \|", squeezed(printed))
    assert re.search(rf"\| 2 \| 180.00 {limits} \| 144.00 {limits} \|", squeezed(printed))
    found = json.loads((tmp_path / "r.json").read_text())
    row = found["tables"]["throughput"][1]
    assert (row["median"], row["runs"]) == (180.0, 3)
    assert (row["least"], row["most"], row["mean"]) == pytest.approx((178.2, 183.6, 180.6))
    assert row["cv"] == pytest.approx(0.015275 * 180 / 180.6, rel=1e-3) and row["low"] < 180 < row["high"]
    assert row["speed_up"] == pytest.approx(1.8) and row["efficiency"] == pytest.approx(0.9)
    usage = found["tables"]["usage"][1]
    assert usage["tflops"] == pytest.approx(0.27) and usage["mfu"] == pytest.approx(0.27 / 15.7)  # 3 x 1e9 x 180 / 2
    assert [row["ratio"] for row in found["tables"]["ratios"]] == [pytest.approx(0.8)] * 2
    assert found["warnings"] == []
    with open(tmp_path / "csv/throughput.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["median"]) for row in rows] == [100.0, 180.0, 80.0, 144.0]
    assert {path.stem for path in (tmp_path / "csv").iterdir()} == {"overview", "throughput", "usage", "ratios", "runs"}
    assert main(matrix, "--json") == 0 and json.loads(capsys.readouterr().out) == found


def test_a_training_run_has_a_row_as_in_the_summary_of_ai_rank(tmp_path, capsys):
    one, two = (write(tmp_path / str(c), training_events(seconds=20.0 / c, cards=c)) for c in (1, 2))
    assert main(one, two, "--json") == 0
    first, second = json.loads(capsys.readouterr().out)["tables"]["training"]
    assert (first["time_to_target"], second["time_to_target"]) == (40.0, 20.0)
    assert (second["time_speed_up"], second["time_efficiency"]) == (2.0, 1.0)
    assert first["avg_ips"] == pytest.approx(3000 / 60.5) and second["ips_speed_up"] == pytest.approx(60.5 / 30.5)
    assert (first["accuracy"], first["target"], first["reached"]) == (0.72, 0.711, "1 of 1")


def test_a_page_and_plots(matrix, tmp_path):
    pytest.importorskip("matplotlib")
    write(matrix / "killed", training_events()[:-1])
    assert main(matrix, "--html", tmp_path / "r.html", "--png", tmp_path / "png") == 0
    text = (tmp_path / "r.html").read_text()
    assert text.count("<img") == 4 and "1 of 13 runs are not complete" in text
    names = {"resnet-throughput", "resnet-scaling", "tsm-loss", "tsm-metric"}
    images = {path.stem: path.read_bytes() for path in (tmp_path / "png").iterdir()}
    assert set(images) == names and all(data.startswith(b"\x89PNG") for data in images.values())


def test_runs_that_do_not_count_are_listed_with_their_state(tmp_path, capsys):
    write(tmp_path / "ok", training_events())
    write(tmp_path / "killed", training_events()[:-1])
    write(tmp_path / "failed", [full_load(), full_begin()])
    write(tmp_path / "empty", [])
    mixed = training_events(accuracies=(0.9, 0.9, 0.9))
    mixed.insert(5, {"event": "resume", "time": 121.0, "step": 100, "framework": "paddle"})
    write(tmp_path / "mixed", mixed)
    assert main(tmp_path) == 0
    printed = squeezed(capsys.readouterr().out)
    assert "3 of 5 runs are not complete" in printed and "1 of 5 runs are mixed" in printed
    states = {
        "ok": "complete | -",
        "killed": "incomplete | step 300 of 750",
        "empty": "incomplete | it has not begun",
        "failed": "incomplete | step 0 of 750",
        "mixed": "mixed | resumed with another framework",
    }
    for path, state in states.items():
        assert f"| {tmp_path}/{path} | {state}" in printed
    assert "| 72.00 |" in printed and "| 90.00 | top1" not in printed


def test_logs_of_others(capsys):
    paths = [LOGS / f"tsm-paddle-{cards}gpu-amp.log" for cards in (8, 32)]
    assert main(*paths, "--target", "0.71", "--samples", "234619") == 0
    printed = squeezed(capsys.readouterr().out)
    assert "| paddle | amp | 8 | 22549 | 478.62 | 71.00 | 71.00 | 1 of 1 | 46 | 1 |" in printed
    assert "| paddle | amp | 32 | 5909.3 | 1786.6 | 71.03 | 71.00 | 1 of 1 | 45 | 1 |" in printed


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["missing"], "missing does not exist"),
        (["."], ". holds no run"),
        (["run", "--json", "run"], "--json run"),
        (["run", "--csv", "run/events.jsonl"], "run/events.jsonl"),
    ],
)
def test_bad_paths(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if arguments[0] != ".":
        write(tmp_path / "run", training_events())
    assert main(*arguments) == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def run(tmp_path):
    def make(name, events=None, **begin):
        return runs.read(write(tmp_path / name, events or training_events(**begin)))

    return make


def test_different_protocols_of_a_model_are_refused_with_their_runs(run, tmp_path):
    found = [run("a"), run("b", protocol="k400/8x10x3@256"), run("c")]
    listed = f"k400/8x1x1@224 ({tmp_path}/a, {tmp_path}/c); k400/8x10x3@256 ({tmp_path}/b)"
    with pytest.raises(UserError) as caught:
        check(found, force=False)
    assert "tsm" in str(caught.value) and "--force" in str(caught.value) and listed in str(caught.value)
    (warning,) = check(found, force=True)
    assert warning.startswith("NOT COMPARABLE, forced") and listed in warning
    assert check([run("a"), run("d", speed_events(9.0))], force=False) == []  # another model
    assert check([run("a"), run("e", protocol=None)], force=False) == []  # an unknown one is not another one


@pytest.mark.parametrize(
    "values, aspect",
    [
        ({"target": 0.7}, "different targets, so their Time2train cannot be compared: 0.711 ("),
        ({"checksum": "0" * 32}, "different data (checksums): 37724b19b6e5d41f9f147936d60b3c29 ("),
        ({"flops_per_sample": 1e9}, "different architectures (operations of a sample): 6.58e+10 ("),
        ({"git": {"commit": "f" * 40, "dirty": True}}, f"{'f' * 12} with changes ("),
        ({"framework_version": "2.11.0"}, "different versions of torch: 2.13.0 ("),
        ({"hosts": [], "device": "cuda:0 (NVIDIA H200)"}, "different devices: Tesla V100-SXM2-16GB ("),
    ],
)
def test_other_differences_are_warnings(run, values, aspect):
    (warning,) = check([*(run(f"a{i}") for i in range(5)), run("b", **values)], force=False)
    assert aspect in warning and "and 2 more)" in warning


@pytest.mark.parametrize(
    "values, differences",
    [
        ({"channels_last": True, "loader": "dali"}, "channels_last, loader"),
        ({"workers": 8, "threads": 1}, "workers, threads"),
        ({"optimizer": {"lr": 0.04}}, "optimizer"),
        ({"recipe_sha256": "cd" * 32}, "recipe_sha256"),
    ],
)  # fmt: skip
def test_repeats_with_different_settings_are_a_warning_that_names_them(run, tmp_path, values, differences):
    (warning,) = check([run("a"), run("b", **values)], force=False)
    assert "2 runs of tsm with torch, amp (fp16 O1), batch 10, 1 card(s)" in warning
    assert f"differ in {differences}: {tmp_path}/a, {tmp_path}/b" in warning


def test_a_resume_with_other_settings_is_a_warning(run, tmp_path):
    events = training_events()
    events.insert(4, {"event": "resume", "step": 100, "time": 121.0, "workers": 8, "recipe_sha256": "cd" * 32})
    (warning,) = check([run("a"), run("b", events)], force=False)
    assert warning == f"runs of tsm were resumed with another workers, recipe_sha256 ({tmp_path}/b)"


def read(name, target=None, samples=None):
    return logs.read(str(LOGS / f"{name}.log"), target, samples)


def test_percent_becomes_a_fraction():
    run = read("deeplabv3plus-pytorch-8gpu-fp16", 0.785)
    assert run.values.best == pytest.approx(0.786) and max(point.value for point in run.metrics) == pytest.approx(0.786)
    assert run.values.samples_per_s == pytest.approx(4.7)  # as declared, without the number of samples


@pytest.mark.parametrize(
    "path, expected",
    [
        ("tsm-pytorch-8gpu-amp-run2.log", ("tsm", "torch", "amp", None, 8)),
        ("hrnet-paddle-32gpu-bs4.log", ("hrnet", "paddle", None, 4, 32)),
        ("AI/PaddlePaddle/Linux/TSM/log/GPUx32_AMP.log", ("tsm", "paddle", "amp", None, 32)),
        ("resnet50-flax-8gpu-fp32-bs64.log", ("resnet", "jax", "fp32", 64, 8)),
        ("x/Linux/DeepLabV3+_pytorch/log/gPUx8_fp16_bs8.log", ("deeplabv3plus", "torch", "fp16", 8, 8)),
        ("log.txt", (None, None, None, None, None)),
        ("gpux0.log", (None, None, None, None, None)),
    ],
)
def test_cases_are_read_from_names(path, expected):
    case = logs._case(path)
    assert (case.model, case.framework, case.precision, case.batch, case.cards) == expected


def test_price_and_carbon_of_the_energy_only_by_factors_of_the_user(tmp_path, capsys):
    power = {"energy_j": 1.8e6, "watts": 200.0}
    found = training_events()
    for event in found:
        if event["event"] == "train":
            event["power"] = power
    write(tmp_path / "run", found)
    spent = 500 * sum(event["event"] == "train" for event in found)
    for words, expected in (
        ((), {}),
        (("--price", 0.3, "--co2", 400), {"price": 0.3 * spent / 1000, "co2": 0.4 * spent}),
    ):
        assert main(tmp_path / "run", "--json", *words) == 0
        [row] = json.loads(capsys.readouterr().out)["tables"]["usage"]
        assert row["wh"] == spent and {key: row[key] for key in ("price", "co2") if key in row} == pytest.approx(
            expected
        )
