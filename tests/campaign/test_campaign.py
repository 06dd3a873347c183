"""The program of the campaigns."""

from pathlib import Path

import pytest

from tests.campaign import Trial, __main__, network


def test_a_second_call_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """With a campaign whose every third attack does harm."""

    def trial(number: int, folder: Path) -> Trial:
        failures = [f"trial {number}"] if number % 3 == 2 else []
        return Trial(network.KINDS[number], 10, failures, {"seconds": float(number)})

    monkeypatch.setattr(network, "KINDS", ("a", "b", "c"))
    monkeypatch.setattr(network, "trial", trial)
    assert __main__.main(["network", "--trials", "2", "--out", str(tmp_path)]) == 0
    assert __main__.main(["network", "--trials", "1", "--only", "c", "--out", str(tmp_path)]) == 1
    rows = [line.replace(" ", "") for line in capsys.readouterr().out.splitlines()[-5:]]
    assert rows[0] == "|attack|number|harm|largestseconds|" and rows[2:] == ["|a|10|0|0|", "|b|10|0|1|", "|c|10|1|2|"]
