"""Ranks of one framework on this machine: their start, and the end of all when one fails."""

import os
import subprocess
import time
from collections.abc import Sequence

from zoo.distributed.rendezvous import free_port

POLL_INTERVAL = 0.1  # seconds
GRACE = 20.0  # seconds that the other ranks have to end by themselves after one has failed
LOCALHOST = "127.0.0.1"
MAX_LOG_LINES = 15  # of a framework that failed


def run(command: Sequence[str], count: int, log: str) -> tuple[int, str]:
    """Run a command as ranks 0 to count - 1, whose output goes to one file.

    Args:
        command: program and arguments, the same for all ranks.
        count: number of ranks; a single process gets no environment of ranks.
        log: path of the file, which is overwritten.

    Returns:
        The first exit code that is not 0, and the end of the output; 0 and "" if all went well.
    """
    port = free_port(LOCALHOST)
    with open(log, "w", encoding="utf-8") as file:
        processes = [
            subprocess.Popen(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_rank_variables(rank, count, port)},
            )
            for rank in range(count)
        ]
        code = _wait(processes)
    if not code:
        return 0, ""
    with open(log, encoding="utf-8", errors="replace") as file:
        return code, "".join(file.readlines()[-MAX_LOG_LINES:]).strip()


def _wait(processes: Sequence[subprocess.Popen]) -> int:
    """Wait for all ranks, and end the others soon after one has failed; return the first exit code that is not 0."""
    code, deadline = 0, float("inf")
    while True:
        codes = [process.poll() for process in processes]
        code = code or next((code for code in codes if code), 0)
        if None not in codes:
            return code
        deadline = min(deadline, time.monotonic() + GRACE) if code else deadline
        if time.monotonic() > deadline:
            for process in processes:
                process.kill()
        time.sleep(POLL_INTERVAL)


def _rank_variables(rank: int, size: int, port: int) -> dict[str, str]:
    """Return the environment variables of a rank, those of torchrun; none for a single process."""
    if size == 1:
        return {}
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    return {"MASTER_ADDR": LOCALHOST, **{name: str(number) for name, number in numbers.items()}}
