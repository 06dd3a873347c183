"""Starts of several processes: variables over ssh and mpirun, small runs, two hosts, and which rank failed first."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.paths import ROOT
from tests.helpers.processes import MPIRUN, environment, losses, require_framework, train_arguments
from tests.zoo.distributed import cluster
from zoo.commands import launch as launch_command
from zoo.distributed import launch, launchers
from zoo.distributed.rendezvous import free_port

TOOL = [sys.executable, str(ROOT / "tools/launch.py")]
REPORT = "error: rank 1 (host, process 7) ended without an error message\n"


@pytest.mark.parametrize(
    "logs, first",
    [
        (["fine\n", "error: a\n", "fine\n"], "rank-0001"),
        (["Traceback\nOSError: x\n", "fine\n"], "rank-0000"),
        ([REPORT, "fine\n", REPORT], "rank-0001"),  # it was killed
        ([REPORT, "error: rank 1 (host, process 7): the disk is full\nerror: the disk is full\n"], "rank-0001"),
        (["error: x\n", "error: y\n"], "rank-0001"),  # the older one
        (["fine\n", "fine\n"], "launcher-0"),
    ],
)
def test_the_first_failure(tmp_path, capsys, logs, first):
    for rank, text in enumerate(logs):
        path = tmp_path / f"rank-{rank:04d}.log"
        path.write_text(text)
        os.utime(path, (1000 - rank, 1000 - rank))
    (tmp_path / "launcher-0.log").write_text("no such program\n")
    launch.print_first_failure(tmp_path)
    out = capsys.readouterr().out
    assert f"the end of {tmp_path / first}.log, which failed first:" in out
    assert "rror: " in out or "no such program" in out


@pytest.fixture
def handlers():
    """Restore the signal handlers of this process, which a start sets."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before):
        signal.signal(number, handler)


@pytest.fixture
def fakes(tmp_path, no_variables, handlers, monkeypatch):
    monkeypatch.setenv("PATH", cluster.path_with(tmp_path))
    monkeypatch.setenv("NCCL_DEBUG", cluster.AWKWARD)
    monkeypatch.setenv("FLAGS_x", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    monkeypatch.setenv("NOT_FOR_RUNS", "1")
    return cluster.install(tmp_path)


def test_variables_over_ssh(fakes, tmp_path, monkeypatch, capfd):
    """The runner on each host gets them before it starts the launcher, here a probe."""

    def build(layout, framework, device, script):
        return [(host, [sys.executable, str(fakes), *script[3:]]) for host in layout.hosts]

    monkeypatch.setattr(launchers, "build", build)
    arguments = ["2x1", "--hosts", "n1,n2", "--ssh-port", "2222", "--logs", str(tmp_path / "logs"), "--env", "A=b c"]
    assert call_zoo("launch", *arguments, "--env", "WANDB_API_KEY=abc", "-c", "tsm_demo") == 0
    calls = sorted((tmp_path / "ssh.log").read_text().split("---\n")[:-1])  # they run at the same time
    assert [call.split("\n")[:5] for call in calls] == [
        ["-p", "2222", "-o", "BatchMode=yes", host] for host in ("n1", "n2")
    ]
    assert "abc" not in "".join(calls)  # command lines are visible to all users of a host
    files = sorted(next((tmp_path / "logs").iterdir()).glob("launcher-*.log"))
    found = [json.loads(file.read_text()) for file in files]
    assert [report["environment"]["FAKE_HOST"] for report in found] == ["n1", "n2"]
    for report in found:
        variables = report["environment"]
        assert report["folder"] == os.getcwd() and report["arguments"][1:] == ["-c", "tsm_demo"]
        expected = {"NCCL_DEBUG": cluster.AWKWARD, "FLAGS_x": "1", "A": "b c", "WANDB_API_KEY": "abc"}
        assert {name: variables.get(name) for name in expected} == expected
        assert variables["ZOO_ENV"] == "A,WANDB_API_KEY"
        assert "CUDA_VISIBLE_DEVICES" not in variables and "NOT_FOR_RUNS" not in variables


def test_a_host_that_is_not_reached(fakes, tmp_path, capfd):
    (tmp_path / "ssh").write_text("#!/bin/sh\necho 'ssh: connect to host n1: No route to host' >&2\nexit 255\n")
    assert call_zoo("launch", "2x1", "--hosts", "n1,n2", "--logs", str(tmp_path / "logs"), "-c", "tsm_demo") == 255
    assert "No route to host" in capfd.readouterr().out


@pytest.mark.skipif(MPIRUN is None, reason="mpirun is not installed")
def test_mpirun_places_the_ranks_and_passes_variables(fakes, tmp_path):
    """Two hosts with two ranks each: Open MPI starts its daemons by ssh, in an environment without our variables."""
    variables = {"NCCL_DEBUG": cluster.AWKWARD, "A": "b c"}
    layout = launchers.Layout(["n1", "n2"], 2, "127.0.0.1", 7000, tmp_path, "mpirun", variables, [], 2222)
    [(host, command)] = launchers.build(layout, "torch", "cpu", [str(fakes), "-c", "x.yaml"])
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, **variables}, cwd=tmp_path
    )
    assert host == "n1" and done.returncode == 0, done.stderr
    found = cluster.reports(done.stdout)
    starts = [report["launch"] for report in found]
    assert [(start["rank"], start["local_rank"], start["size"]) for start in starts] == [
        (0, 0, 4), (1, 1, 4), (2, 0, 4), (3, 1, 4)
    ]  # fmt: skip
    assert [report["environment"]["FAKE_HOST"] for report in found] == ["n1", "n1", "n2", "n2"]
    for report in found:
        assert report["launch"]["address"] == "127.0.0.1" and report["arguments"] == ["-c", "x.yaml"]
        assert {name: report["environment"].get(name) for name in variables} == variables
        assert "NOT_FOR_RUNS" not in report["environment"]
    assert (tmp_path / "ssh.log").read_text().count("-p\n2222\n") == 2


def start(*arguments, cwd=ROOT, before=()):
    return subprocess.run(
        [*before, *TOOL, *map(str, arguments)], capture_output=True, text=True, env=environment(), cwd=cwd, timeout=300
    )


@pytest.mark.slow
def test_a_run_prints_rank_0_and_keeps_all_output(demo_sets, tmp_path):
    """Relative paths, here of --out and --logs, are those of the current folder."""
    arguments = train_arguments(demo_sets, "tsm", "run", "torch", "--max-steps", 2)[1:]
    done = start("1x2", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "best        top1" in done.stdout and len(losses(tmp_path / "run")) == 2
    logs = next((tmp_path / "logs").iterdir())
    assert {"rank-0000.log", "rank-0001.log"} <= set(os.listdir(logs))
    assert (logs / "rank-0000.log").read_text() in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "paddle", "mindspore", "jax"])
@pytest.mark.parametrize("fails", [False, True])
def test_logs_hold_no_secret_and_are_private(handlers, no_variables, tmp_path, framework, fails):
    """With a device, as here by its name, Paddle's launcher writes the whole environment to the folder of its logs."""
    require_framework(framework)
    probe, logs = tmp_path / "probe.py", Path(launch_command._new_logs(tmp_path / "logs", False))
    probe.write_text(f"import os; assert os.environ['HF_TOKEN'] == 'marker'; os._exit({int(fails)})")
    variables = {"ZOO_SECRET": "marker", "HF_TOKEN": "marker", "PADDLE_LOG_DIR": str(logs)}
    words = {"hosts": ["localhost"], "processes_per_host": 2, "address": "127.0.0.1", "port": free_port("127.0.0.1")}
    layout = launchers.Layout(
        **words, logs=logs, launcher=launchers.default(framework), variables=variables, mpi_args=[], ssh_port=None
    )
    commands = launchers.build(layout, framework, "gpu", [str(probe)])
    assert bool(launch.run(commands, layout, launchers.SHELL)) == fails
    files = [path for path in logs.rglob("*") if path.is_file()]
    assert files and not [path for path in files if "marker" in path.read_text(errors="replace")]
    assert logs.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_sigterm_saves(demo_sets, tmp_path):
    changes = dict(train__epochs=2000, train__save_every="2000 epochs")
    arguments = train_arguments(demo_sets, "tsm", tmp_path / "run", "torch", **changes)[1:]
    process = subprocess.Popen(
        [*TOOL, "1x2", "--logs", str(tmp_path / "logs"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
        cwd=ROOT,
    )
    deadline = time.monotonic() + 120
    journal = tmp_path / "run/events.jsonl"
    while time.monotonic() < deadline and (not journal.exists() or len(losses(tmp_path / "run")) < 3):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 143 and "stopped by signal 15 after saving" in text
    assert (tmp_path / "run/checkpoints/last").exists()


# Two hosts with two processes each: network namespaces of this machine, where it permits them.
IP = shutil.which("ip", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
HOSTS = ("10.213.7.1", "10.213.7.2")  # addresses, which are the names of the namespaces too


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
            for words in (f"addr add {host}/24 dev wire", "link set wire up", "link set lo up"):
                done = ip("-n", host, *words.split())
                assert done.returncode == 0, done.stderr
        yield HOSTS
    finally:
        for host in HOSTS:
            ip("netns", "del", host)


@pytest.mark.slow
def test_two_hosts_train_as_one_process_does(hosts, demo_sets, tmp_path):
    require_framework("torch")
    run = {}
    shell = ["--hosts", ",".join(hosts), "--shell", f"{IP} netns exec {{host}}"]
    for world, options in (("2x2", shell), ("1x1", [])):
        arguments = train_arguments(demo_sets, "tsm", tmp_path / world, "torch", "--max-steps", 4)[1:]
        run[world] = start(world, *options, "--logs", tmp_path / "logs", *arguments)
        assert run[world].returncode == 0, run[world].stdout + run[world].stderr
    assert "4 rank(s) x 1 micro-batch(es) x 3 samples = global batch 12" in run["2x2"].stdout
    assert losses(tmp_path / "2x2") == pytest.approx(losses(tmp_path / "1x1"), rel=1e-5)
