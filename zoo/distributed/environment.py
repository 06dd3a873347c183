"""Environment variables: what launchers give a process, what reaches all processes of a run, what frameworks read.

A launcher gives rank, world size and the address of rank 0, nothing else. Rank 0 chooses the port of the framework's
own process group and broadcasts it, so every launcher can start every framework.

Variables of the frameworks change how fast or how exactly they compute and communicate: they are carried to all hosts
and recorded in the journal by their prefixes. What looks like a secret is neither, unless `zoo launch --env` names it.
"""

import os
import re
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import psutil

from zoo.data import host
from zoo.data.errors import UserError, natural
from zoo.distributed.group import Group
from zoo.trainer.world import Launch

PREFIXES = (
    "ASCEND_",
    "CUBLAS_",
    "CUDA_",
    "CUDNN_",
    "DNNL_",
    "FI_",
    "FLAGS_",
    "GLOG_",
    "GLOO_",
    "GOMP_",
    "HCCL_",
    "JAX_",
    "KMP_",
    "MKL_",
    "MS_",
    "NCCL_",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "PYTORCH_",
    "TORCH_",
    "UCX_",
    "XLA_",
)
THREADS = "OMP_NUM_THREADS"
# Threads that wait sleep: in Intel's OpenMP (Paddle) at once, in GNU's (PyTorch) after 1000 rounds, which counts more.
SLEEPING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}
NAMED = "ZOO_ENV"  # names that zoo launch --env was given, separated by commas
HIDDEN = "(hidden)"  # in place of the value of a secret
# The devices of one host: recorded, but not carried to other hosts unless they are named.
OF_ONE_HOST = frozenset({"CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES"})
# Variables that launchers set for the processes that they start.
OF_LAUNCHERS = frozenset({
    *("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"),
    *("MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM", "MS_SCHED_HOST", "MS_SCHED_PORT"),
    *("RANK_ID", "RANK_SIZE", "DEVICE_ID", NAMED),
})  # fmt: skip
SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|PWD|CREDENTIAL|AUTH|COOKIE|NETRC|CERT|SIGNING|WEBHOOK"
    r"|(API|ACCESS|PRIVATE)_?KEY|(^|_)(KEYS?|PAT|SAS|DSN)(_|$)|CONNECTION_?STRING"
    r"|^(?!FLAGS_|MS_DEV_).*PASS(?!IVE)",  # those of the frameworks switch passes of their compilers
    flags=re.IGNORECASE,
)
SECRET_VALUE = re.compile(r"://[^/\s@]+@")  # a URL with a password, a token or a user's name
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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
    """Return the launch that the environment describes; without any launcher, that of a single process."""
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


def carried(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that reach the processes of a run on all hosts without being named."""
    return {name: value for name, value in _by_prefix(environ).items() if name not in OF_ONE_HOST}


def recorded(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the journal of a run records; values of secrets that --env named are hidden."""
    named = [name for name in environ.get(NAMED, "").split(",") if name in environ]
    values = {name: HIDDEN if is_secret(name, environ[name]) else environ[name] for name in named}
    return dict(sorted({**_by_prefix(environ), **values}.items()))


def is_secret(name: str, value: str) -> bool:
    """Return whether a variable looks as if it held a password or a key."""
    return bool(SECRET_NAME.search(name) or SECRET_VALUE.search(value))


def _by_prefix(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith(PREFIXES) and NAME.fullmatch(name) and name not in OF_LAUNCHERS
        if not is_secret(name, value)
    }


def collect(named: Sequence[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables for all processes, by name. named: values of --env, NAME or NAME=VALUE."""
    chosen: dict[str, str] = {}
    for text in named:
        name, equals, value = text.partition("=")
        if not NAME.fullmatch(name):
            raise UserError(f"--env {text}: expected NAME or NAME=VALUE; a name has letters, digits and underscores")
        if name in OF_LAUNCHERS:
            raise UserError(f"--env {name}: launchers set this variable; use --hosts, --address and --port")
        if not equals and name not in environ:
            raise UserError(f"--env {name}: not set here; give its value, --env {name}=VALUE")
        chosen[name] = value if equals else environ[name]
    variables = {**carried(environ), **chosen}
    return {**variables, NAMED: ",".join(chosen)} if chosen else variables


def describe(variables: Mapping[str, str]) -> list[str]:
    values = {name: HIDDEN if is_secret(name, value) else shlex.quote(value) for name, value in variables.items()}
    return [f"env {name}={value}" for name, value in values.items()]


def check_printable(variables: Mapping[str, str]) -> None:
    """Raise UserError if a value that is about to be written to a file looks like a secret."""
    for name, value in variables.items():
        if is_secret(name, value):
            raise UserError(
                f"--env {name}: looks like a secret, which --print would write down; leave it out and let the cluster "
                "provide it (sbatch --export, a Kubernetes Secret)"
            )


def core_share(group: Group) -> tuple[float, int]:
    """Return how many cores this process has for itself, and the processes of the run on this host. Collective."""
    mine = [socket.gethostname(), host.cores()]
    ranks = group.all_gather(mine)
    local = [index for index, (name, _) in enumerate(ranks) if name == mine[0]]
    share = host.core_share([ranks[index][1] for index in local], local.index(group.rank), host.cpu_quota())
    return share, len(local)


def prepare(group: Group) -> None:
    """Divide the cores of a machine among the processes that share them, and name gloo's network interface.

    Libraries count the cores of the affinity mask, but know neither the limit of a container nor other processes. With
    more threads than cores, each parallel operation waits for threads that do not run. The same happens where other
    programs compute, and a thread that spins while it waits takes the time of the one that it waits for.
    """
    share, local = core_share(group)
    if share < len(host.cores()):
        os.environ.setdefault(THREADS, str(max(1, int(share))))
    if host.running() > local and not os.environ.keys() & SLEEPING.keys():
        os.environ.update(SLEEPING)
    if group.size == 1:
        return
    interface = interface_of(group.launch.local_address)
    if interface:  # without it, gloo takes the interface of the host name, which may be the loopback
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


def describe_threads(given: str | None, environ: Mapping[str, str]) -> str:
    """Return how many threads compute on a CPU, and why. given: OMP_NUM_THREADS before `prepare`; environ: after it."""
    cores, number = len(host.cores()), environ.get(THREADS)
    text = f"threads: {number or cores}, "
    text += (
        f"as {THREADS} says" if given else f"the share of this process in {cores} cores" if number else "one per core"
    )
    if SLEEPING.items() <= environ.items() and number != "1":
        text += "; other programs compute here: threads sleep while they wait, and small models are faster with "
        text += f"{THREADS}=1"
    return text


def interface_of(address: str) -> str | None:
    """Return the name of the network interface that has a numeric address, such as eth0; None if there is none."""
    for name, entries in psutil.net_if_addrs().items():
        if address in (entry.address.partition("%")[0] for entry in entries):
            return name
    return None
