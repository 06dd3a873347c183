"""tools/launch.py: the commands of each launcher, and small runs."""

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.paths import ROOT
from tests.helpers.processes import BIN, environment, losses, train_arguments
from zoo.commands import launch as launch_tool
from zoo.distributed.variables import PREFIXES

TOOL = [sys.executable, str(ROOT / "tools/launch.py")]


def launch(*arguments, cwd=ROOT):
    return subprocess.run(
        [*TOOL, *map(str, arguments)], capture_output=True, text=True, env=environment(), cwd=cwd, timeout=200
    )


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["1x1"], ["localhost: {python} {tool} --exec-rank {logs} -c configs/tsm_k400.yaml"]),
        (
            ["1x8"],
            [
                "localhost: {python} -m torch.distributed.run --nnodes=1 --nproc-per-node=8 --node-rank=0 "
                "--master-addr=127.0.0.1 --master-port=7000 {tool} --exec-rank {logs} -c configs/tsm_k400.yaml"
            ],
        ),
        (
            ["2x8", "--hosts", "10.0.0.1,10.0.0.2", "--framework", "paddle"],
            [
                f"10.0.0.{rank + 1}: {{python}} -m paddle.distributed.launch --nnodes=2 --nproc_per_node=8 "
                f"--rank={rank} --log_dir={{logs}}/paddle --master=10.0.0.1:7000 --host=10.0.0.{rank + 1} "
                "{tool} --exec-rank {logs} --framework paddle -c configs/tsm_k400.yaml"
                for rank in (0, 1)
            ],
        ),
        (
            ["2x8", "--hosts", "a,b", "--framework", "mindspore", "--address", "10.0.0.1"],
            [
                host + ": {bin}/msrun --worker_num=16 --local_worker_num=8 --master_addr=10.0.0.1 --master_port=7000 "
                f"--node_rank={rank} --log_dir={{logs}}/msrun-{rank} --join=True {{tool}} --exec-rank {{logs}} "
                "--framework mindspore -c configs/tsm_k400.yaml"
                for rank, host in enumerate("ab")
            ],
        ),
    ],
)
def test_commands(tmp_path, capsys, monkeypatch, arguments, expected):
    for name in [name for name in os.environ if name.startswith(PREFIXES)]:
        monkeypatch.delenv(name)
    options = ["--port", "7000", "--logs", str(tmp_path), "--dry-run", "-c", "configs/tsm_k400.yaml"]
    assert call_zoo("launch", *arguments, *options) == 0
    lines = capsys.readouterr().out.splitlines()
    command = shlex.split(lines[0])
    logs = command[command.index("--exec-rank") + 1]
    assert lines == [
        line.format(python=sys.executable, tool=ROOT / "tools/launch.py", logs=logs, bin=BIN) for line in expected
    ]
    assert not os.listdir(tmp_path)


def test_the_dry_run_lists_variables(tmp_path, capsys, monkeypatch):
    for name in [name for name in os.environ if name.startswith(PREFIXES)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NCCL_DEBUG", "a b")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    options = ["--logs", str(tmp_path), "--dry-run", "--env", "X=1", "-c", "configs/tsm_k400.yaml"]
    options += ["--by", "mpirun", "--ssh-port", "2222", "--mpi-args=--tag-output"]
    assert call_zoo("launch", "2x8", "--hosts", "a,b", *options) == 0
    command, *rest = capsys.readouterr().out.splitlines()
    assert command.startswith(
        f"a: {BIN}/mpirun -n 16 --map-by ppr:8:node:oversubscribe --bind-to none -x MASTER_ADDR=a "
    )
    expected = "--host a:8,b:8 --mca plm_rsh_args '-p 2222' --tag-output"
    assert " -x NCCL_DEBUG -x X -x ZOO_ENV " in command and expected in command
    assert rest == [
        "env NCCL_DEBUG='a b'",
        "env X=1",
        "env ZOO_ENV=X",
        "not carried unless named with --env: CUDA_VISIBLE_DEVICES",
    ]


@pytest.mark.parametrize(
    "arguments, error",
    [
        (["8"], "expected hosts x processes such as 1x8 or 4x8, got 8"),
        (["2x²"], "expected hosts x processes such as 1x8 or 4x8, got 2x²"),
        (["2x4"], "2x4 needs 2 hosts, but there are 1: localhost"),
        (["1x2", "--hostfile", "nowhere"], "--hostfile nowhere: No such file"),
        (["1x2", "-o", "train.bach=3"], "train.bach"),
        (["1x2", "--env", "A-B=1"], "--env A-B=1: expected NAME or NAME=VALUE"),
        (["1x2", "--mpi-args=-v"], "--mpi-args: is only for --by mpirun and --print k8s"),
        (["1x1", "--by", "mpirun", "--mpi-args=-v"], "--mpi-args: one process is started without mpirun"),
        (["1x2", "--by", "mpirun", "--mpi-args", "'a b"], "--mpi-args 'a b: No closing quotation"),
        (["1x2", "--ssh-port", "22"], "--ssh-port: a single host is not reached by ssh"),
        (["2x2", "--hosts", "a,b", "--ssh-port", "0"], "--ssh-port 0: expected a number from 1 to 65535"),
        (["2x2", "--hosts", "a,b", "--ssh-port", "22", "--shell", "rsh {host}"], "write the port into --shell"),
        (["2x2", "--hosts", "a,b", "--by", "mpirun", "--shell", "rsh {host}"], "--shell: is only for"),
        (["2x2", "--hosts", "a,b", "--shell", "rsh 'a {host}"], "expected a command with {host} in it"),
        (["2x2", "--hosts", "a,b", "--shell", "rsh a"], "expected a command with {host} in it"),
        (["2x2", "--hosts", "a,b", "--shell", "rsh {host} {cmd}"], "{cmd} stands for nothing; there are {host} and"),
        (["2x2", "--hosts", "a,-oProxyCommand=x"], "'-oProxyCommand=x' is not the name or address of a host"),
        (["2x2", "--hosts", "a,b", "--address=-oProxyCommand=x"], "--address -oProxyCommand=x: is not the name"),
        (["2x2", "--hosts", "a,b", "--address", "no-such-host.invalid"], "--address no-such-host.invalid: "),
        (["1x2", "--address", "203.0.113.7"], "--address 203.0.113.7: is not an address of this host"),
        (["1x2", "--logs", "/dev/null/x"], "--logs: cannot make /dev/null/x/"),
        (["2x1", "--hosts", "a:²,b"], "cannot read 'a:²'"),
        (["1x2", "--image", "i"], "--image: is only for --print slurm and --print k8s"),
    ],
)
def test_mistakes_are_reported_before_anything_starts(capsys, arguments, error):
    assert call_zoo("launch", *arguments, "-c", "configs/tsm_demo.yaml") == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: ") and error in errors


@pytest.mark.parametrize("program, error", [("no-such-program", "No such file"), ("/dev/null", "Permission denied")])
def test_a_shell_that_cannot_be_run(tmp_path, capsys, program, error):
    arguments = ["2x1", "--hosts", "a,b", "--address", "127.0.0.1", "--shell", f"{program} {{host}}"]
    assert call_zoo("launch", *arguments, "--logs", str(tmp_path), "-c", "configs/tsm_demo.yaml") == 2
    assert f"error: --shell: cannot run {program}: {error}" in capsys.readouterr().err


def test_two_starts_within_a_second(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(launch_tool, "_new_folder", lambda parent: tmp_path)  # was made after the look
    assert call_zoo("launch", "1x2", "-c", "configs/tsm_demo.yaml") == 2
    assert f"error: --logs: {tmp_path} was made by another start in this second" in capsys.readouterr().err


def test_each_start_has_a_secret_of_its_own_which_is_not_printed(tmp_path, capsys, monkeypatch):
    layouts = []
    monkeypatch.setattr(launch_tool, "_run", lambda launchers, layout, shell: layouts.append((launchers, layout)) or 0)
    options = ["2x2", "--hosts", "a,b", "--logs", str(tmp_path), "-c", "configs/tsm_demo.yaml"]
    for further in ([], [], ["--env", "ZOO_SECRET=chosen"]):
        assert call_zoo("launch", *options[:1], *further, *options[1:]) == 0
    first, second, chosen = (layout.variables["ZOO_SECRET"] for _, layout in layouts)
    assert len({first, second}) == 2 and min(len(first), len(second)) == 32 and chosen == "chosen"
    assert first not in str(layouts[0][0])  # of the commands, which every user of a host can see
    assert call_zoo("launch", *options[:1], "--dry-run", "--by", "mpirun", *options[1:]) == 0
    assert "-x ZOO_SECRET " in capsys.readouterr().out  # by name


@pytest.mark.slow
def test_a_run_prints_rank_0_and_keeps_all_output(demo_sets, tmp_path):
    """Relative paths, here of --out and --logs, are those of the current folder."""
    arguments = train_arguments(demo_sets, "tsm", "run", "torch", "--max-steps", 2)[1:]
    done = launch("1x2", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 2/2" in done.stdout and len(losses(tmp_path / "run")) == 2
    logs = next((tmp_path / "logs").iterdir())
    assert {"rank-0000.log", "rank-0001.log"} <= set(os.listdir(logs))
    assert (logs / "rank-0000.log").read_text() in done.stdout


@pytest.mark.slow
def test_the_failed_rank_is_printed_last(demo_sets, tmp_path):
    arguments = train_arguments(demo_sets, "tsm", tmp_path / "run", "torch", "--weights", "nowhere.safetensors")[1:]
    done = launch("1x2", "--logs", tmp_path / "logs", *arguments)
    assert done.returncode not in (0, None), done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("  error: ") and "nowhere.safetensors" in last
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_sigterm_saves(demo_sets, tmp_path):
    arguments = train_arguments(
        demo_sets, "tsm", tmp_path / "run", "torch", train__epochs=2000, train__save_every="2000 epochs"
    )[1:]
    process = subprocess.Popen(
        [*TOOL, "1x2", "--logs", str(tmp_path / "logs"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
        cwd=ROOT,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (
        not (tmp_path / "run/events.jsonl").exists() or len(losses(tmp_path / "run")) < 3
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 143 and "stopped by signal 15 after saving" in text
    assert (tmp_path / "run/checkpoints/last").exists()
