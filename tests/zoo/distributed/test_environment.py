"""Environment variables: detection of launchers, what a run carries and records, and threads per process."""

import os
import socket
from types import SimpleNamespace

import pytest

from zoo.data import host
from zoo.data.errors import UserError
from zoo.distributed import environment
from zoo.distributed.environment import (
    HIDDEN,
    NAMED,
    carried,
    check_printable,
    collect,
    describe,
    detect,
    is_secret,
    recorded,
)
from zoo.trainer.world import Launch

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
}
PADDLE = {
    "PADDLE_TRAINER_ID": "1",
    "PADDLE_TRAINERS_NUM": "2",
    "PADDLE_LOCAL_RANK": "1",
    "PADDLE_MASTER": "10.0.0.1:41101",
    "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:41102,10.0.0.1:41103",
}
MSRUN = {
    "MS_WORKER_NUM": "2",
    "RANK_ID": "1",
    "DEVICE_ID": "1",
    "MS_ROLE": "MS_WORKER",
    "MS_SCHED_HOST": "127.0.0.1",
    "MS_SCHED_PORT": "8118",
    "MS_NODE_ID": "1",
    "RANK_SIZE": "2",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-host-77@1",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "99",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "gpu[03-04,07]",
}


@pytest.mark.parametrize(
    "environ, expected",
    [
        ({}, Launch()),
        ({"PATH": "/bin", "SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "99"}, Launch()),  # a script
        (TORCHRUN, Launch(3, 4, 1, "torchrun", "node1", "29500 none 0")),
        ({**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1"}, Launch()),
        (
            PADDLE,
            Launch(1, 2, 1, "paddle.distributed.launch", "10.0.0.1", "10.0.0.1:41101 10.0.0.1:41102,10.0.0.1:41103"),
        ),
        (MSRUN, Launch(1, 2, 1, "msrun", "127.0.0.1", "8118")),
        (OPENMPI, Launch(1, 2, 1, "Open MPI", "127.0.0.1", "prterun-host-77@1")),
        (
            {**OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "MASTER_ADDR": "a", "MASTER_PORT": "7"},
            Launch(1, 2, 1, "Open MPI", "a", "7 prterun-host-77@1"),
        ),
        (MPICH, Launch(1, 2, 1, "MPICH", "127.0.0.1", "")),
        (SLURM, Launch(5, 8, 1, "srun", "gpu03", "99 0")),
        ({**SLURM, "SLURM_STEP_NODELIST": "login,gpu1"}, Launch(5, 8, 1, "srun", "login", "99 0")),
        ({**SLURM, "MASTER_ADDR": "fe80::1"}, Launch(5, 8, 1, "srun", "fe80::1", "99 0")),
        # With pmi2, srun sets variables of MPICH too; MPICH's own mpirun may start its processes through srun.
        ({**SLURM, "PMI_RANK": "5", "PMI_SIZE": "8"}, Launch(5, 8, 1, "srun", "gpu03", "99 0")),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "1", **MPICH}, Launch(1, 2, 1, "MPICH", "127.0.0.1", "")),
        # One launcher per machine, started by another: the inner one knows all processes.
        ({**OPENMPI, **TORCHRUN}, Launch(3, 4, 1, "torchrun", "node1", "29500 none 0")),
        (
            {**SLURM, **PADDLE},
            Launch(1, 2, 1, "paddle.distributed.launch", "10.0.0.1", "10.0.0.1:41101 10.0.0.1:41102,10.0.0.1:41103"),
        ),
    ],
)
def test_detection(environ, expected):
    assert detect(environ) == expected


@pytest.mark.parametrize(
    "environ, message",
    [
        ({"WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "RANK is not set"),
        ({**TORCHRUN, "RANK": "4"}, "RANK=4 is not a rank of 4 processes"),
        ({**TORCHRUN, "RANK": "-1"}, "RANK=-1: expected a number"),
        ({**TORCHRUN, "WORLD_SIZE": "two"}, "WORLD_SIZE=two: expected a number"),
        ({**OPENMPI, "WORLD_SIZE": "1", "RANK": "0"}, "Open MPI started 2 processes .* unset WORLD_SIZE"),
        ({**OPENMPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "does not give the address of rank 0; export MASTER_ADDR"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "does not give the address of rank 0"),
    ],
)
def test_an_environment_that_contradicts_itself(environ, message):
    with pytest.raises(UserError, match=message):
        detect(environ)


def test_the_process_that_msrun_starts_as_scheduler_ends_at_once():
    with pytest.raises(SystemExit) as exit_info:
        detect({**MSRUN, "MS_ROLE": "MS_SCHED"})
    assert exit_info.value.code == 0


ENVIRON = {
    "NCCL_DEBUG": "INFO",
    "NCCL_IB_PKEY": "0x7fff",  # a partition of InfiniBand
    "FLAGS_conv_workspace_size_limit": "4000",
    "OMP_NUM_THREADS": "4",
    "GLOG_v": "3",
    "CUDA_VISIBLE_DEVICES": "2,3",
    "MS_SCHED_PORT": "8118",
    "MS_DEV_RUNTIME_CONF": "memory_statistics:True",
    "TORCH_API_KEY": "abc",
    "NCCL_PROXY": "http://user:pass@proxy:80",
    "MS_a.b": "not a name of shells",
    "HOME": "/root",
    "PATH": "/bin",
}


def test_variables_are_carried_by_prefix():
    assert carried(ENVIRON) == {
        "FLAGS_conv_workspace_size_limit": "4000",
        "GLOG_v": "3",
        "MS_DEV_RUNTIME_CONF": "memory_statistics:True",
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_PKEY": "0x7fff",
        "OMP_NUM_THREADS": "4",
    }


def test_devices_and_named_variables_are_recorded_too():
    environ = {**ENVIRON, NAMED: "HOME,TORCH_API_KEY,GONE"}
    expected = {**carried(ENVIRON), "CUDA_VISIBLE_DEVICES": "2,3", "HOME": "/root", "TORCH_API_KEY": HIDDEN}
    assert recorded(environ) == expected
    assert list(recorded(environ)) == sorted(expected)


@pytest.mark.parametrize(
    "name, secret",
    [
        *((name, True) for name in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "NCCL_KEY", "FLAGS_passwd", "TORCH_PASS")),
        *((name, True) for name in ("SLACK_WEBHOOK_URL", "GITHUB_PAT", "AZURE_SAS", "NCCL_SAS_URL", "SENTRY_DSN")),
        *((name, True) for name in ("AZURE_STORAGE_CONNECTION_STRING", "DATABASE_DSN", "TEAMS_WEBHOOK")),
        *((name, False) for name in ("PATH", "GLOO_PATTERN", "NCCL_SASL", "MS_PATIENCE")),
        *((name, False) for name in ("FLAGS_pir_apply_inplace_pass", "MS_DEV_ENABLE_PASS_CIRCLE_RECOVERY", "PASSIVE")),
        *((name, False) for name in ("NCCL_IB_PKEY", "KMP_AFFINITY", "TORCH_LOGS")),
    ],
)
def test_secrets_are_recognized(name, secret):
    assert is_secret(name, "1") == secret


CALLER = {"NCCL_DEBUG": "INFO", "HOME": "/root", "CUDA_VISIBLE_DEVICES": "1", "HF_TOKEN": "abc"}


def test_variables_of_the_caller_and_of_env():
    assert collect([], CALLER) == {"NCCL_DEBUG": "INFO"}
    named = ["HOME", "NCCL_DEBUG=a=b 'c'\n", "CUDA_VISIBLE_DEVICES", "EMPTY="]
    assert collect(named, CALLER) == {
        "NCCL_DEBUG": "a=b 'c'\n",
        "HOME": "/root",
        "CUDA_VISIBLE_DEVICES": "1",
        "EMPTY": "",
        "ZOO_ENV": "HOME,NCCL_DEBUG,CUDA_VISIBLE_DEVICES,EMPTY",
    }


@pytest.mark.parametrize(
    "text, error",
    [
        ("NOT_SET", "--env NOT_SET: not set here; give its value, --env NOT_SET=VALUE"),
        ("1A=x", "--env 1A=x: expected NAME or NAME=VALUE"),
        ("MASTER_ADDR=n1", "--env MASTER_ADDR: launchers set this variable"),
    ],
)
def test_mistakes_of_env(text, error):
    with pytest.raises(UserError, match=error):
        collect([text], CALLER)


def test_secrets_are_neither_shown_nor_written_down():
    assert describe(collect(["HF_TOKEN", "A=b c"], CALLER)) == [
        "env NCCL_DEBUG=INFO",
        "env HF_TOKEN=(hidden)",
        "env A='b c'",
        "env ZOO_ENV=HF_TOKEN,A",
    ]
    check_printable(collect(["A=b c"], CALLER))
    with pytest.raises(UserError, match="--env HF_TOKEN: looks like a secret, which --print would write down"):
        check_printable(collect(["HF_TOKEN"], CALLER))


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


@pytest.mark.parametrize(
    "given, number, is_busy, expected",
    [
        (None, None, False, "threads: 8, one per core"),
        ("3", "3", False, "threads: 3, as OMP_NUM_THREADS says"),
        (None, "4", False, "threads: 4, the share of this process in 8 cores"),
        (None, None, True, "threads: 8, one per core; other programs compute here: threads sleep while they wait, and "
                           "small models are faster with OMP_NUM_THREADS=1"),
        ("1", "1", True, "threads: 1, as OMP_NUM_THREADS says"),
    ],
)  # fmt: skip
def test_the_number_of_threads_is_explained(monkeypatch, given, number, is_busy, expected):
    monkeypatch.setattr(host, "cores", lambda: EIGHT)
    environ = {"OMP_NUM_THREADS": number} if number else {}
    assert environment.describe_threads(given, {**environ, **(environment.SLEEPING if is_busy else {})}) == expected


@pytest.mark.parametrize(
    "line, given, expected",
    [
        ("0.00 0.00 0.00 3/500 4242", {}, environment.SLEEPING),
        ("9.00 9.00 9.00 1/500 4242", {}, {}),  # what was an hour ago does not count
        ("0.00 0.00 0.00 3/500 4242", {"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
        ("", {}, {}),  # not Linux
    ],
)
def test_threads_sleep_while_they_wait_where_other_programs_compute(monkeypatch, tmp_path, line, given, expected):
    (tmp_path / "loadavg").write_text(line)
    monkeypatch.setattr(host, "LOADS", tmp_path / "loadavg")
    for name in environment.SLEEPING:
        monkeypatch.setenv(name, "")  # so that what is set here ends with the test
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    environment.prepare(group((HERE, EIGHT), rank=0))
    assert {name: os.environ[name] for name in environment.SLEEPING if name in os.environ} == expected
