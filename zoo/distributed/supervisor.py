"""The processes of one start: each launcher under a keeper, which leaves nobody behind whatever ends first."""

import ctypes
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from zoo.distributed import launchers

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 60.0  # seconds until every process must have begun to write
GRACE = 5.0  # seconds between asking to end and killing
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl
STOP = b"stop\n"  # asks a keeper to let the processes save and end; when its input ends, it ends them


def supervise(keepers: Sequence[subprocess.Popen], logs: Path, size: int) -> int:
    """Show what rank 0 writes until all keepers have ended, or one has failed: its exit code.

    The first SIGTERM or SIGINT lets the run save and end, the second does not.
    """
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.append(number))
    until, shown, passed = time.monotonic() + DEADLINE, 0, False
    while True:
        codes = [keeper.poll() for keeper in keepers]
        shown = _show(logs / "rank-0000.log", shown)
        if told and not passed:
            passed = True
            for keeper in keepers:
                with suppress(BrokenPipeError):
                    keeper.stdin.write(STOP)
        failed = [code for code in codes if code]
        if failed or None not in codes or len(told) > 1:
            return 128 + told[0] if told else failed[0] if failed else 0
        if until and time.monotonic() > until:
            missing = [rank for rank in range(size) if not _log(logs, rank).exists()]
            if missing:
                print(
                    f"error: rank {', '.join(map(str, missing))} of {size} did not start within {DEADLINE:.0f} s",
                    file=sys.stderr,
                )
                return 1
            until = None
        time.sleep(0.2)


def end(keepers: Sequence[subprocess.Popen]) -> None:
    """Let the keepers end what is left, and wait for those of them that are here."""
    for keeper in keepers:
        keeper.stdin.close()
    for keeper in keepers:
        try:
            keeper.wait(2 * GRACE)
        except subprocess.TimeoutExpired:
            keeper.kill()


def explain(logs: Path) -> None:
    """The end of the output of the process that failed first, last."""
    tails = {
        path: path.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        for path in sorted(logs.glob("rank-*.log"), key=lambda path: path.stat().st_mtime)
        or sorted(logs.glob("launcher-*.log"))
    }
    hearsay = {path: [line for line in lines if re.match(r"error: rank \d+ \(", line)] for path, lines in tails.items()}
    first = next((path for path in tails if not hearsay[path]), next(iter(tails), None))
    if first is None:
        return
    print(f"\nthe end of {first}, which failed first:", *(f"  {line}" for line in tails[first]), sep="\n")
    if not any("rror: " in line for line in tails[first]):  # killed: the others know
        print(*next(filter(None, hearsay.values()), [])[-1:], sep="\n")


def keep(words: list[str]) -> int:
    """Run a launcher on this machine until it ends or the one who attends to it is gone."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a launcher leaves behind becomes ours
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which gives it to everyone
    process, ending = subprocess.Popen(words, stdin=subprocess.DEVNULL), False
    while process.poll() is None and not ending:
        if select.select([sys.stdin], [], [], 0.2)[0]:
            ending = not os.read(0, len(STOP))
            if not ending:
                _send(signal.SIGTERM, [child for child in _below() if _trains(child)])
    _gone, alive = psutil.wait_procs(_below(), 0 if ending else GRACE)
    for number in (signal.SIGTERM, signal.SIGKILL):
        _send(number, alive)
        _gone, alive = psutil.wait_procs(alive, GRACE / 2)
    return 1 if ending or process.returncode < 0 else process.returncode


def one(logs: Path, words: list[str]) -> int:
    """Become one process of the run: its output in a file of its own, its memory at its processors."""
    me = launchers.detect(os.environ)
    file = os.open(_log(logs, me.rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ["PYTHONUNBUFFERED"] = "1"
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # a launcher that is gone leaves nobody behind
    command = [*_binding(me.local_rank), sys.executable, str(ROOT / "train.py"), *words]
    os.execvp(command[0], command)


def _binding(local_rank: int) -> list[str]:
    """numactl, if it is there and the machine has several nodes: processes in turn."""
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
    if nodes < 2 or not shutil.which("numactl"):
        return []
    return ["numactl", f"--cpunodebind={local_rank % nodes}", f"--membind={local_rank % nodes}"]


def _below() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _trains(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return str(ROOT / "train.py") in process.cmdline()
    return False


def _send(number: int, processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)


def _log(logs: Path, rank: int) -> Path:
    return logs / f"rank-{rank:04d}.log"


def _show(path: Path, start: int) -> int:
    """Print what a file holds beyond `start`; where it ends now."""
    if not path.exists():
        return start
    with open(path, "rb") as file:
        file.seek(start)
        text = file.read()
    sys.stdout.write(text.decode("utf-8", "replace"))
    sys.stdout.flush()
    return start + len(text)
