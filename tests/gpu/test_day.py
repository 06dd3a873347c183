"""tests.gpu.day with steps that print, fail or hang, and its plan."""

import os
import signal
import subprocess
import sys
import tarfile
import time

import pytest

from tests.gpu import day, test_gpu
from tests.gpu.day import Day, Step
from tests.helpers.paths import ROOT
from zoo.commands import train

HANG = "import time; time.sleep(60)"


def python(name, code, limit=60.0):
    return Step(name, limit, [sys.executable, "-c", code])


def contents(archive):
    """Return the files of an archive, and the states of the steps in its table."""
    with tarfile.open(archive) as file:
        files = {name: file.extractfile(name).read().decode() for name in file.getnames()}
    rows = [line.split(" | ") for line in files["summary.md"].splitlines()[2:]]
    return files, {row[0].removeprefix("| "): row[1] for row in rows}


def test_the_archive_holds_each_step_as_soon_as_it_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(day, "PATIENCE", 0.5)
    archive = tmp_path / "out/day.tar.gz"
    listing = python("listing", f"import tarfile; print(*tarfile.open({str(archive)!r}).getnames())")
    stubborn = python("stubborn", f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {HANG}", 1.0)
    groups = [[python("fine", "print('well')"), python("bad", "raise SystemExit(3)"), stubborn], [listing]]
    assert not Day(groups, tmp_path / "out", tmp_path / "work", 600, {}).run()
    files, states = contents(archive)
    assert states == {"fine": "passed", "bad": "exit code 3", "stubborn": "stopped", "listing": "passed"}
    assert files["steps/fine.txt"] == "well\n" and "| fine | passed |" in files["summary.md"]
    before = ["steps/bad.txt", "steps/fine.txt", "steps/stubborn.txt", "summary.md"]
    assert files["steps/listing.txt"].split() == before and sorted(files) == sorted([*before, "steps/listing.txt"])


@pytest.mark.slow
def test_a_day_ends_in_time_and_names_what_it_left_out(tmp_path):
    groups = [[python("hanging", HANG)], [python("later", "print('late')")]]
    assert not Day(groups, tmp_path / "out", tmp_path / "work", 3, {}).run()
    files, states = contents(tmp_path / "out/day.tar.gz")
    assert states == {"hanging": "stopped", "later": "skipped"} and "steps/later.txt" not in files


def test_a_day_that_is_killed_leaves_what_it_has(tmp_path):
    mark = tmp_path / "pid"
    hanging = python("hanging", f"import os; open({str(mark)!r}, 'w').write(f'{{os.getpid()}}\\n'); {HANG}")
    code = f"""
from pathlib import Path
from tests.gpu.day import Day, Step
out, work = Path({str(tmp_path / "out")!r}), Path({str(tmp_path / "work")!r})
Day([[Step(*{tuple(python("fine", "print('well')"))})], [Step(*{tuple(hanging)})]], out, work, 600, {{}}).run()
"""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    while process.poll() is None and not (mark.exists() and mark.read_text().endswith("\n")):
        time.sleep(0.05)
    process.kill()
    process.wait()
    os.kill(int(mark.read_text()), signal.SIGKILL)
    assert contents(tmp_path / "out/day.tar.gz")[1] == {"fine": "passed", "hanging": "skipped"}


def test_the_plan_names_recipes_and_tests_that_exist(tmp_path):
    steps = [step for group in day.plan(tmp_path) for step in group]
    assert len({step.name for step in steps}) == len(steps)
    for step in steps:
        if step.name.startswith("speed"):
            assert train.read(train.parse(step.words[4:])).speed
        if step.name.startswith("test"):
            assert sum(step.name.split()[1] in name for name in vars(test_gpu) if name.startswith("test_")) == 1
