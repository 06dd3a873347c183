"""One run in processes of its own, none of which outlives this program; why it failed."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from zoo.bench.matrix.cases import CHECKOUT, Case
from zoo.data.errors import UserError

RUNNER = Path(__file__).with_name("runner.py")
POLL_INTERVAL = 0.1  # seconds
OUT_OF_MEMORY = "out of memory"
MEMORY_WORDS = re.compile(
    r"out of memory|out_?of_?memory|resource_?exhausted|(cannot|can't|could not|unable to|fail(ed)? to) alloc"
    r"|(not enough|insufficient) memory|memory (is |isn't |not )+enough|allocate (device )?memory failed"
    r"|\bmemoryerror\b",
    re.IGNORECASE,
)
TAIL_BYTES = 64 << 10  # of the console output that is searched for a reason
MAX_REASON = 300  # characters


class Stopped(Exception):
    """A signal, whose number is given, has asked the program to end."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


class StopSignal:
    """Notes SIGINT and SIGTERM from now on; raise_if_any() ends the program where nothing is left behind."""

    def __init__(self) -> None:
        self.number: int | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        self.number = number

    def raise_if_any(self) -> None:
        """Raise Stopped if a signal has come."""
        if self.number is not None:
            raise Stopped(self.number)


def command(case: Case, run: Path, options: Sequence[str], launch_options: Sequence[str]) -> list[str]:
    """Return the command of a run.

    Args:
        case: what to run.
        run: folder of the run.
        options: of train.py, beside those that the case and its variant give.
        launch_options: of tools/launch.py, if there are several processes.
    """
    words = ["-c", case.recipe.path, "--framework", case.framework, "--out", str(run), *options]
    words += ["-o", f"train.precision={case.precision}"]
    words += ["-o", f"train.batch={case.batch}", "-o", "train.global_batch=null"] * case.sets_batch
    words += case.variant.options
    checkout = case.variant.checkout
    if case.world.size == 1:
        return [sys.executable, str(checkout / "train.py"), *words]
    launch = [sys.executable, str(checkout / "tools" / "launch.py"), str(case.world), "--logs", f"{run}.ranks"]
    return [*launch, *launch_options, *words]


def run(
    words: Sequence[str], log: Path, checkout: Path, seconds: float, stop: StopSignal, memory: int | None = None
) -> str | None:
    """Run a command until it ends; return None, or why it failed.

    The command runs below a runner (runner.py), which ends all of its processes when the pipe from this program closes,
    so also if this program is killed.

    Args:
        words: the command.
        log: receives its output.
        checkout: whose modules it imports.
        seconds: until it must have ended.
        stop: ends it.
        memory: bytes that its processes may have together; None for no limit.

    Raises:
        Stopped: a signal came; all processes have ended.
        UserError: the log cannot be written.
    """
    environment = dict(os.environ)
    if checkout != CHECKOUT:  # else an installed package, which is this checkout, would come first
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(checkout), environment.get("PYTHONPATH")]))
    kills = _kernel_kills()
    try:
        file = open(log, "wb")  # noqa: SIM115
    except OSError as error:
        raise UserError(f"{log}: cannot be written ({error.strerror})") from None
    with file:
        runner = subprocess.Popen(
            [sys.executable, str(RUNNER), *words],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            reason = _watch(runner, seconds, memory, stop)
        finally:
            assert runner.stdin
            runner.stdin.close()
            runner.wait()
    stop.raise_if_any()
    if reason or not runner.returncode:
        return reason
    return OUT_OF_MEMORY if _kernel_kills() > kills else reason_of(log, runner.returncode)


def reason_of(log: Path, code: int) -> str:
    """Return why a run has failed, from the end of its output."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    if any(MEMORY_WORDS.search(line) for line in lines):
        return OUT_OF_MEMORY
    errors = [line.partition("error: ")[2] for line in lines if line.startswith("error: ")]
    last = errors[-1] if errors else lines[-1] if lines else "no output"
    return f"{last[:MAX_REASON]} (exit code {code}, {log})"


def _watch(runner: subprocess.Popen, seconds: float, memory: int | None, stop: StopSignal) -> str | None:
    deadline = time.monotonic() + seconds
    while runner.poll() is None:
        if stop.number is not None:
            return None
        if time.monotonic() > deadline:
            return f"did not end within {seconds:g} s"
        if memory is not None and _memory(runner.pid) > memory:
            return OUT_OF_MEMORY
        with suppress(subprocess.TimeoutExpired):
            runner.wait(POLL_INTERVAL)
    return None


def _memory(pid: int) -> int:
    """Return the bytes that the processes below a process have; pages that they share count once."""
    total = 0
    with suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                total += child.memory_full_info().pss
    return total


def _kernel_kills() -> int:
    """Return how many processes the kernel has killed for want of memory since it started."""
    with suppress(OSError), open("/proc/vmstat", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return 0
