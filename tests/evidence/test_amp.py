"""`python -m evidence amp`: a row of ratios of updates that take a known share of the processor's time."""

import re

import pytest

from evidence.__main__ import main
from evidence.commands import amp


def test_a_row_of_ratios(monkeypatch, capsys):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setattr(amp, "update", lambda recipe, framework, amp: lambda: sum(range(300_000 if amp else 100_000)))
    assert main(["amp", "-n", "9"]) == 0
    names, _, row = capsys.readouterr().out.splitlines()
    assert re.findall(r"\w+_demo", names) == list(amp.RECIPES) and "| torch " in row and "| AVX2 |" in row
    ratios = [float(number) for number in re.findall(r"\d\.\d\d", row)]
    assert ratios == [pytest.approx(3, rel=0.5)] * len(amp.RECIPES)
