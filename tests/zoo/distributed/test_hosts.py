"""Two hosts with two processes each: network namespaces of this machine, where it permits them."""

import os
import shutil
import subprocess

import pytest

from tests.commands.test_launch import TOOL, launch
from tests.helpers.processes import MPIRUN, environment, losses, require_framework, train_arguments
from tests.helpers.training import events

IP = shutil.which("ip", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
HOSTS = ("10.213.7.1", "10.213.7.2")  # addresses, which are the names of the namespaces too

pytestmark = pytest.mark.slow


def ip(*arguments):
    return subprocess.run([IP, *arguments], capture_output=True, text=True)


@pytest.fixture(scope="module")
def hosts():
    if IP is None or os.geteuid() or ip("netns", "add", HOSTS[0]).returncode:
        pytest.skip("network namespaces cannot be created here")
    try:
        assert ip("netns", "add", HOSTS[1]).returncode == 0
        link = ip("link", "add", "wire", "netns", HOSTS[0], "type", "veth", "peer", "name", "wire", "netns", HOSTS[1])
        if link.returncode:
            pytest.skip(f"hosts cannot be linked here: {link.stderr}")
        for host in HOSTS:
            for command in (
                ["addr", "add", f"{host}/24", "dev", "wire"],
                ["link", "set", "wire", "up"],
                ["link", "set", "lo", "up"],
            ):
                done = ip("-n", host, *command)
                assert done.returncode == 0, done.stderr
        yield HOSTS
    finally:
        for host in HOSTS:
            ip("netns", "del", host)


@pytest.mark.parametrize("framework", ("torch", "paddle"))  # MindSpore takes a minute; it was tested by hand
def test_two_hosts_train_as_one_process_does(hosts, demo_sets, tmp_path, framework):
    require_framework(framework)

    def arguments(out):
        return train_arguments(demo_sets, "tsm", tmp_path / out, framework, "--max-steps", 4)[1:]

    four = launch(
        "2x2",
        "--hosts",
        ",".join(hosts),
        "--shell",
        f"{IP} netns exec {{host}}",
        "--logs",
        tmp_path / "logs",
        *arguments("four"),
    )
    assert four.returncode == 0, four.stdout + four.stderr
    assert "4 rank(s) x 1 micro-batch(es) x 3 samples = global batch 12" in four.stdout
    one = launch("1x1", "--logs", tmp_path / "logs", *arguments("one"))
    assert one.returncode == 0, one.stdout + one.stderr
    assert losses(tmp_path / "four") == pytest.approx(losses(tmp_path / "one"), rel=1e-5)


@pytest.mark.skipif(MPIRUN is None, reason="mpirun is not installed")
def test_mpirun_trains_on_two_hosts(hosts, demo_sets, tmp_path):
    """The tool runs on the first host; for the second, a stand-in for ssh passes none of its variables on."""
    agent = tmp_path / "agent"
    agent.write_text(
        f'#!/bin/sh\nhost=$1; shift\nexec {IP} netns exec "$host" env -i PATH=/usr/bin:/bin HOME=/root sh -c "$*"\n'
    )
    agent.chmod(0o755)
    arguments = train_arguments(demo_sets, "tsm", tmp_path / "run", "torch", "--max-steps", 2)[1:]
    command = [IP, "netns", "exec", hosts[0], *TOOL, "2x2", "--by", "mpirun", "--hosts", ",".join(hosts)]
    command += ["--logs", str(tmp_path / "logs"), "--mpi-args", f"--mca plm_rsh_agent {agent}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 rank(s) x 1 micro-batch(es) x 3 samples" in done.stdout and len(losses(tmp_path / "run")) == 2
    begin = next(event for event in events(tmp_path / "run") if event["event"] == "begin")
    assert begin["launcher"] == "Open MPI" and begin["hosts"][0]["environment"]["OMP_NUM_THREADS"] == "1"
