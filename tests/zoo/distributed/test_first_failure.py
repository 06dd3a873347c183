"""Which rank failed first, by the records of their ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zoo.distributed.supervisor import RANK_PROCESS, first_failure, print_first_failure

REPORT = "error: rank 2 (host, process 7) ended without an error message\n"


def write(logs: Path, rank: int, text: str, end: str | None) -> None:
    """Write the log of a rank, and its record; the logs of higher ranks are the older ones."""
    path = logs / f"rank-{rank:04d}.log"
    path.write_text(text, encoding="utf-8")
    os.utime(path, (1000 - rank, 1000 - rank))
    if end:
        path.with_suffix(".exit").write_text(end, encoding="ascii")


@pytest.mark.parametrize(
    "ranks, first",
    [
        ([("fine\n", "-15 12.0\n"), ("error: a\n", "2 11.0\n"), ("fine\n", "-15 11.5\n")], 1),  # others torn down
        ([("fine\n", "143 12.0\n"), ("no output", "3 11.5\n"), ("fine\n", "143 11.0\n")], 1),  # asked to end before
        ([(REPORT, "1 10.0\n"), (REPORT, "1 10.1\n"), ("fine\n", "-9 10.2\n")], 2),  # whose end is recorded late
        ([("error: x\n", "2 10.5\n"), ("error: x\n", "2 10.1\n"), ("error: x\n", "2 10.3\n")], 1),
        ([("fine\n", "0 9.0\n"), ("fine\n", "0 9.1\n"), ("late\n", "1 20.0\n")], 2),  # healthy ones have ended
        ([(REPORT, "1 10.0\n"), (REPORT, "1 10.1\n"), ("fine\n", None)], 2),  # killed with its recorder
    ],
)
def test_the_first_failure(tmp_path: Path, ranks: list[tuple[str, str | None]], first: int) -> None:
    for rank, (text, end) in enumerate(ranks):
        write(tmp_path, rank, text, end)
    assert first_failure(tmp_path) == tmp_path / f"rank-{first:04d}.log"


def test_without_ranks_the_launcher_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_first_failure(tmp_path)
    assert capsys.readouterr().out == ""
    (tmp_path / "launcher-0.log").write_text("no such program\n")
    print_first_failure(tmp_path)
    assert "no such program" in capsys.readouterr().out


def start(record: Path, program: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-IS", str(RANK_PROCESS), str(record), sys.executable, "-c", program]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    "program, code", [("", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)]
)
def test_a_rank_ends_as_its_command_does(tmp_path: Path, program: str, code: int) -> None:
    before = time.time()
    assert start(tmp_path / "end", program).wait(20) == code
    number, moment = (tmp_path / "end").read_text().split()
    assert int(number) == code and before - 1 < float(moment) < before + 20


def test_signals_are_passed_on(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(143)); print('up', flush=True); time.sleep(60)"
    )
    process = start(tmp_path / "end", program)
    assert process.stdout and process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143 and (tmp_path / "end").read_text().startswith("143 ")


def test_a_rank_does_not_outlive_its_process(tmp_path: Path) -> None:
    process = start(tmp_path / "end", "import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    assert process.stdout
    child = Path("/proc") / process.stdout.readline().strip()
    process.kill()
    process.wait(20)
    deadline = time.monotonic() + 10
    while child.exists() and "Z" not in (child / "stat").read_text().split()[2] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not child.exists() or "Z" in (child / "stat").read_text().split()[2]
