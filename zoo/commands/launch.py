"""Start `zoo train` in many processes: by each framework's own launcher or mpirun, on hosts, SLURM or Kubernetes."""

import argparse
import os
import secrets
import shlex
import time
from pathlib import Path
from typing import Any

from zoo import program
from zoo.commands import train
from zoo.data import durable
from zoo.data.errors import UserError
from zoo.distributed import clusters, environment, launch, launchers
from zoo.distributed.rendezvous import free_port
from zoo.distributed.wire import VARIABLE
from zoo.run.folder import numbered

EPILOG = """\
examples
  %(prog)s 1x8 -c tsm_k400 --amp
  %(prog)s 4x8 --hosts n1,n2,n3,n4 -c resnet50_imagenet --amp --framework mindspore
  %(prog)s 1x8 --by mpirun -c tsm_k400 --framework paddle
  NCCL_DEBUG=INFO %(prog)s 4x8 --hostfile hosts.txt --env LD_LIBRARY_PATH -c tsm_k400 --amp
  %(prog)s 4x8 --print slurm --time 2-0 -c tsm_k400 --amp > job.sh && sbatch job.sh
  %(prog)s 4x8 --print k8s --image registry/vision-zoo:torch --volume data:/data:ro --volume runs:/runs \\
      -c tsm_k400 --amp -o data.root=/data/k400 --out /runs/tsm | kubectl apply -f -

All other options go to `zoo train`. On several hosts the current folder, the environment and --logs must be at the same
path everywhere, --logs on a shared file system, and ssh must work without a password. Each process writes to a file of
its own in --logs; the output of rank 0 is printed here too. When one process fails, all end, and the last lines of its
file are printed. The first Ctrl-C or SIGTERM lets the run save and end, the second ends it at once.
Several hosts, SLURM and Kubernetes: docs/distributed.md."""

# Kinds of a start, as messages call them.
KINDS = {
    "native": "starts by the framework's own launcher",
    "mpirun": "--by mpirun",
    "slurm": "--print slurm",
    "k8s": "--print k8s",
}
Kinds = dict[str, tuple[str, ...]]  # name of an option -> kinds of a start in which it has an effect


def main(argv: list[str]) -> int:
    # Hidden flags: this command also is the runner of a launcher, and the program that a launcher starts as a rank.
    if argv[:1] == ["--run-launcher"]:
        return launch.run_launcher(argv[1:])
    if argv[:1] == ["--exec-rank"]:
        launch.exec_rank(Path(argv[1]), argv[2:])
    options, kinds = _options()
    arguments, train_arguments = options.parse_known_args(argv)
    request = train.read(train.parse(train_arguments))  # mistakes in the recipe are reported before anything starts
    launcher = arguments.by or launchers.default(request.config.framework)
    _check(arguments, launcher, kinds)
    variables = environment.collect(arguments.env)
    if arguments.print:
        text = clusters.render(arguments, request.recipe, request.config, variables, train_arguments)
        print(text, end="")
        return 0
    layout = _layout(arguments, launcher, variables)
    script = [program.MAIN, "launch", "--exec-rank", str(layout.logs), *train_arguments]
    commands = launchers.build(layout, request.config.framework, request.config.device, script)
    if arguments.dry_run:
        lines = [f"{host}: {shlex.join(command)}" for host, command in commands]
        print("\n".join(lines + environment.describe(variables)))
        return 0
    return launch.run(commands, layout, arguments.shell or launchers.SHELL)


def parser() -> program.Parser:
    return _options()[0]


def _options() -> tuple[program.Parser, Kinds]:
    parser = program.parser(__doc__, EPILOG, allow_abbrev=False)
    kinds: Kinds = {}

    def add(kinds_of_option: str, name: str, help: str, **settings: Any) -> None:
        group = clusters_group if kinds_of_option in ("slurm", "k8s", "slurm k8s") else parser
        kinds[group.add_argument(name, help=help, **settings).dest] = tuple(kinds_of_option.split())

    everywhere, local = "native mpirun slurm k8s", "native mpirun"
    parser.add_argument("world", metavar="HOSTSxPROCESSES", help="1x1, 1x8, 4x8")
    clusters_group = parser.add_argument_group("batch systems")
    hosts = f"{local} slurm"
    add(hosts, "--hosts", "names or addresses, that of rank 0 first; default: this host", metavar="A,B,...")
    add(hosts, "--hostfile", "the same, one per line: `n1`, `n1 slots=8` or `n1:8`; # starts a comment", metavar="FILE")
    text = "native: torchrun, paddle.distributed.launch, msrun; default native, of JAX mpirun"
    add(f"{local} k8s", "--by", text, choices=("native", "mpirun"))
    add(local, "--address", "address of rank 0, if the first host's name is not the one to use", metavar="HOST")
    add(local, "--port", "port for the launcher; default: a free one", type=int, metavar="N")
    add(hosts, "--logs", "folder in which each start creates a new one; default logs", metavar="DIR")
    text = (
        "environment variable for all processes, by default with its value here; repeatable. Variables whose names "
        "begin with NCCL_, FLAGS_, OMP_, GLOG_ and the like are carried without it"
    )
    add(everywhere, "--env", text, metavar="NAME[=VALUE]", action="append", default=[])
    add("mpirun k8s", "--mpi-args", 'further options of mpirun, in one word: --mpi-args="-v"', metavar="WORDS")
    text = "port of ssh on the hosts; default: that of ~/.ssh/config, or 22"
    add(local, "--ssh-port", text, type=int, metavar="N")
    text = (
        "command that runs another one on a host: words with {host}, and {command} if that is not to be added at the "
        f"end; default {launchers.SHELL!r}"
    )
    add("native", "--shell", text, metavar="COMMAND")
    add(local, "--dry-run", "print the commands and variables, and stop", action="store_true")
    text = "print a batch script for sbatch, or manifests for kubectl, and stop"
    add("slurm k8s", "--print", text, choices=("slurm", "k8s"))
    add("slurm k8s", "--name", "of the job; default: recipe and world size, such as tsm-k400-4x8", metavar="NAME")
    text = "time limit in a form of SLURM: 90 (minutes), 12:00:00, 2-12 (days-hours)"
    add("slurm", "--time", text, metavar="LIMIT")
    text = "default: one per process; none with --device cpu"
    add("slurm k8s", "--gpus-per-node", text, type=int, metavar="N")
    text = "cores per process; default: SLURM: whole nodes, Kubernetes: no request"
    add("slurm k8s", "--cpus", text, type=int, metavar="N")
    text = f"container image that has this project in {clusters.IMAGE_FOLDER}; SLURM: by pyxis"
    add("slurm k8s", "--image", text, metavar="IMAGE")
    text = (
        "mount SOURCE in the container, for data and runs: a folder of the host, or with k8s a PersistentVolumeClaim; "
        "repeatable"
    )
    add("slurm k8s", "--volume", text, metavar="SOURCE:PATH[:ro]", action="append", default=[])
    return parser, kinds


def _check(arguments: argparse.Namespace, launcher: str, kinds_of_options: Kinds) -> None:
    kind = arguments.print or launcher
    for name, kinds in kinds_of_options.items():
        if getattr(arguments, name) not in (None, [], False) and kind not in kinds:
            raise UserError(f"--{name.replace('_', '-')}: is only for {' and '.join(KINDS[other] for other in kinds)}")
    if arguments.shell is not None and "{host}" not in " ".join(launchers.split(arguments.shell, "--shell")):
        raise UserError(
            f"--shell {arguments.shell}: expected a command with {{host}} in it, such as {launchers.SHELL!r}"
        )


def _layout(arguments: argparse.Namespace, launcher: str, variables: dict[str, str]) -> launchers.Layout:
    count, processes = launchers.read_world(arguments.world)
    names = launchers.read_hosts(arguments.hosts, arguments.hostfile, count)
    return launchers.Layout(
        names,
        processes,
        arguments.address or ("127.0.0.1" if names == ["localhost"] else names[0]),
        arguments.port or free_port("127.0.0.1"),
        Path(_new_logs(Path(arguments.logs or "logs").resolve(), arguments.dry_run)),
        launcher,
        {VARIABLE: secrets.token_hex(16), **variables},  # --env ZOO_SECRET takes that of the caller
        launchers.split(arguments.mpi_args or "", "--mpi-args"),
        arguments.ssh_port,
    )


def _new_logs(parent: Path, is_dry: bool) -> str:
    """Make the folder of the logs of this start, for its user alone; a dry run only names one."""
    paths = numbered(str(parent / time.strftime("%Y%m%d-%H%M%S")))
    if is_dry:
        return next(path for path in paths if not os.path.lexists(path))
    try:
        return durable.new_folder(paths, mode=0o700)  # libraries may print what others must not read
    except OSError as error:
        raise UserError(f"--logs: cannot make a folder in {parent}: {error.strerror}") from None
