"""Standard streams of programs, whose work must not depend on who reads them."""

import os
import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT
from zoo.data.errors import printable

PRINTING = """
import sys
from zoo import program
program.keep_printing()
for number in range(100_000):
    print(number)
print("the work is done", file=sys.stderr)
"""


def run(code, stdout, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, errors="replace", env=environment, timeout=60
    )


@pytest.fixture(params=["a reader that has gone", "a full disk"])
def broken(request):
    if request.param == "a full disk":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        end, descriptor = os.pipe()
        os.close(end)
    yield descriptor
    os.close(descriptor)


def test_a_program_goes_on_where_nobody_reads_what_it_prints(broken):
    done = run(PRINTING, broken)
    assert done.returncode == 0, done.stderr
    first, last = done.stderr.splitlines()
    assert first.startswith("nothing more is printed (") and last == "the work is done"


def test_stderr_may_go_too(broken):
    code = PRINTING.replace("print(number)", "print(number, file=sys.stderr)")
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nprint('done')"],
        stdout=subprocess.PIPE,
        stderr=broken,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "done\n")


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_no_file_takes_the_place_of_a_closed_stream(closed, tmp_path):
    """It would get what libraries print."""
    code = f"""
import os, sys
from zoo import program
program.keep_printing()
with open({str(tmp_path / "file")!r}, "w") as file:
    os.write(2, b"of a library")
    print("out"), print("err", file=sys.stderr, flush=True)
    file.write(str(file.fileno()))
"""
    command = f"exec '{sys.executable}' -c \"$CODE\" {' '.join(f'{number}>&-' for number in closed)}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CODE": code}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0 and int((tmp_path / "file").read_text()) > 2
    assert done.stdout == ("" if 1 in closed else "out\n")
    assert done.stderr == ("" if 2 in closed else "of a libraryerr\n")


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["data", "--help"], ["train", "--help"]])
def test_help_without_a_reader(words, broken):
    done = run(f"from zoo import cli; raise SystemExit(cli.main({words}))", broken)
    assert done.returncode == 0 and "Error" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "gbk", "utf-8"])
def test_every_character_is_printed(encoding):
    code = "from zoo import program; program.keep_printing(); print('caf\\udce9 \\u65e5 \\u0416', flush=True)"
    done = run(code, subprocess.PIPE, PYTHONIOENCODING=encoding)
    assert done.returncode == 0 and done.stdout.startswith("caf\\udce9 "), done.stderr


def test_a_pipe_that_does_not_block_gets_everything():
    end, descriptor = os.pipe()
    os.set_blocking(descriptor, False)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = subprocess.Popen([sys.executable, "-c", PRINTING], stdout=descriptor, env=environment)
    os.close(descriptor)
    with open(end) as file:
        lines = file.read().splitlines()
    assert program.wait(60) == 0 and lines == [str(number) for number in range(100_000)]


@pytest.mark.parametrize(
    "text, printed",
    [("a\tb\n日本", "a\tb\n日本"), ("\x1b[31mred\r", "\\x1b[31mred\\x0d"), ("caf\udce9\x9b", "caf\\udce9\\x9b")],
)
def test_names_cannot_command_a_terminal(text, printed):
    assert printable(text) == printed
