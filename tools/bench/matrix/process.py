"""One run in processes of its own, which end with this program; why it failed."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from zoo.bench.matrix.cases import CHECKOUT, Case
from zoo.data import host
from zoo.data.errors import UserError

POLL_INTERVAL = 0.1  # seconds
GRACE_PERIOD = 5.0  # seconds between asking processes to end and killing them
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

    The kernel kills the command when this program ends in whatever way; `zoo launch` then ends the ranks.

    Args:
        words: the command.
        log: receives its output.
        checkout: whose modules it imports.
        seconds: until it must have ended.
        stop: ends it.
        memory: bytes that its processes may have together; None for no limit.

    Raises:
        Stopped: a signal came; the command has ended.
        UserError: the log cannot be written.
    """
    environment = dict(os.environ)
    if checkout != CHECKOUT:  # else an installed package, which is this checkout, would come first
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(checkout), environment.get("PYTHONPATH")]))
    try:
        file = open(log, "wb")  # noqa: SIM115
    except OSError as error:
        raise UserError(f"{log}: cannot be written ({error.strerror})") from None
    with file:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=partial(host.end_with_parent, os.getpid(), by_kernel=True),
        )
        try:
            reason = _watch(process, seconds, memory, stop)
        finally:
            _end(process)
    stop.raise_if_any()
    return reason or (reason_of(log, process.returncode) if process.returncode else None)


def _end(process: subprocess.Popen) -> None:
    """End a command and what it leaves in its session: by SIGTERM, then by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_PERIOD)


def reason_of(log: Path, code: int) -> str:
    """Return why a run has failed, from the end of its output."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL) or any(map(MEMORY_WORDS.search, lines)):
        return OUT_OF_MEMORY  # the kernel kills for want of memory
    errors = [line.partition("error: ")[2] for line in lines if line.startswith("error: ")]
    last = errors[-1] if errors else lines[-1] if lines else "no output"
    return f"{last[:MAX_REASON]} (exit code {code}, {log})"


def _watch(process: subprocess.Popen, seconds: float, memory: int | None, stop: StopSignal) -> str | None:
    deadline = time.monotonic() + seconds
    while process.poll() is None:
        if stop.number is not None:
            return None
        if time.monotonic() > deadline:
            return f"did not end within {seconds:g} s"
        if memory is not None and _memory(process.pid) > memory:
            return OUT_OF_MEMORY
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_INTERVAL)
    return None


def _memory(pid: int) -> int:
    """Return the bytes that a process and those below it have; pages that they share count once."""
    total = 0
    with suppress(psutil.Error):
        for member in (parent := psutil.Process(pid), *parent.children(recursive=True)):
            with suppress(psutil.Error):
                total += member.memory_full_info().pss
    return total
