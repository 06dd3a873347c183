"""Variables that the frameworks read, on hosts with limits."""

import os
import socket
from types import SimpleNamespace

import pytest

from zoo.data import host
from zoo.distributed import environment
from zoo.trainer.world import Launch

HERE = socket.gethostname()
EIGHT = list(range(8))


def group(*ranks, rank=0):
    """Ranks (host, cores); this process is one of them."""
    return SimpleNamespace(
        rank=rank, size=len(ranks), launch=Launch(), all_gather=lambda mine: [list(r) for r in ranks]
    )


@pytest.mark.parametrize(
    "ranks, rank, quota, threads",
    [
        ([(HERE, EIGHT)], 0, None, None),  # libraries count the cores themselves
        ([(HERE, EIGHT)], 0, 8.0, None),
        ([(HERE, EIGHT)], 0, 2.5, "2"),
        ([(HERE, EIGHT)], 0, 0.5, "1"),
        ([(HERE, EIGHT)] * 2, 1, None, "4"),
        ([(HERE, EIGHT)] * 2, 1, 6.0, "3"),
        ([("other", EIGHT), (HERE, EIGHT)], 1, None, None),
        ([("other", EIGHT), (HERE, EIGHT), (HERE, EIGHT)], 2, None, "4"),
        ([(HERE, EIGHT[:4]), (HERE, EIGHT[4:])], 1, None, None),  # each has cores of its own
        ([(HERE, EIGHT[:4]), (HERE, EIGHT[4:])], 1, 4.0, "2"),
    ],
)
def test_threads_of_a_process(monkeypatch, ranks, rank, quota, threads):
    monkeypatch.setattr(host, "cores", lambda: ranks[rank][1])
    monkeypatch.setattr(host, "cpu_quota", lambda: quota)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    environment.prepare(group(*ranks, rank=rank))
    assert os.environ["OMP_NUM_THREADS"] == "5"  # set by the user

    monkeypatch.delenv("OMP_NUM_THREADS")
    environment.prepare(group(*ranks, rank=rank))
    assert os.environ.get("OMP_NUM_THREADS") == threads
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
