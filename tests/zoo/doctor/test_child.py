"""Child processes that crash, hang or print anything."""

import os
import time

import pytest

from zoo.doctor.child import Answer, ask

CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


@pytest.fixture
def import_of(fake_module):
    """Return a function that imports a module with some code in a child."""

    def run(code, seconds=60.0):
        fake_module("subject", code)
        return ask(seconds, "module", "subject")

    return run


def test_a_module_that_works(import_of):
    answer = import_of("__version__ = '1.2'\nimport os\nos.write(1, b'a line that is \\xff\\xfe, without an end')")
    assert answer == Answer({"stage": "importing subject", "version": "1.2", "done": True}, None)


@pytest.mark.parametrize(
    "code, failure",
    [
        (CRASH, "crashed with SIGSEGV while importing subject"),
        (
            "import os; print('goodbye', flush=True); os._exit(3)",
            "exit code 3 and without an answer, after ['goodbye']",
        ),
        ("import sys; sys.exit(5)", "SystemExit: 5"),
        ("raise RuntimeError('one thing\\nand its traceback')", "RuntimeError: one thing"),
        ("raise OSError('libx.so.3: cannot open shared object file')", "libx.so.3: cannot open shared object file"),
        ("raise ValueError", "ValueError: no message"),
        ("import a_module_that_is_missing", "No module named 'a_module_that_is_missing'"),
    ],
)
def test_a_module_that_fails(import_of, code, failure):
    assert failure in import_of(code).failure


def test_a_module_that_is_missing():
    answer = ask(60.0, "module", "a_module_that_is_missing")
    assert answer.failure is None and answer.facts["found"] is False


def test_what_hangs_is_killed_with_its_children(import_of, tmp_path):
    """The end of a pipe that a grandchild holds is read: it comes once the grandchild is gone."""
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    start = time.monotonic()
    answer = import_of(
        "import subprocess, time\n"
        f"subprocess.Popen(['sleep', '300'], stdout=open({str(tmp_path / 'alive')!r}, 'wb'))\n"
        "print('started', flush=True)\n"
        "time.sleep(300)",
        seconds=1.0,
    )
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b"" and time.monotonic() - start < 30
    os.close(reader)
    assert answer.failure == "did not end within 1 s while importing subject"
