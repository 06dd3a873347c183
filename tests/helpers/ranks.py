"""Two ranks of train.py without a launcher, whose standard output is read here."""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.helpers.paths import ROOT
from tests.helpers.processes import environment, losses
from zoo.distributed.rendezvous import free_port

PROGRAM = "import sys; from zoo.cli import main; sys.exit(main(['train', *sys.argv[1:]]))"


def start_ranks(
    arguments: Sequence[str], before: str = "", variables: Mapping[str, str] | None = None
) -> list[subprocess.Popen[str]]:
    """Start two ranks as torchrun would.

    Args:
        arguments: of train.py.
        before: a Python statement that each rank executes first; it ends with a semicolon.
        variables: environment variables beside those of the launcher.
    """
    launcher = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port("127.0.0.1")),
        **(variables or {}),
    }
    return [
        subprocess.Popen(
            [sys.executable, "-c", before + PROGRAM, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**environment(), **launcher, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]


def wait_for_losses(folder: Path, count: int, seconds: float = 60) -> None:
    """Wait until a run has logged so many losses. Raises TimeoutError if it does not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (folder / "events.jsonl").exists() and len(losses(folder)) >= count:
            return
        time.sleep(0.05)
    raise TimeoutError(f"{folder} has no {count} losses after {seconds:.0f} s")
