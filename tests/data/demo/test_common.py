"""Generated sets on disk are complete or absent, whatever interrupts the program."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.helpers.paths import ROOT
from zoo.data.demo import common
from zoo.data.errors import UserError

RECIPE = {"version": 1, "count": 3}
# Writes 3 files, slowly.
SCRIPT = """
import sys, time
from zoo.data.demo import common

def fill(folder):
    for number in range(3):
        with open(f"{folder}/{number}", "w") as file:
            file.write("content")
        time.sleep(float(sys.argv[2]))

common.write(sys.argv[1], "test", {"version": 1, "count": 3}, "3 files", fill)
"""


def fill(folder):
    for number in range(3):
        with open(os.path.join(folder, str(number)), "w") as file:
            file.write("content")


def start(root, pause):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(root), str(pause)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("suffix", ["", "/"])
def test_a_set_is_written_with_its_recipe(tmp_path, suffix, capsys):
    root = str(tmp_path / "deep" / "set")
    common.write(root + suffix, "test", RECIPE, "3 files", fill)
    assert sorted(os.listdir(root)) == ["0", "1", "2", "test.json"] and os.listdir(tmp_path / "deep") == ["set"]
    assert f"making the demo set in {root}{suffix}: 3 files" in capsys.readouterr().out
    common.check(root, "test", RECIPE)


@pytest.mark.parametrize("error", [OSError("disk full"), RuntimeError("encoder"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing_behind(error, tmp_path):
    def fail(folder):
        fill(folder)
        raise error

    with pytest.raises(type(error)):
        common.write(str(tmp_path / "set"), "test", RECIPE, "3 files", fail)
    assert os.listdir(tmp_path) == []


def test_a_killed_process_leaves_no_set_and_does_not_disturb_the_next(tmp_path):
    process = start(tmp_path / "set", 30)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not any(names for _, _, names in os.walk(tmp_path)):
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stderr.close()
    assert os.listdir(tmp_path) and not os.path.exists(tmp_path / "set")
    common.write(str(tmp_path / "set"), "test", RECIPE, "3 files", fill)
    common.check(str(tmp_path / "set"), "test", RECIPE)


def test_two_processes_may_generate_a_set_at_once(tmp_path):
    processes = [start(tmp_path / "set", 0.1) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()[-500:]
    assert os.listdir(tmp_path) == ["set"] and sorted(os.listdir(tmp_path / "set")) == ["0", "1", "2", "test.json"]


@pytest.mark.parametrize("content", [None, "not json"])
def test_a_folder_without_a_readable_recipe_is_refused_and_not_changed(tmp_path, content):
    (tmp_path / "mine").write_text("data")
    if content:
        (tmp_path / "test.json").write_text(content)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(UserError, match="not a demo set.*test.json.*data.root"):
        common.check(str(tmp_path), "test", RECIPE)
    assert sorted(os.listdir(tmp_path)) == before


def test_another_recipe_is_refused(tmp_path):
    common.write(str(tmp_path / "set"), "test", RECIPE, "3 files", fill)
    with pytest.raises(UserError, match="other settings.*'count': 3.*'count': 4.*data.root"):
        common.check(str(tmp_path / "set"), "test", {**RECIPE, "count": 4})
