"""Cores and memory of a process, and files that a power cut does not undo."""

import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from zoo.data import durable, host


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
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    assert host.available_memory() == 1000
    (cgroup / "memory.current").write_text("300\n")
    (cgroup / "memory.max").write_text("max\n")
    assert host.available_memory() == 1000
    (cgroup / "memory.max").write_text("700\n")
    assert host.available_memory() == 400
    (cgroup / "memory.max").write_text("200\n")
    assert host.available_memory() == 0


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were synced, in their order."""
    paths: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: paths.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    return paths


def test_a_file_is_synced_before_it_has_its_name_and_the_folder_after(tmp_path: Path, synced: list[str]) -> None:
    durable.replace(str(tmp_path / "file"), b"new", str(tmp_path / ".file"))
    assert (tmp_path / "file").read_bytes() == b"new" and os.listdir(tmp_path) == ["file"]
    assert synced == [str(tmp_path / ".file"), str(tmp_path)]


def test_a_file_that_cannot_be_written_keeps_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        durable.replace(str(tmp_path / "file"), b"new", str(tmp_path / ".file"))
    assert (tmp_path / "file").read_bytes() == b"old"


def test_each_new_folder_is_synced_in_the_one_above(tmp_path: Path, synced: list[str]) -> None:
    durable.make_folders(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir() and synced == [str(tmp_path), str(tmp_path / "a")]
    durable.make_folders(str(tmp_path / "a"))
    assert len(synced) == 2


@pytest.mark.parametrize("of_folder", [False, True])
def test_nothing_is_written_through_a_link(tmp_path: Path, of_folder: bool) -> None:
    folder, victim = tmp_path / "run", tmp_path / "victim"
    (tmp_path / "disk").mkdir()
    folder.symlink_to("disk") if of_folder else folder.mkdir()  # a whole folder may be a link to another disk
    victim.write_text("mine")
    for name in ("file.writing", "text", "journal"):
        (folder / name).symlink_to(victim)
    durable.replace(str(folder / "file"), b"new", str(folder / "file.writing"))
    with open(folder / "text", "w", opener=durable.fresh) as file:
        file.write("new")
    with pytest.raises(OSError, match="/run/journal is a link, which is not followed; remove it"):
        durable.regular(str(folder / "journal"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.mkfifo(folder / "pipe")
    with pytest.raises(OSError, match="pipe is not a regular file; remove it"):
        durable.regular(str(folder / "pipe"), os.O_RDWR | os.O_CREAT)
    with pytest.raises(FileExistsError):
        durable.fresh(str(folder / "pipe"), os.O_WRONLY)
    assert victim.read_text() == "mine"
    assert (folder / "file").read_text() == (folder / "text").read_text() == "new"
    assert not (folder / "file").is_symlink() and not (folder / "text").is_symlink()
