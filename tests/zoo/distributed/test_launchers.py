"""Detection of all launchers from recorded environments, and environments that contradict themselves."""

import pytest

from zoo.data.errors import UserError
from zoo.distributed.launchers import detect
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
