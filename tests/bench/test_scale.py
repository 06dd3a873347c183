"""`zoo bench scale`: its tables, and one message for each mistake."""

import json

import pytest

from tests.bench.scale.calibrations import EIGHT, INTER, known, make
from zoo import cli
from zoo.bench.options import Cluster
from zoo.bench.scale import calibration

SIMULATE = ["simulate", "--step", "350", "--batch", "128", "--bytes", "102e6", "-n", "5"]
LINK = ["--inter-bandwidth", "1", "--inter-latency", "30"]


@pytest.fixture
def measured(tmp_path):
    file = tmp_path / "calibration.json"
    calibration.write(make(runs=[(EIGHT, known(EIGHT, 0.02))]), str(file))
    return str(file)


def output(capsys, *words):
    assert cli.main(["bench", "scale", *words]) == 0
    return capsys.readouterr().out


def test_predictions(measured, capsys):
    words = ["predict", "--calibration", measured, "--worlds", "1,4x8", *LINK]
    text = output(capsys, *words)
    assert [line.split("|")[1].strip() for line in text.splitlines()[2:4]] == ["1x1", "4x8"]
    assert "resnet50, torch on cuda:0 (V100), 32 samples per card" in text and "the link is as given" in text
    rows = json.loads(output(capsys, *words, "--json"))
    expected = known(Cluster(4, 8), 0.02, INTER)
    assert rows[1]["step ms"] == pytest.approx(1000 * expected)
    assert rows[1]["samples/s"] == pytest.approx(32 * 32 / expected)
    assert rows[1]["efficiency %"] == pytest.approx(100 * 0.3 / expected)
    assert rows[1]["5 %"] < rows[1]["samples/s"] < rows[1]["95 %"]


def test_a_simulation_stands_beside_the_closed_form(capsys):
    rows = json.loads(output(capsys, *SIMULATE, "--worlds", "1x8,4x8", "--json"))
    assert [row["cards"] for row in rows] == ["1x8", "4x8"]
    for row in rows:
        assert row["step ms"] > 350 and abs(row["difference %"]) < 3
        assert row["samples/s"] == pytest.approx(int(row["cards"][0]) * 8 * 128 / row["step ms"] * 1000)


def test_the_errors_of_the_validation(capsys):
    text = output(capsys, "validate")
    assert "max 6.0%, mean 3.3%" in text and "13 fitted numbers" in text and "max 32.0%, mean 8.0%" in text
    report = json.loads(output(capsys, "validate", "--json"))
    assert report["parameters"] == 13 and len(report["one_host"]) == 11


@pytest.mark.parametrize(
    "words, message",
    [
        (["--worlds", "1,0"], "--worlds"),
        (["--worlds", "2x8"], "--inter-bandwidth and --inter-latency"),
        (["--worlds", "2x8", "--inter-bandwidth", "nan"], "--inter-bandwidth"),
        (["--worlds", "2x8", "--inter-bandwidth", "1", "--inter-latency", "-1"], "--inter-latency"),
        (["--worlds", "8", "--inter-latency", "1"], "needs --inter-bandwidth"),
    ],
)
def test_mistakes_in_a_prediction(measured, capsys, words, message):
    assert cli.main(["bench", "scale", "predict", "--calibration", measured, *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "option, value",
    [
        *(("--step", value) for value in ("0", "nan", "inf")),
        *(("--bytes", "1e300"), ("--bytes", "-1"), ("--noise", "-1")),
        *(("--input-rate", "0"), ("--intra-bandwidth", "-3"), ("--worlds", "a")),
    ],
)
def test_mistakes_in_a_simulation(capsys, option, value):
    assert cli.main(["bench", "scale", *SIMULATE, "--worlds", "8", option, value]) == 2
    assert option in capsys.readouterr().err


@pytest.mark.parametrize("option, value", [("--worlds", "2x8"), ("--processes", "0")])
def test_mistakes_in_a_calibration(tmp_path, capsys, option, value):
    out = tmp_path / "x.json"
    assert cli.main(["bench", "scale", "calibrate", "-c", "resnet50_demo", "--out", str(out), option, value]) == 2
    assert option in capsys.readouterr().err and not out.exists()
