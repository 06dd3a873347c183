"""Child processes that crash, hang or print anything."""

import time
from pathlib import Path

import pytest

from zoo.doctor.child import Answer, ask

SECONDS = 60.0
CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


def import_of(fake_module, code):
    fake_module("subject", code)
    return ask(SECONDS, "module", "subject")


def test_a_module_that_works(fake_module):
    answer = import_of(fake_module, "__version__ = '1.2'\nprint('a line without an end', end='')")
    assert answer == Answer({"found": True, "stage": "importing subject", "version": "1.2", "done": True}, None)


@pytest.mark.parametrize(
    "code, failure",
    [
        (CRASH, "crashed with SIGSEGV while importing subject"),
        ("import os; os._exit(3)", "ended with exit code 3 and without an answer while importing subject"),
        (
            "import os; print('goodbye', flush=True); os._exit(0)",
            "ended with exit code 0 and without an answer while importing subject, its last line is 'goodbye'",
        ),
        ("import sys; sys.exit(5)", "SystemExit: 5"),
        ("raise RuntimeError('one thing\\nand its traceback')", "RuntimeError: one thing"),
        ("raise OSError('libx.so.3: cannot open shared object file')", "libx.so.3: cannot open shared object file"),
        ("raise ValueError", "ValueError: no message"),
        ("import a_module_that_is_missing", "No module named 'a_module_that_is_missing'"),
    ],
)
def test_a_module_that_fails(fake_module, code, failure):
    assert import_of(fake_module, code).failure == failure


def test_a_module_that_is_missing():
    answer = ask(SECONDS, "module", "a_module_that_is_missing")
    assert answer.failure is None and answer.facts["found"] is False


def is_running(state):
    try:
        return state.read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_hangs_is_killed_with_its_children(fake_module, tmp_path):
    mark = tmp_path / "pid"
    fake_module(
        "subject",
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
        f"open({str(mark)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(300)",
    )
    start = time.monotonic()
    answer = ask(3.0, "module", "subject")
    assert answer.failure == "did not end within 3 s while importing subject" and time.monotonic() - start < 30
    state = Path(f"/proc/{mark.read_text()}/stat")
    while is_running(state) and time.monotonic() - start < 30:  # a signal is delivered a moment later
        time.sleep(0.05)
    assert not is_running(state)


def test_garbage_is_no_answer(fake_module):
    code = (
        "import os, sys\n"
        "os.write(1, b'\\xff\\xfe diagnosis: {\\n')\n"
        "print('diagnosis: {\"broken\\ndiagnosis: [1, 2]\\ndiagnosis: 7')\n"
        "sys.stdout.flush(); os._exit(0)"
    )
    answer = import_of(fake_module, code)
    assert answer.facts == {"found": True, "stage": "importing subject"}
    assert "without an answer" in answer.failure
