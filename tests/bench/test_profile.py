"""zoo bench profile: operators of an update on a CPU, a trace, and mistakes."""

import json

import pytest

from zoo import cli

WORDS = ["-c", "resnet50_demo", "-o", "data.name=synthetic", "-o", "data.kind=image", "-o", "data.num_classes=8",
         "-o", "train.batch=4", "-o", "data.workers=0", "-o", "target=null", "--device", "cpu"]  # fmt: skip


def main(*words):
    return cli.main(["bench", "profile", *WORDS, *map(str, words)])


@pytest.mark.slow
def test_the_operators_of_an_update(tmp_path, capsys):
    pytest.importorskip("torch")
    paths = tmp_path / "values.json", tmp_path / "trace.json"
    assert main("-n", 2, "--rows", 5, "--json", paths[0], "--trace", paths[1]) == 0
    report, trace = (json.loads(path.read_text()) for path in paths)
    times = [operator["ms"] for operator in report["operators"]]
    assert len(times) == 5 and times == sorted(times, reverse=True) and sum(times) < report["ms"]
    convolution = next(row for row in report["operators"] if row["name"] == "aten::convolution_backward")
    assert convolution["calls"] == 20  # of a ResNet-18, shortcuts included
    assert any(event.get("name") == "aten::convolution_backward" for event in trace["traceEvents"])
    assert "aten::convolution_backward" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, message",
    [
        (["-o", "framework=jax"], "framework"),
        (["--json", __file__], "this file exists"),
        (["-o", "train.batch=x"], "train.batch"),
    ],
)
def test_a_mistake_is_one_message(capsys, words, message):
    assert main(*words) == 2
    assert message in capsys.readouterr().err
