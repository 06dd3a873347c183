"""The measurement of the control group, in a small world."""

import pytest

from zoo.bench.timing import control_group


def test_a_small_world(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(control_group, "MIN_SECONDS", 0.1)
    assert control_group.main(["--ranks", "3", "--step", "2"]) == 0
    head, _, row = capsys.readouterr().out.splitlines()
    assert "of a 2 ms step" in head
    ranks, _, every, exchange, cpu, _, log, _ = row.strip("| ").split(" | ")
    assert (ranks, every) == ("3", "step")
    assert 0 < float(exchange) < 1000 and 0 < float(cpu) < 1000 and 0 < float(log) < 1000


@pytest.mark.parametrize("arguments", [["--ranks", "1"], ["--ranks", "8,x"], ["--step", "0"], ["--ranks", "9999"]])
def test_mistakes(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert control_group.main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"error: {arguments[0]} ")
