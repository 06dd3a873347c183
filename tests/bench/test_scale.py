"""tools/scale.py: its tables in each format, and one message for each mistake."""

import csv
import io
import json

import pytest

from tests.bench.scale.calibrations import EIGHT, INTER, known, make
from zoo.bench.commands import scale
from zoo.bench.scale import calibration_file
from zoo.bench.scale.cluster import Cluster

SIMULATE = ["simulate", "--step", "350", "--batch", "128", "--bytes", "102e6", "--updates", "5"]
LINK = ["--inter-bandwidth", "1", "--inter-latency", "30"]


@pytest.fixture
def calibration(tmp_path):
    file = tmp_path / "calibration.json"
    calibration_file.write(make(runs=[(EIGHT, known(EIGHT, 0.02))]), str(file))
    return str(file)


def output(capsys, *words):
    assert scale.main(list(words)) == 0
    return capsys.readouterr().out


def test_predictions_are_a_table(calibration, capsys):
    text = output(capsys, "predict", "--calibration", calibration, "--worlds", "1,8,4x8,128x8", *LINK)
    head, _, *rows = text.split("\n\n")[0].splitlines()
    assert [cell.strip() for cell in head.split("|")[1:5]] == ["cards", "samples/s", "5 %", "95 %"]
    assert [row.split("|")[1].strip() for row in rows] == ["1x1", "1x8", "4x8", "128x8"]
    assert len({len(line) for line in (head, *rows)}) == 1
    assert "resnet50, torch on cuda:0 (V100), 32 samples per card." in text
    assert "the link is as given" in text and "guesses" in text


def test_json_and_csv_hold_the_same_numbers(calibration, capsys):
    words = ["predict", "--calibration", calibration, "--worlds", "1,4x8", *LINK, "--format"]
    rows = json.loads(output(capsys, *words, "json"))
    table = list(csv.DictReader(io.StringIO(output(capsys, *words, "csv"))))
    assert [row["cards"] for row in rows] == ["1x1", "4x8"]
    assert [float(row["samples/s"]) for row in table] == [row["samples/s"] for row in rows]
    expected = known(Cluster(4, 8), 0.02, INTER)
    assert rows[1]["step ms"] == pytest.approx(1000 * expected)
    assert rows[1]["samples/s"] == pytest.approx(32 * 32 / expected)
    assert rows[1]["efficiency %"] == pytest.approx(100 * 0.3 / expected)
    assert rows[1]["5 %"] < rows[1]["samples/s"] < rows[1]["95 %"]


def test_a_simulation_stands_beside_the_closed_form(capsys):
    rows = json.loads(output(capsys, *SIMULATE, "--worlds", "1x8,4x8", "--format", "json"))
    assert [row["cards"] for row in rows] == ["1x8", "4x8"]
    for row in rows:
        assert row["step ms"] > 350 and abs(row["difference %"]) < 3
        assert row["samples/s"] == pytest.approx(int(row["cards"][0]) * 8 * 128 / row["step ms"] * 1000)


def test_the_validation_says_its_errors(capsys):
    text = output(capsys, "validate")
    assert "max 6.0%, mean 3.3%" in text and "13 fitted numbers" in text and "max 32.0%, mean 8.0%" in text
    report = json.loads(output(capsys, "validate", "--format", "json"))
    assert report["parameters"] == 13 and report["forms"]["rounds of messages, log2(h)"]["rows"] == 89
    assert max(abs(row["error"]) for row in report["held_out"]) == pytest.approx(0.060, abs=0.001)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--worlds", "1,0"], "--worlds"),
        (["--worlds", "2x8"], "--inter-bandwidth and --inter-latency"),
        (["--worlds", "2x8", "--inter-bandwidth", "0"], "a bandwidth above 0"),
        (["--worlds", "2x8", "--inter-bandwidth", "nan"], "a bandwidth above 0"),
        (["--worlds", "2x8", "--inter-bandwidth", "1", "--inter-latency", "-1"], "a latency from 0 on"),
        (["--worlds", "8", "--inter-latency", "1"], "--inter-latency: needs --inter-bandwidth"),
    ],
)
def test_mistakes_in_a_prediction_are_one_message(calibration, capsys, words, message):
    assert scale.main(["predict", "--calibration", calibration, *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (["--step", "0"], "--step"),
        (["--step", "nan"], "--step"),
        (["--step", "inf"], "--step"),
        (["--bytes", "1e300"], "--bytes"),
        (["--noise", "-1"], "--noise"),
        (["--bytes", "-1"], "--bytes"),
        (["--buckets", "0"], "--buckets"),
        (["--updates", "0"], "--updates"),
        (["--input-rate", "0"], "--input-rate"),
        (["--intra-bandwidth", "-3"], "--intra-bandwidth"),
        (["--worlds", "a"], "--worlds"),
    ],
)
def test_mistakes_in_a_simulation_are_one_message(capsys, words, message):
    assert scale.main([*SIMULATE, "--worlds", "8", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (["--worlds", "2x8"], "runs on this host alone"),
        (["--processes", "0"], "--processes"),
        (["--count", "1"], "--count"),
        (["--drop", "0"], "--drop"),
        (["--rounds", "0"], "--rounds"),
    ],
)
def test_mistakes_in_a_calibration_are_one_message(tmp_path, capsys, words, message):
    out = tmp_path / "x.json"
    assert scale.main(["calibrate", "-c", "configs/resnet50_demo.yaml", "--out", str(out), *words]) == 2
    assert message in capsys.readouterr().err and not out.exists()
