"""The store of PyTorch's process group listens at the address of rank 0 alone."""

import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT
from tests.helpers.processes import require_framework
from zoo.distributed.rendezvous import free_port

PROGRAM = """
import socket, sys
import psutil
from zoo.trainer.world import Launch
from zoo.trainer.torch.world import start
rank, port = map(int, sys.argv[1:])
world = start(Launch(rank, 2, rank, "test", "127.0.0.2"), "cpu", port)
if rank == 0:
    listening = [c.laddr for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN]
    print([address.ip for address in listening if address.port == port])
    for address in ("127.0.0.1", "127.0.0.2"):
        with socket.socket() as stranger:
            print(stranger.connect_ex((address, port)) == 0)
world.close()
"""


@pytest.mark.slow
def test_the_store_listens_at_one_address() -> None:
    require_framework("torch")
    port = free_port("127.0.0.2")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert outputs[0][0].splitlines() == ["['127.0.0.2']", "False", "True"]
