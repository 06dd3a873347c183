"""Variables reach the ranks on other hosts: over ssh, and by Open MPI's own mpirun over a stand-in for ssh."""

import json
import os
import shlex
import signal
import subprocess
import sys

import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.processes import MPIRUN
from tests.zoo.launch import cluster
from zoo.launch import commands

AWKWARD = "two  words, 'single' \"double\" $HOME `x` \\ ; ü\nsecond line"


@pytest.fixture
def fakes(tmp_path, no_variables, monkeypatch):
    monkeypatch.setenv("PATH", cluster.path_with(tmp_path))
    monkeypatch.setenv("NCCL_DEBUG", AWKWARD)
    monkeypatch.setenv("FLAGS_x", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    monkeypatch.setenv("NOT_FOR_RUNS", "1")
    return cluster.install(tmp_path)


@pytest.fixture
def handlers():
    """Put the signal handlers of the test run back."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before):
        signal.signal(number, handler)


def test_variables_over_ssh(fakes, handlers, tmp_path, monkeypatch, capfd):
    """The runner on each host gets them before it starts the launcher, here a probe."""

    def build(layout, framework, device, script):
        return [(host, [sys.executable, str(fakes), *script[2:]]) for host in layout.hosts]

    monkeypatch.setattr(commands, "build", build)
    arguments = ["2x1", "--hosts", "n1,n2", "--ssh-port", "2222", "--logs", str(tmp_path / "logs"), "--env", "A=b c"]
    assert call_zoo("launch", *arguments, "--env", "WANDB_API_KEY=abc", "-c", "configs/tsm_demo.yaml") == 0
    calls = sorted((tmp_path / "ssh.log").read_text().split("---\n")[:-1])  # they run at the same time
    assert [call.split("\n")[:5] for call in calls] == [
        ["-p", "2222", "-o", "BatchMode=yes", host] for host in ("n1", "n2")
    ]
    assert "abc" not in "".join(calls)  # command lines are visible to all users of a host
    files = sorted(next((tmp_path / "logs").iterdir()).glob("launcher-*.log"))
    found = [json.loads(file.read_text()) for file in files]
    assert [report["environment"]["FAKE_HOST"] for report in found] == ["n1", "n2"]
    for report in found:
        environment = report["environment"]
        assert report["folder"] == os.getcwd() and report["arguments"][1:] == ["-c", "configs/tsm_demo.yaml"]
        expected = {"NCCL_DEBUG": AWKWARD, "FLAGS_x": "1", "A": "b c", "WANDB_API_KEY": "abc"}
        assert {name: environment.get(name) for name in expected} == expected
        assert environment["ZOO_ENV"] == "A,WANDB_API_KEY"
        assert "CUDA_VISIBLE_DEVICES" not in environment and "NOT_FOR_RUNS" not in environment


def test_a_host_that_is_not_reached(fakes, handlers, tmp_path, capfd):
    (tmp_path / "ssh").write_text("#!/bin/sh\necho 'ssh: connect to host n1: No route to host' >&2\nexit 255\n")
    arguments = ["2x1", "--hosts", "n1,n2", "--logs", str(tmp_path / "logs"), "-c", "configs/tsm_demo.yaml"]
    assert call_zoo("launch", *arguments) == 255
    assert "No route to host" in capfd.readouterr().out


@pytest.mark.skipif(MPIRUN is None, reason="mpirun is not installed")
def test_mpirun_places_the_ranks_and_passes_variables(fakes, tmp_path):
    """Two hosts with two ranks each: Open MPI starts its daemons by ssh, in an environment without our variables."""
    variables = {"NCCL_DEBUG": AWKWARD, "A": "b c"}
    layout = commands.Layout(["n1", "n2"], 2, "127.0.0.1", 7000, tmp_path, "mpirun", variables, [], 2222)
    [(host, command)] = commands.build(layout, "torch", "cpu", [str(fakes), "-c", "x.yaml"])
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=tmp_path)
    assert host == "n1" and done.returncode == 0, done.stderr
    found = cluster.reports(done.stdout)
    launches = [report["launch"] for report in found]
    assert [(launch["rank"], launch["local_rank"], launch["size"]) for launch in launches] == [
        (0, 0, 4), (1, 1, 4), (2, 0, 4), (3, 1, 4)
    ]  # fmt: skip
    assert [report["environment"]["FAKE_HOST"] for report in found] == ["n1", "n1", "n2", "n2"]
    for report in found:
        assert report["launch"]["address"] == "127.0.0.1" and report["arguments"] == ["-c", "x.yaml"]
        assert {name: report["environment"].get(name) for name in variables} == variables
        assert "NOT_FOR_RUNS" not in report["environment"]
    calls = (tmp_path / "ssh.log").read_text().split("---\n")
    assert all("-p\n2222\n" in call for call in calls[:-1]) and len(calls) == 3


def test_options_of_mpirun_that_are_given_are_not_given_twice():
    assert commands.mpi_placement(8, []) == ["--map-by", "ppr:8:node:oversubscribe", "--bind-to", "none"]
    assert commands.mpi_placement(8, ["--bind-to", "core"]) == ["--map-by", "ppr:8:node:oversubscribe"]


LINE = f"cd {shlex.quote(os.getcwd())} && exec train 'a b'"


@pytest.mark.parametrize(
    "shell, port, expected",
    [
        ("ssh -o BatchMode=yes {host}", None, ["ssh", "-o", "BatchMode=yes", "n1", LINE]),
        ("/usr/bin/ssh {host}", 22, ["/usr/bin/ssh", "-p", "22", "n1", LINE]),
        ("rsh {host}", None, ["rsh", "n1", "sh", "-c", LINE]),
        ("kubectl exec -i {host} --", None, ["kubectl", "exec", "-i", "n1", "--", "sh", "-c", LINE]),
        ("ssh {host} {command}", None, ["ssh", "n1", shlex.join(["sh", "-c", LINE])]),
        ("ssh me@{host} 'nice {command} </dev/stdin'", None,
         ["ssh", "me@n1", f"nice {shlex.join(['sh', '-c', LINE])} </dev/stdin"]),
    ],
)  # fmt: skip
def test_templates_of_the_shell(shell, port, expected):
    assert commands.remote(shell, "n1", port, ["train", "a b"]) == expected


def test_a_command_in_a_template_arrives_as_it_is():
    program = [sys.executable, "-c", "import os, sys; print(os.getcwd(), sys.argv[1:])", "a  'b'", "$HOME"]
    command = commands.remote("sh -c 'true {host} && {command}'", "n1", None, program)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == f"{os.getcwd()} {program[3:]}\n"
