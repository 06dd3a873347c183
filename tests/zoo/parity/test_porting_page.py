"""The commands of docs/porting.md print what it shows, but for numbers that depend on the processor."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

PAGE = (ROOT / "docs" / "porting.md").read_text(encoding="utf-8")
BLOCKS = re.compile(r"^```\n(zoo [^`]*?)^```\n\n```text\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
SHOWN = BLOCKS.findall(PAGE)
TEST = re.search(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"\d\.\de[-+]\d\d|\d+ of \d+ tensors")
INTERPRETER = re.compile(r"\.venv-[\d.]+/bin/python")
CHECKPOINT = "import sys, torch; sys.path.insert(0, 'examples/port'); import net_torch\n"
CHECKPOINT += "torch.save(net_torch.build().state_dict(), 'net.pth')"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(importlib.util.find_spec, ("torch", "paddle"))), reason="needs PyTorch and Paddle"),
]


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(ROOT / "examples" / "port", tmp_path / "examples" / "port")
    (tmp_path / "build").mkdir()
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    options = {"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": 500}
    return subprocess.run([sys.executable, *words], check=False, **options)


def masked(text: str) -> str:
    """Return a text without line breaks and without numbers that depend on the processor."""
    return NUMBER.sub("#", " ".join(text.split()))


def call(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the page, with this interpreter in place of all others."""
    words = shlex.split(INTERPRETER.sub(sys.executable, command.replace("\\\n", " ")))
    return run(folder, "-m", *words)


@pytest.mark.parametrize("command, output", SHOWN, ids=range(len(SHOWN)))
def test_a_command_prints_what_the_page_shows(folder, command, output):
    if "net.pth" in command:
        assert run(folder, "-c", CHECKPOINT).returncode == 0
    done = call(folder, command)
    assert masked(done.stdout) == masked(output), done.stderr
    assert done.returncode == int("they differ" in output)


def test_a_test_of_ones_own_names_the_cause(folder):
    assert TEST is not None
    for name, failed in (("fixed", False), ("build", True)):
        path = folder / f"test_{name}.py"
        path.write_text(TEST[1].replace("net_paddle.py:fixed", f"net_paddle.py:{name}"), encoding="utf-8")
        done = run(folder, "-m", "pytest", "-q", str(path))
        assert done.returncode == failed and ("epsilon of LayerNorm is 1e-05" in done.stdout) == failed, done.stdout


def test_the_readme_shows_what_the_page_shows():
    assert len(SHOWN) == 5
    for name in ("README.md", "README.zh.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        [(command, output)] = [shown for shown in BLOCKS.findall(text) if shown[0].startswith("zoo parity")]
        assert set(command.split()) < set(SHOWN[0][0].split())
        assert set(output.splitlines()) - {"..."} <= set(SHOWN[0][1].splitlines())
