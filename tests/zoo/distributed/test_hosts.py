"""Two hosts with two processes each: network namespaces of this machine, where it permits them."""

import os
import shutil
import subprocess

import pytest

from tests.helpers.processes import losses, require_framework, train_arguments
from tests.tools.test_launch import launch

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
