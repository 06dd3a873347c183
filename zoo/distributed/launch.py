"""Start and supervision of launchers: each under a runner, so that no process is left behind.

`zoo launch` starts one runner per launcher (`run_launcher`, on each host) and supervises them. The launchers start the
ranks, each of which redirects its output to a file before it runs `zoo train` (`exec_rank`).
"""

import io
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import psutil

from zoo import program
from zoo.data.errors import UserError
from zoo.data.host import PR_SET_CHILD_SUBREAPER, prctl
from zoo.distributed import environment, launchers
from zoo.trainer.world import BEGIN_TIMEOUT, WAIT_REPORT

GRACE_PERIOD = 5.0  # seconds between asking processes to end and killing them
POLL_INTERVAL = 0.2  # seconds
TAIL_LINES = 15
PADDLE_LOGS = "PADDLE_LOG_DIR"  # where paddle.distributed.launch writes the whole environment; before --log_dir
STOP = b"stop\n"  # asks a runner to let the ranks save and end; at the end of its input, it kills them
REPORT = re.compile(r"error: rank (\d+) \(.*")  # of another rank's failure, by the control group


def run(commands: Sequence[tuple[str, list[str]]], layout: launchers.Layout, shell: str) -> int:
    """Start launchers, each a host and a command, under runners; supervise them and return the exit code of the run."""
    print(f"logs: {layout.logs}", flush=True)
    runners: list[subprocess.Popen[bytes]] = []
    try:
        for host, command in commands:
            command = program.command("launch", "--run-launcher", *command)
            if len(layout.hosts) > 1 and layout.launcher == "native":
                command = launchers.remote(shell, host, layout.ssh_port, command)
            runners.append(_start(command, layout.logs / f"launcher-{len(runners)}.log", layout.variables))
        code = supervise(runners, layout.logs, layout.size)
    finally:
        _terminate(runners)
    if code not in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM):
        print_first_failure(layout.logs)
    return code


def _start(command: Sequence[str], log: Path, variables: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start a runner, and send it the ranks' variables, which do not show in any command line this way."""
    try:
        with open(log, "w", encoding="utf-8") as output:
            runner = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise UserError(f"--shell: cannot run {command[0]}: {error.strerror}") from None
    _send([runner], json.dumps(variables).encode() + b"\n")
    return runner


def supervise(runners: Sequence["subprocess.Popen[bytes]"], logs: Path, size: int) -> int:
    """Print the output of rank 0 until all runners have ended or one has failed.

    The first SIGTERM or SIGINT lets the run save and end, the second ends it at once. Runners are processes of
    `run_launcher`, with a pipe as standard input.

    Returns:
        Exit code: 0, that of a runner that failed, or 128 + signal.
    """
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    began = time.monotonic()
    report: float | None = began + WAIT_REPORT  # time of the next report of what has not started; None if all have
    printed, stop_sent = 0, False
    while True:
        codes = [runner.poll() for runner in runners]
        printed = _print_from(_log_file(logs, 0), printed)
        if signals and not stop_sent:
            stop_sent = True
            _send(runners, STOP)
        failed = [code for code in codes if code]
        if failed or None not in codes or len(signals) > 1:
            return 128 + signals[0] if signals else failed[0] if failed else 0
        if report and time.monotonic() > report:
            missing = [str(rank) for rank in range(size) if not _log_file(logs, rank).exists()]
            waited, report = time.monotonic() - began, report + WAIT_REPORT if missing else None
            if missing:
                kind = "error" if waited > BEGIN_TIMEOUT else "waiting"
                text = f"rank {', '.join(missing)} of {size} did not start within {waited:.0f} s"
                print(f"{kind}: {text} (at most {BEGIN_TIMEOUT:.0f} s)", file=sys.stderr)
                if waited > BEGIN_TIMEOUT:
                    return 1
        time.sleep(POLL_INTERVAL)


def _send(runners: Sequence["subprocess.Popen[bytes]"], line: bytes) -> None:
    for runner in runners:
        with suppress(BrokenPipeError):  # it has ended; `supervise` reports it
            if runner.stdin:
                runner.stdin.write(line)


def _terminate(runners: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Let the runners end what is left of the run, and wait for those on this host."""
    for runner in runners:
        if runner.stdin:
            runner.stdin.close()
    for runner in runners:
        try:
            runner.wait(2 * GRACE_PERIOD)
        except subprocess.TimeoutExpired:
            runner.kill()


def print_first_failure(logs: Path) -> None:
    """Print the last lines of the process that failed first, and the other ranks' report of it if it has none."""
    tails = {path: _tail(path) for path in sorted(logs.glob("rank-*.log"))}
    reports = [match for tail in tails.values() for match in map(REPORT.match, tail) if match]
    first = _first_failure(logs, tails, reports)
    if first is None:
        return
    tail = tails.get(first) or _tail(first)
    print(f"\nthe end of {first}, which failed first:", *(f"  {line}" for line in tail), sep="\n")
    if reports and not any("rror: " in line for line in tail):  # it was killed
        print(reports[-1].group())


def _first_failure(logs: Path, tails: Mapping[Path, Sequence[str]], reports: Sequence["re.Match[str]"]) -> Path | None:
    """Return the log file of the process that failed first: of a rank, or else of a launcher; None if there is none.

    A rank that the others report failed first. Before they know each other, it is the first one whose own output ends
    with an error; without any, as after a crash, a launcher has the reason.
    """
    reported = [_log_file(logs, int(match[1])) for match in reports]
    own = [path for path, tail in tails.items() if any("rror: " in line for line in tail)]
    candidates = [path for path in reported if path in tails] or own or sorted(logs.glob("launcher-*.log"))
    return min(candidates, key=lambda path: path.stat().st_mtime, default=None)


def _tail(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]


def run_launcher(command: list[str]) -> int:
    """Run a launcher until it ends, or until the standard input is closed: then end all its processes.

    The first line of the standard input has environment variables.

    Returns:
        Exit code of the launcher, 1 if it was killed.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans of the launcher become children of this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes; `supervise` handles it
    line = io.FileIO(0, closefd=False).readline()  # byte by byte, and nothing of what follows
    if not line.endswith(b"\n"):
        return 1
    os.environ.update(json.loads(line))
    # msrun starts a script by the `python` that it finds first.
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    with tempfile.TemporaryDirectory(prefix="zoo-launch-", ignore_cleanup_errors=True) as private:
        os.environ[PADDLE_LOGS] = private
        return _run_to_end(command)


def _run_to_end(command: Sequence[str]) -> int:
    process, aborted, selector = subprocess.Popen(command, stdin=subprocess.DEVNULL), False, selectors.PollSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    while process.poll() is None and not aborted:
        if selector.select(POLL_INTERVAL):
            aborted = not os.read(0, len(STOP))
            if not aborted:
                _send_signal(signal.SIGTERM, [child for child in _descendants() if _is_training(child)])
    _, alive = psutil.wait_procs(_descendants(), 0 if aborted else GRACE_PERIOD)
    for number in (signal.SIGTERM, signal.SIGKILL):
        _send_signal(number, alive)
        _, alive = psutil.wait_procs(alive, GRACE_PERIOD / 2)
    return 1 if aborted or process.returncode < 0 else process.returncode


def exec_rank(logs: Path, arguments: list[str]) -> NoReturn:
    """Run `zoo train` in place of this process, with its output in a file of its own."""
    launch = environment.detect(os.environ)
    file = os.open(_log_file(logs, launch.rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ["PYTHONUNBUFFERED"] = "1"
    command = program.command("train", *arguments)
    os.execvp(command[0], command)


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _is_training(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        command = process.cmdline()
        return program.command("train")[1:] == command[1:3]
    return False


def _send_signal(number: int, processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)


def _log_file(logs: Path, rank: int) -> Path:
    return logs / f"rank-{rank:04d}.log"


def _print_from(path: Path, offset: int) -> int:
    """Print a file from a byte offset on, and return the offset of its end."""
    if not path.exists():
        return offset
    with open(path, "rb") as file:
        file.seek(offset)
        content = file.read()
    sys.stdout.write(content.decode("utf-8", "replace"))
    sys.stdout.flush()
    return offset + len(content)
