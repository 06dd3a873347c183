"""The table and the numbering of campaigns."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.campaign import Trial, __main__


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the trials of a campaign whose every third attack does harm."""
    seen: list[int] = []

    def trial(number: int, folder: Path) -> Trial:
        assert not list(folder.iterdir())
        seen.append(number)
        failures = [f"trial {number}"] if number % 3 == 2 else []
        return Trial(("a", "b")[number % 2], 10, failures, {"seconds": float(number)})

    campaign = ModuleType("tests.campaign.network")
    vars(campaign).update(KINDS=("a", "b"), trial=trial)
    monkeypatch.setitem(sys.modules, "tests.campaign.network", campaign)
    return seen


def test_a_second_call_goes_on(numbers: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["network", "--trials", "2", "--out", str(tmp_path)]) == 0
    assert __main__.main(["network", "--trials", "1", "--out", str(tmp_path)]) == 1
    assert numbers == [0, 1, 2]
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert lines == [
        "| attack | number | harm | largest seconds |",
        "|---|---|---|---|",
        "| a | 20 | 1 | 2 |",
        "| b | 10 | 0 | 1 |",
    ]


def test_one_kind_alone(numbers: list[int], tmp_path: Path) -> None:
    __main__.main(["network", "--trials", "2", "--only", "b", "--out", str(tmp_path)])
    assert numbers == [1, 3]


def test_an_unknown_kind_is_refused(numbers: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        __main__.main(["network", "--only", "c", "--out", str(tmp_path)])
    assert "there is no kind c; there are: a, b" in capsys.readouterr().err
