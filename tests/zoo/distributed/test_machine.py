"""Hardware, libraries and environment of hosts: from made-up /proc, /sys and /dev, and over several ranks."""

import os
import platform
from collections import namedtuple
from types import SimpleNamespace

import pytest

from zoo.distributed import machine

CPUINFO = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz\n"
LIBRARIES = {"cuda": "12.6", "cudnn": "9.5.1", "nccl": "2.26.2", "cann": None}


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def roots(tmp_path, monkeypatch):
    """A machine without any files; tests add them."""
    for name in ("proc", "sys", "dev"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(machine, name.upper(), tmp_path / name)
    monkeypatch.setattr(machine, "ASCEND_DRIVER", tmp_path / "version.info")
    monkeypatch.setattr(machine.host, "CGROUP", tmp_path / "cgroup")
    return tmp_path


def add_cpus(root, sockets, cores, threads):
    """Add the topology of `cores` physical cores per socket, with so many threads each."""
    count = sockets * cores
    for cpu in range(count * threads):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        write(folder / "physical_package_id", f"{cpu % count // cores}\n")
        write(folder / "core_id", f"{cpu % cores}\n")  # counts from 0 in every socket


def test_a_server(roots):
    write(roots / "proc/cpuinfo", CPUINFO * 2)
    add_cpus(roots, sockets=2, cores=20, threads=2)
    write(roots / "sys/class/dmi/id/sys_vendor", "Inventec\n")
    write(roots / "sys/class/dmi/id/product_name", "B900G2\n")
    write(roots / "sys/module/nvidia/version", "550.54.15\n")
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        write(roots / "dev" / name)
    found = machine.describe(LIBRARIES, str(roots))
    assert (found["cpu"], found["sockets"], found["cores"]) == ("Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz", 2, 40)
    assert (found["hardware"], found["driver"], found["accelerators_present"]) == ("Inventec B900G2", "550.54.15", 2)
    assert found["libraries"].items() >= LIBRARIES.items() and found["libraries"]["numpy"]
    assert found["storage_bytes"] == os.statvfs(roots).f_blocks * os.statvfs(roots).f_frsize
    assert (found["kernel"], found["python"]) == (platform.release(), platform.python_version())


def test_an_arm_machine_with_npus(roots):
    write(roots / "proc/cpuinfo", "processor\t: 0\nCPU part\t: 0xd01\n")
    write(roots / "proc/device-tree/model", "Kunpeng 920\0")
    write(roots / "version.info", "Version=24.1.0\nascendhal_version=7.35.23\n")
    for number in range(8):
        write(roots / f"dev/davinci{number}")
    write(roots / "dev/davinci_manager")
    found = machine.describe({}, str(roots))
    assert found["hardware"] == "Kunpeng 920" and found["cpu"] == (platform.processor() or platform.machine())
    assert (found["driver"], found["accelerators_present"]) == ("24.1.0", 8)


Rank = namedtuple("Rank", "host local cores accelerator", defaults=[None])


def gather(ranks, monkeypatch, quota=None):
    """Return what rank 0 of some ranks gathers."""
    messages = []
    monkeypatch.setattr(machine, "describe", lambda libraries, storage: {"libraries": libraries})
    monkeypatch.setattr(machine.host, "cpu_quota", lambda: quota)
    for rank in ranks:
        monkeypatch.setattr(machine.socket, "gethostname", lambda rank=rank: rank.host)
        monkeypatch.setattr(machine.host, "cores", lambda rank=rank: rank.cores)
        world = SimpleNamespace(accelerator=lambda rank=rank: rank.accelerator, libraries=lambda: LIBRARIES)
        group = SimpleNamespace(all_gather=lambda value: messages.append(value) or [value])
        group.launch = SimpleNamespace(local_rank=rank.local)
        machine.gather(group, world, "/")
    group.all_gather = lambda value: messages
    return machine.gather(group, world, "/")


def test_two_hosts_with_two_gpus_each(monkeypatch):
    ranks = [Rank(f"n{n}", i, [0, 1, 2, 3], {"name": f"card {n}{i}"}) for n in (1, 2) for i in (0, 1)]
    first, second = gather(ranks, monkeypatch)
    assert (first["name"], first["ranks"], second["name"], second["ranks"]) == ("n1", [0, 1], "n2", [2, 3])
    assert [card["name"] for card in second["accelerators"]] == ["card 20", "card 21"]
    assert first["libraries"] == LIBRARIES and first["threads"] == 4


def test_threads_of_bound_ranks_add_up_within_the_quota(monkeypatch):
    ranks = [Rank("n1", 0, [0, 1, 2]), Rank("n1", 1, [2, 3, 4])]
    assert gather(ranks, monkeypatch)[0]["threads"] == 5
    assert gather(ranks, monkeypatch, quota=2.5)[0]["threads"] == 3
    assert gather(ranks, monkeypatch)[0]["accelerators"] == []
