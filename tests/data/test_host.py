"""Cores and memory of a process, within the limits of its container."""

import os
from types import SimpleNamespace

import pytest

from zoo.data import host


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "CGROUP", tmp_path)
    (tmp_path / "cpu").mkdir()
    return tmp_path


def test_cores_are_those_of_the_affinity_mask():
    assert host.cores() == sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    "cores_of_ranks, shares",
    [
        ([[0, 1, 2, 3]], [4]),
        ([[0, 1, 2, 3]] * 2, [2, 2]),  # nothing is bound
        ([[0, 1], [2, 3, 4]], [2, 3]),  # every rank has cores of its own
        ([[0, 1], [1, 2], [2]], [1.5, 1, 0.5]),
        ([[0]] * 4, [0.25] * 4),
    ],
)
def test_the_share_of_a_rank(cores_of_ranks, shares):
    ranks = range(len(cores_of_ranks))
    assert [host.core_share(cores_of_ranks, rank, None) for rank in ranks] == shares
    assert [host.core_share(cores_of_ranks, rank, 1.0) for rank in ranks] == [
        min(share, 1 / len(cores_of_ranks)) for share in shares
    ]


def test_quota_of_cgroup_v2(cgroup):
    assert host.cpu_quota() is None
    (cgroup / "cpu.max").write_text("max 100000\n")
    assert host.cpu_quota() is None
    (cgroup / "cpu.max").write_text("250000 100000\n")
    assert host.cpu_quota() == 2.5


def test_quota_of_cgroup_v1(cgroup):
    (cgroup / "cpu/cpu.cfs_period_us").write_text("100000\n")
    (cgroup / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    assert host.cpu_quota() is None
    (cgroup / "cpu/cpu.cfs_quota_us").write_text("150000\n")
    assert host.cpu_quota() == 1.5


def test_available_memory(cgroup, monkeypatch):
    monkeypatch.setattr(host.psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    assert host.available_memory() == 1000
    (cgroup / "memory.current").write_text("300\n")
    (cgroup / "memory.max").write_text("max\n")
    assert host.available_memory() == 1000
    (cgroup / "memory.max").write_text("700\n")
    assert host.available_memory() == 400
    (cgroup / "memory.max").write_text("200\n")
    assert host.available_memory() == 0
