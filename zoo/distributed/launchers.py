"""Who started this process, and as which rank: the environment of any launcher as one Launch.

A launcher only counts processes here. What the frameworks need to find each other is made by rank 0 and told through
zoo/distributed/control_group.py, so every launcher can start every framework.
"""

import re
import sys
from collections.abc import Mapping
from typing import NamedTuple

from data.errors import UserError
from zoo.trainer.protocol import Launch


class Launcher(NamedTuple):
    """The variables of one launcher. address: of rank 0, as a host or host:port; job: what tells two starts apart."""

    name: str
    size: str
    rank: str
    local_rank: tuple[str, ...]
    address: tuple[str, ...]
    job: tuple[str, ...]


# Launchers of one framework come before the general ones that may have started them, one per machine.
INNER = (
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
OUTER = (
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
LOCAL_SIZES = {"Open MPI": "OMPI_COMM_WORLD_LOCAL_SIZE", "MPICH": "MPI_LOCALNRANKS"}


def detect(environ: Mapping[str, str]) -> Launch:
    """The launch that the environment describes; without any launcher, one process alone.

    Raises UserError for an environment that contradicts itself, or does not say where rank 0 is.
    """
    if environ.get("MS_ROLE") == "MS_SCHED":
        sys.exit(0)  # msrun starts one process more, as MindSpore's scheduler; rank 0 starts that itself
    inner, outer = _present(INNER, environ), _present(OUTER, environ)
    if inner and outer and _number(inner.size, environ) == 1 < _number(outer.size, environ):
        raise UserError(
            f"{outer.name} started {environ[outer.size]} processes ({outer.size}), but {inner.size}=1 "
            f"tells each that it is alone; unset {inner.size}"
        )
    launcher = inner or outer
    if launcher is None or _number(launcher.size, environ) == 1:
        return Launch()
    size, rank = _number(launcher.size, environ), _number(launcher.rank, environ)
    if not 0 <= rank < size:
        raise UserError(
            f"{launcher.rank}={rank} is not a rank of {size} processes ({launcher.size}); "
            f"ranks count from 0 to {size - 1}"
        )
    local = next((name for name in launcher.local_rank if environ.get(name)), None)
    return Launch(
        rank,
        size,
        rank if local is None else _number(local, environ),
        launcher.name,
        address=_address(launcher, size, environ),
        job=" ".join(environ[name] for name in launcher.job if environ.get(name)),
    )


def _present(launchers: tuple[Launcher, ...], environ: Mapping[str, str]) -> Launcher | None:
    """The launcher whose number of processes is told; one of several rather than one that tells of one process."""
    found = [launcher for launcher in launchers if environ.get(launcher.size)]
    return next((launcher for launcher in found if environ[launcher.size] != "1"), found[0] if found else None)


def _number(variable: str, environ: Mapping[str, str]) -> int:
    text = environ.get(variable)
    if text is None:
        raise UserError(
            f"the environment tells of several processes, but {variable} is not set; start them with a "
            "launcher such as torchrun or mpirun, or unset what is left of one"
        )
    if not text.isdigit():
        raise UserError(f"{variable}={text}: expected a number")
    return int(text)


def _address(launcher: Launcher, size: int, environ: Mapping[str, str]) -> str:
    """Host of rank 0."""
    for variable in launcher.address:
        text = environ.get(variable, "")
        if text:
            first = re.sub(r"\[(\d+)[-,\d]*\]", r"\1", text, count=1)  # gpu[03-07,09],login: gpu03
            host = first.split(",")[0].split("://")[-1]
            return host.rpartition(":")[0] if host.count(":") == 1 else host  # more colons: an IPv6 address
    if environ.get(LOCAL_SIZES.get(launcher.name, ""), "") == str(size):
        return "127.0.0.1"
    raise UserError(
        f"{launcher.name} does not say where rank 0 is; export {launcher.address[0]}=HOST to all processes "
        "(mpirun: -x MASTER_ADDR=HOST)"
    )
