"""Hosts of the command line and of files, commands of the launchers, and options of a start."""

import os
import shlex
import sys

import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.files import write_list
from tests.helpers.processes import BIN
from zoo import program
from zoo.data.errors import UserError
from zoo.distributed import launch, launchers
from zoo.distributed.launchers import read_hosts, read_world


def test_hosts_and_processes():
    assert [read_world(text) for text in ("8", "1x8", "4X8")] == [(1, 8), (1, 8), (4, 8)]
    for text in ("", "0", "2x", "2x0", "2x²", "1x2x3", "-1"):
        with pytest.raises(UserError, match="--worlds: expected HOSTSxPROCESSES"):
            read_world(text, "--worlds")


@pytest.mark.parametrize(
    "names, expected",
    [
        (None, ["localhost"]),
        ("n1, n2.example.org", ["n1", "n2.example.org"]),
        ("n1:8,n2:8", ["n1", "n2"]),
        ("10.0.0.1,fe80::1%eth0,::1", ["10.0.0.1", "fe80::1%eth0", "::1"]),
    ],
)
def test_hosts_of_the_command_line(names, expected):
    assert read_hosts(names, None, len(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "# two hosts\n\nn1 slots=8  # the first\nn2 slots = 16 max_slots=16\n",
        "n1:8\nn2:9\n",
        "n1\n" * 8 + "n2\n" * 8,  # a batch system: one line per slot
        "n1:4\nn2:8\nn1:4\n",
    ],
)
def test_hosts_of_a_file(tmp_path, text):
    assert read_hosts(None, write_list(tmp_path, text), 2) == ["n1", "n2"]


@pytest.mark.parametrize(
    "text, error",
    [
        ("n1\nn2 slot=8\n", "'n2 slot=8' is not a host"),
        ("n1:x\nn2", "'n1:x' is not a host"),
        ("me@n1\nn2", "'me@n1' is not a host"),
        ("n1\n-oProxyCommand=x\n", "'-oProxyCommand=x' is not a host"),
        ("n1\nn1\n", "2 hosts are needed, but there are 1"),
        ("n1\nn2\nn3\n", "2 hosts are needed, but there are 3"),
        ("# nothing\n\n", "there are 0"),
        (b"\xff\xfe", "--hostfile"),
    ],
)
def test_mistakes_in_a_file(tmp_path, text, error):
    with pytest.raises(UserError) as caught:
        read_hosts(None, write_list(tmp_path, text, "hosts"), 2)
    assert error in str(caught.value)


COMMANDS = {
    "1x1": ["localhost: {python} {rank} -c tsm_k400"],
    "1x8": [
        "localhost: {python} -m torch.distributed.run --nnodes=1 --nproc-per-node=8 --node-rank=0 "
        "--master-addr=127.0.0.1 --master-port=7000 {rank} -c tsm_k400"
    ],
    "2x8 --hosts 10.0.0.1,10.0.0.2 --framework paddle": [
        f"10.0.0.{rank + 1}: {{python}} -m paddle.distributed.launch --nnodes=2 --nproc_per_node=8 --rank={rank} "
        f"--master=10.0.0.1:7000 --host=10.0.0.{rank + 1} {{rank}} "
        "--framework paddle -c tsm_k400"
        for rank in (0, 1)
    ],
    "2x8 --hosts a,b --framework mindspore --address 10.0.0.1": [
        host + ": {bin}/msrun --worker_num=16 --local_worker_num=8 --master_addr=10.0.0.1 --master_port=7000 "
        f"--node_rank={rank} --log_dir={{logs}}/msrun-{rank} --join=True {{rank}} --framework mindspore -c tsm_k400"
        for rank, host in enumerate("ab")
    ],
    "1x2 --framework jax": [
        "localhost: {bin}/mpirun -n 2 --map-by ppr:2:node:oversubscribe --bind-to none -x MASTER_ADDR=127.0.0.1 "
        "-x MASTER_PORT=7000 -x ZOO_SECRET{root} {python} {rank} --framework jax -c tsm_k400"
    ],
}


@pytest.mark.parametrize("words", COMMANDS)
def test_commands(tmp_path, capsys, no_variables, words):
    assert call_zoo("launch", *words.split(), "--port=7000", f"--logs={tmp_path}", "--dry-run", "-c", "tsm_k400") == 0
    lines = capsys.readouterr().out.splitlines()
    first = shlex.split(lines[0])
    logs = first[first.index("--exec-rank") + 1]
    names = dict(python=sys.executable, rank=f"{program.MAIN} launch --exec-rank {logs}", logs=logs, bin=BIN)
    names["root"] = "" if os.geteuid() else " --allow-run-as-root"
    assert lines == [line.format(**names) for line in COMMANDS[words]]
    assert not os.listdir(tmp_path)


def test_the_dry_run_lists_variables(tmp_path, capsys, no_variables, monkeypatch):
    monkeypatch.setenv("NCCL_DEBUG", "a b")
    options = ["--logs", str(tmp_path), "--dry-run", "--env", "X=1", "-c", "tsm_k400"]
    options += ["--by", "mpirun", "--ssh-port", "2222", "--mpi-args=--tag-output"]
    assert call_zoo("launch", "2x8", "--hosts", "a,b", *options) == 0
    line, *rest = capsys.readouterr().out.splitlines()
    assert line.startswith(
        f"a: {BIN}/mpirun -n 16 --map-by ppr:8:node:oversubscribe --bind-to none -x MASTER_ADDR=a -x MASTER_PORT="
    )
    assert " -x NCCL_DEBUG -x X -x ZOO_ENV " in line
    assert "--host a:8,b:8 --mca plm_rsh_args '-p 2222' --tag-output" in line
    variables = ["env NCCL_DEBUG='a b'", "env X=1", "env ZOO_ENV=X"]
    assert rest == variables
    assert launchers.mpi_placement(8, ["--bind-to", "core"]) == ["--map-by", "ppr:8:node:oversubscribe"]  # once


@pytest.mark.parametrize(
    "words, error",
    [
        ("2x4", "2 hosts are needed, but there are 1: localhost"),
        ("2x2 --hosts a,b --hostfile c", "give one of them"),
        ("1x2 --hostfile nowhere", "--hostfile nowhere cannot be read"),
        ("1x2 -o train.bach=3", "train.bach"),
        ("1x2 --mpi-args=-v", "--mpi-args: is only for --by mpirun and --print k8s"),
        ("1x2 --by mpirun --mpi-args 'a", "--mpi-args 'a: No closing quotation"),
        ("2x2 --hosts a,b --shell rsh", "expected a command with {host} in it"),
        ("1x2 --framework jax --by native", "--by native: jax has no launcher of its own; leave it out"),
        ("1x2 --framework jax --shell ssh{host}", "--shell: is only for starts by the framework's own launcher"),
        ("1x2 --logs /dev/null/x", "--logs: cannot make a folder in /dev/null/x: "),
        ("1x2 --image i", "--image: is only for --print slurm and --print k8s"),
        ("2x1 --hosts a,b --shell /dev/null/{host} --logs {logs}", "--shell: cannot run /dev/null/a"),
    ],
)
def test_mistakes_are_reported_before_anything_starts(tmp_path, capsys, words, error):
    arguments = [word.replace("{logs}", str(tmp_path)) for word in words.split()]
    assert call_zoo("launch", *arguments, "-c", "tsm_demo") == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: ") and error in errors


def test_each_start_has_a_secret_of_its_own_which_is_not_printed(tmp_path, capsys, monkeypatch):
    starts = []
    monkeypatch.setattr(launch, "run", lambda commands, layout, shell: starts.append((commands, layout)) or 0)
    options = ["2x2", "--hosts", "a,b", "--logs", str(tmp_path), "-c", "tsm_demo"]
    for further in ([], [], ["--env", "ZOO_SECRET=chosen"]):
        assert call_zoo("launch", *options[:1], *further, *options[1:]) == 0
    first, second, chosen = (layout.variables["ZOO_SECRET"] for _, layout in starts)
    assert len({first, second}) == 2 and min(len(first), len(second)) == 32 and chosen == "chosen"
    assert first not in str(starts[0][0])  # of the commands, which every user of a host can see
    assert starts[0][1].logs.parent == tmp_path


LINE = f"cd {shlex.quote(os.getcwd())} && exec train 'a b'"


@pytest.mark.parametrize(
    "shell, port, expected",
    [
        (launchers.SHELL, None, ["ssh", "-o", "BatchMode=yes", "n1", LINE]),
        ("/usr/bin/ssh {host}", 22, ["/usr/bin/ssh", "-p", "22", "n1", LINE]),
        ("kubectl exec -i {host} --", None, ["kubectl", "exec", "-i", "n1", "--", "sh", "-c", LINE]),
        ("ssh {host} {command}", None, ["ssh", "n1", shlex.join(["sh", "-c", LINE])]),
    ],
)
def test_templates_of_the_shell(shell, port, expected):
    assert launchers.remote(shell, "n1", port, ["train", "a b"]) == expected
