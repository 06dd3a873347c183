"""The command line of tools/launch.py."""

import argparse
import re
import shlex

from zoo import program
from zoo.data.errors import UserError
from zoo.data.numerals import natural
from zoo.launch import kubernetes

SHELL = "ssh -o BatchMode=yes {host}"

EPILOG = """\
examples
  %(prog)s 1x8 -c configs/tsm_k400.yaml --amp
  %(prog)s 4x8 --hosts n1,n2,n3,n4 -c configs/resnet50_imagenet.yaml --amp --framework mindspore
  %(prog)s 1x8 --by mpirun -c configs/tsm_k400.yaml --framework paddle
  NCCL_DEBUG=INFO %(prog)s 4x8 --hostfile hosts.txt --env LD_LIBRARY_PATH -c configs/tsm_k400.yaml --amp
  %(prog)s 4x8 --print slurm --time 2-0 -c configs/tsm_k400.yaml --amp > job.sh && sbatch job.sh
  %(prog)s 4x8 --print k8s --image registry/vision-zoo:torch --volume data:/data:ro --volume runs:/runs \\
      -c configs/tsm_k400.yaml --amp -o data.root=/data/k400 --out /runs/tsm | kubectl apply -f -

All other options go to train.py. On several hosts the current folder, the environment and --logs must be at the same
path everywhere, --logs on a shared file system, and ssh must work without a password. Each process writes to a file of
its own in --logs; the output of rank 0 is printed here too. When one process fails, all end, and the last lines of its
file are printed. The first Ctrl-C or SIGTERM lets the run save and end, the second ends it at once.
Several hosts, SLURM and Kubernetes: docs/distributed.md and docs/distributed.md."""

# Kinds of a start, as messages call them.
KINDS = {
    "native": "starts by the framework's own launcher",
    "mpirun": "--by mpirun",
    "slurm": "--print slurm",
    "k8s": "--print k8s",
}
# Option -> kinds of a start for which it has an effect; the others have one for all.
KINDS_OF_OPTIONS = {
    "hosts": ("native", "mpirun", "slurm"),
    "hostfile": ("native", "mpirun", "slurm"),
    "by": ("native", "mpirun", "k8s"),
    "address": ("native", "mpirun"),
    "port": ("native", "mpirun"),
    "logs": ("native", "mpirun", "slurm"),
    "mpi_args": ("mpirun", "k8s"),
    "ssh_port": ("native", "mpirun"),
    "shell": ("native",),
    "dry_run": ("native", "mpirun"),
    "name": ("slurm", "k8s"),
    "time": ("slurm", "k8s"),
    "gpus_per_node": ("slurm", "k8s"),
    "cpus": ("slurm", "k8s"),
    "image": ("slurm", "k8s"),
    "volume": ("slurm", "k8s"),
    "partition": ("slurm",),
    "account": ("slurm",),
    "namespace": ("k8s",),
    "shm_size": ("k8s",),
}
RANGES = {"port": (1, 65535), "ssh_port": (1, 65535), "cpus": (1, 4096), "gpus_per_node": (0, 64)}


def parse(argv: list[str], description: str | None) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of this tool, and those for train.py."""
    parser = program.parser(description, EPILOG, allow_abbrev=False)
    add = parser.add_argument
    add("world", metavar="HOSTSxPROCESSES", help="1x1, 1x8, 4x8")
    add("--hosts", metavar="A,B,...", help="names or addresses, that of rank 0 first; default: this host")
    add("--hostfile", metavar="FILE", help="the same, one per line: `n1`, `n1 slots=8` or `n1:8`; # starts a comment")
    add(
        "--by",
        choices=("native", "mpirun"),
        help="native: torchrun, paddle.distributed.launch, msrun; default native",
    )
    add("--address", metavar="HOST", help="address of rank 0, if the name of the first host is not the one to use")
    add("--port", type=int, metavar="N", help="port for the launcher; default: a free one")
    add("--logs", metavar="DIR", help="folder in which each start creates a new one; default logs")
    add(
        "--env",
        metavar="NAME[=VALUE]",
        action="append",
        default=[],
        help="environment variable for all processes, by default with its value here; repeatable. Variables whose "
        "names begin with NCCL_, FLAGS_, OMP_, GLOG_ and the like are carried without it",
    )
    add("--mpi-args", metavar="WORDS", help='further options of mpirun, in one word: --mpi-args="-v"')
    add("--ssh-port", type=int, metavar="N", help="port of ssh on the hosts; default: that of ~/.ssh/config, or 22")
    add(
        "--shell",
        metavar="COMMAND",
        help=f"command that runs another one on a host: words with {{host}}, and {{command}} if that is not "
        f"to be added at the end; default {SHELL!r}",
    )
    add("--dry-run", action="store_true", help="print the commands and variables, and stop")
    _add_cluster_arguments(parser.add_argument_group("batch systems"))
    return parser.parse_known_args(argv)


def _add_cluster_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--print", choices=("slurm", "k8s"), help="print a batch script for sbatch, or manifests for kubectl, and stop")
    add("--name", metavar="NAME", help="of the job; default: recipe and world size, such as tsm-k400-4x8")
    add("--time", metavar="LIMIT", help="time limit in a form of SLURM: 90 (minutes), 12:00:00, 2-12 (days-hours)")
    add("--gpus-per-node", type=int, metavar="N", help="default: one per process; none with --device cpu")
    add("--cpus", type=int, metavar="N", help="cores per process; default: SLURM: whole nodes, Kubernetes: no request")
    add("--image", metavar="IMAGE", help="container image that has this project in /opt/vision-zoo; SLURM: by pyxis")
    add(
        "--volume",
        metavar="SOURCE:PATH[:ro]",
        action="append",
        default=[],
        help="mount SOURCE in the container, for data and runs: a folder of the host, or with k8s a "
        "PersistentVolumeClaim; repeatable",
    )
    add("--partition", metavar="NAME", help="of SLURM")
    add("--account", metavar="NAME", help="of SLURM")
    add("--namespace", metavar="NAME", help="of Kubernetes; default default")
    add("--shm-size", metavar="SIZE", help=f"of /dev/shm in pods; default {kubernetes.SHM_SIZE}")


def check(arguments: argparse.Namespace) -> None:
    """Check numbers, and that every option that was given has an effect.

    Raises:
        UserError: An option is wrong, or without effect beside the others.
    """
    count, processes = world(arguments.world)
    kind = arguments.print or arguments.by or "native"
    for name, kinds in KINDS_OF_OPTIONS.items():
        if getattr(arguments, name) not in (None, [], False) and kind not in kinds:
            raise UserError(f"{_flag(name)}: is only for {' and '.join(KINDS[other] for other in kinds)}")
    for name, (least, largest) in RANGES.items():
        value = getattr(arguments, name)
        if value is not None and not least <= value <= largest:
            raise UserError(f"{_flag(name)} {value}: expected a number from {least} to {largest}")
    if arguments.mpi_args is not None and count * processes == 1:
        raise UserError("--mpi-args: one process is started without mpirun")
    if arguments.ssh_port and count == 1:
        raise UserError("--ssh-port: a single host is not reached by ssh")
    if arguments.shell is not None and not (_words(arguments.shell) and "{host}" in arguments.shell):
        raise UserError(f"--shell {arguments.shell}: expected a command with {{host}} in it, such as {SHELL!r}")
    unknown = re.findall(r"(?<!\$)\{(?!host\}|command\})[a-z_]+\}", arguments.shell or "")
    if unknown:
        raise UserError(
            f"--shell {arguments.shell}: {unknown[0]} stands for nothing; there are {{host}} and {{command}}"
        )
    if arguments.shell and arguments.ssh_port:
        raise UserError("--ssh-port: write the port into --shell")


def world(text: str) -> tuple[int, int]:
    """Return the number of hosts, and of processes per host."""
    count, _, per_host = text.lower().partition("x")
    hosts, processes = natural(count), natural(per_host)
    if not (hosts and processes):
        raise UserError(f"expected hosts x processes such as 1x8 or 4x8, got {text}")
    return hosts, processes


def _words(text: str) -> list[str]:
    """Split a command line into words; none if a quote is not closed."""
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
