"""Detection of the launcher that started this process, from its environment variables.

A launcher gives rank, world size and the address of rank 0, nothing else. Rank 0 chooses the port of the framework's
own process group and broadcasts it (zoo/distributed/control_group.py), so every launcher can start every framework.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zoo.data.errors import UserError
from zoo.data.numerals import natural
from zoo.trainer.world import Launch


class Launcher(NamedTuple):
    """Environment variables of one launcher; where several are listed, the first that is set counts.

    address: host or host:port of rank 0; job: all variables that distinguish one start from another.
    """

    name: str
    size: str
    rank: str
    local_rank: tuple[str, ...]
    address: tuple[str, ...]
    job: tuple[str, ...]


# A general launcher may start one launcher of a framework per machine; then the latter's variables count.
FRAMEWORK_LAUNCHERS = (
    Launcher(
        "torchrun",
        "WORLD_SIZE",
        "RANK",
        ("LOCAL_RANK",),
        ("MASTER_ADDR",),
        ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    ),
    Launcher(
        "paddle.distributed.launch",
        "PADDLE_TRAINERS_NUM",
        "PADDLE_TRAINER_ID",
        ("PADDLE_LOCAL_RANK", "PADDLE_RANK_IN_NODE"),
        ("PADDLE_TRAINER_ENDPOINTS", "PADDLE_MASTER"),
        ("PADDLE_MASTER", "PADDLE_TRAINER_ENDPOINTS"),
    ),
    Launcher("msrun", "MS_WORKER_NUM", "RANK_ID", ("DEVICE_ID",), ("MS_SCHED_HOST",), ("MS_SCHED_PORT",)),
)
GENERAL_LAUNCHERS = (
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("MASTER_ADDR",),
        ("MASTER_PORT", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    Launcher("MPICH", "PMI_SIZE", "PMI_RANK", ("MPI_LOCALRANKID",), ("MASTER_ADDR",), ("MASTER_PORT", "PMI_JOBID")),
    Launcher(
        "srun",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_PROCID",
        ("SLURM_LOCALID",),
        ("MASTER_ADDR", "SLURM_STEP_NODELIST"),
        ("MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
)
LOCAL_SIZE_VARIABLES = {"Open MPI": "OMPI_COMM_WORLD_LOCAL_SIZE", "MPICH": "MPI_LOCALNRANKS"}


def detect(environ: Mapping[str, str]) -> Launch:
    """Return the launch that the environment describes; without any launcher, that of a single process.

    Raises:
        UserError: The environment contradicts itself, or lacks the address of rank 0.
    """
    if environ.get("MS_ROLE") == "MS_SCHED":
        sys.exit(0)  # msrun starts one process more as MindSpore's scheduler, but here rank 0 starts the scheduler
    # srun sets PMI_RANK and PMI_SIZE too where pmi2 is the default of the site; MPICH's mpirun sets MPI_LOCALRANKID.
    is_srun = "SLURM_STEP_NUM_TASKS" in environ and "MPI_LOCALRANKID" not in environ
    general = [launcher for launcher in GENERAL_LAUNCHERS if not (launcher.name == "MPICH" and is_srun)]
    inner, outer = _find(FRAMEWORK_LAUNCHERS, environ), _find(general, environ)
    if inner and outer and _integer(inner.size, environ) == 1 < _integer(outer.size, environ):
        raise UserError(
            f"{outer.name} started {environ[outer.size]} processes ({outer.size}), but {inner.size}=1 makes each of "
            f"them a run of its own; unset {inner.size}"
        )
    launcher = inner or outer
    if launcher is None or _integer(launcher.size, environ) == 1:
        return Launch()
    size, rank = _integer(launcher.size, environ), _integer(launcher.rank, environ)
    if not 0 <= rank < size:
        raise UserError(
            f"{launcher.rank}={rank} is not a rank of {size} processes ({launcher.size}); "
            f"ranks count from 0 to {size - 1}"
        )
    local_rank = next((variable for variable in launcher.local_rank if environ.get(variable)), None)
    return Launch(
        rank,
        size,
        rank if local_rank is None else _integer(local_rank, environ),
        launcher.name,
        address=_root_address(launcher, size, environ),
        job=" ".join(environ[variable] for variable in launcher.job if environ.get(variable)),
    )


def _find(launchers: Sequence[Launcher], environ: Mapping[str, str]) -> Launcher | None:
    """Return the launcher whose world size is set, preferring one with a world size above 1."""
    present = [launcher for launcher in launchers if environ.get(launcher.size)]
    return next((launcher for launcher in present if environ[launcher.size] != "1"), present[0] if present else None)


def _integer(variable: str, environ: Mapping[str, str]) -> int:
    text = environ.get(variable)
    if text is None:
        raise UserError(
            f"the environment describes several processes, but {variable} is not set; start them with a launcher "
            "such as torchrun or mpirun, or unset the variables that one has left behind"
        )
    number = natural(text)
    if number is None:
        raise UserError(f"{variable}={text}: expected a number")
    return number


def _root_address(launcher: Launcher, size: int, environ: Mapping[str, str]) -> str:
    """Return the host of rank 0."""
    for variable in launcher.address:
        text = environ.get(variable, "")
        if text:
            first = re.sub(r"\[(\d+)[-,\d]*\]", r"\1", text, count=1)  # gpu[03-07,09],login: gpu03
            host = first.split(",")[0].split("://")[-1]
            return host.rpartition(":")[0] if host.count(":") == 1 else host  # more colons: an IPv6 address
    if environ.get(LOCAL_SIZE_VARIABLES.get(launcher.name, ""), "") == str(size):
        return "127.0.0.1"
    raise UserError(
        f"{launcher.name} does not give the address of rank 0; export {launcher.address[0]}=HOST to all processes "
        "(mpirun: -x MASTER_ADDR=HOST)"
    )
