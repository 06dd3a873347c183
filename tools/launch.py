"""Start train.py in many processes, on one machine or several, by each framework's own launcher or by mpirun."""

import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from data.errors import UserError
from zoo.distributed.addresses import free_port
from zoo.distributed.supervisor import exec_rank, print_first_failure, run_launcher, supervise, terminate
from zoo.run import cli

SCRIPT = Path(__file__).resolve()

EPILOG = """\
examples
  python tools/launch.py 1x8 -c configs/tsm_k400.yaml --amp
  python tools/launch.py 4x8 --hosts n1,n2,n3,n4 -c configs/resnet50_imagenet.yaml --amp --framework mindspore
  python tools/launch.py 1x8 --by mpirun -c configs/tsm_k400.yaml --framework paddle

All other options go to train.py. On several hosts the current folder, the environment and --logs must be at the same
path everywhere, --logs on a shared file system, and ssh must work without a password. Each process writes to a file of
its own in --logs; the output of rank 0 is printed here too. When one process fails, all end, and the last lines of its
file are printed. The first Ctrl-C or SIGTERM lets the run save and end, the second ends it at once."""


class Layout(NamedTuple):
    """Processes to start and the launcher that starts them. address: of rank 0; port: for the launcher."""

    hosts: list[str]
    processes_per_host: int
    address: str
    port: int
    logs: Path
    launcher: str  # native or mpirun

    @property
    def size(self) -> int:
        return len(self.hosts) * self.processes_per_host


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    # Hidden flags: this script also is the runner of a launcher, and the program that a launcher starts as a rank.
    if argv[:1] == ["--run-launcher"]:
        return run_launcher(argv[1:])
    if argv[:1] == ["--exec-rank"]:
        exec_rank(Path(argv[1]), argv[2:])
    arguments, train_arguments = parse(argv)
    try:
        return start(arguments, train_arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def cli_main() -> None:
    """Entry point of the command zoo-launch."""
    sys.exit(main())


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of this tool, and those for train.py."""
    parser = argparse.ArgumentParser(
        prog="launch.py",
        description=__doc__,
        epilog=EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("world", metavar="HOSTSxPROCESSES", help="1x1, 1x8, 4x8")
    add("--hosts", metavar="A,B,...", help="names or addresses, that of rank 0 first; default: this host")
    add("--hostfile", metavar="FILE", help="the same, one per line")
    add(
        "--by",
        choices=("native", "mpirun"),
        default="native",
        help="native: torchrun, paddle.distributed.launch, msrun; default native",
    )
    add("--address", metavar="HOST", help="address of rank 0, if the name of the first host is not the one to use")
    add("--port", type=int, metavar="N", help="port for the launcher; default: a free one")
    add("--logs", metavar="DIR", default="logs", help="folder in which each start creates a new one; default logs")
    add(
        "--shell",
        metavar="COMMAND",
        default="ssh -o BatchMode=yes {host}",
        help="command that runs another one on a host; default %(default)r",
    )
    add("--dry-run", action="store_true", help="print the commands and stop")
    return parser.parse_known_args(argv)


def start(arguments: argparse.Namespace, train_arguments: list[str]) -> int:
    """Start all processes and wait for them. Returns the exit code of the run."""
    request = cli.read(cli.parse(train_arguments))  # mistakes in the recipe are reported before anything starts
    layout = _layout(arguments)
    commands = _commands(layout, request.config.framework, request.config.device, train_arguments)
    if arguments.dry_run:
        print("\n".join(f"{host}: {shlex.join(command)}" for host, command in commands))
        return 0
    layout.logs.mkdir(parents=True)
    print(f"logs: {layout.logs}", flush=True)
    runners: list[subprocess.Popen[bytes]] = []
    try:
        for host, command in commands:
            command = [sys.executable, str(SCRIPT), "--run-launcher", *command]
            if len(layout.hosts) > 1 and layout.launcher == "native":
                command = _remote(arguments.shell, host, command)
            with open(layout.logs / f"launcher-{len(runners)}.log", "w", encoding="utf-8") as file:
                runners.append(
                    subprocess.Popen(
                        command,
                        bufsize=0,
                        stdin=subprocess.PIPE,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        code = supervise(runners, layout.logs, layout.size)
    finally:
        terminate(runners)
    if code not in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM):
        print_first_failure(layout.logs)
    return code


def _layout(arguments: argparse.Namespace) -> Layout:
    count, _, per_host = arguments.world.lower().partition("x")
    if not (count.isdigit() and per_host.isdigit() and int(count) and int(per_host)):
        raise UserError(f"expected hosts x processes such as 1x8 or 4x8, got {arguments.world}")
    hosts = _hosts(arguments)
    if len(hosts) != int(count):
        raise UserError(
            f"{arguments.world} needs {count} hosts, but there are {len(hosts)}: {', '.join(hosts)}; "
            "name them with --hosts or --hostfile"
        )
    address = arguments.address or ("127.0.0.1" if hosts == ["localhost"] else hosts[0])
    port = arguments.port or free_port("127.0.0.1")
    return Layout(hosts, int(per_host), address, port, _new_folder(arguments.logs), arguments.by)


def _hosts(arguments: argparse.Namespace) -> list[str]:
    if not arguments.hostfile:
        return arguments.hosts.split(",") if arguments.hosts else ["localhost"]
    try:
        lines = Path(arguments.hostfile).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"--hostfile {arguments.hostfile}: {error.strerror}") from None
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def _new_folder(parent: str) -> Path:
    """Return a path below `parent` that does not exist: the time of the start, with a number if need be."""
    path = Path(parent).resolve() / time.strftime("%Y%m%d-%H%M%S")
    numbered = (Path(f"{path}-{number}") for number in range(2, 1000))
    return next(candidate for candidate in (path, *numbered) if not candidate.exists())


def _commands(layout: Layout, framework: str, device: str, train_arguments: list[str]) -> list[tuple[str, list[str]]]:
    """Return (host, command) for every launcher to start."""
    script = [str(SCRIPT), "--exec-rank", str(layout.logs), *train_arguments]
    if layout.size == 1:
        return [(layout.hosts[0], [sys.executable, *script])]
    if layout.launcher == "mpirun":
        return [(layout.hosts[0], _mpirun(layout) + [sys.executable, *script])]
    launcher = {"torch": _torchrun, "paddle": _paddle, "mindspore": _msrun}[framework]
    return [(host, launcher(layout, host_rank, device) + script) for host_rank, host in enumerate(layout.hosts)]


def _torchrun(layout: Layout, host_rank: int, _device: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nnodes={len(layout.hosts)}",
        f"--nproc-per-node={layout.processes_per_host}",
        f"--node-rank={host_rank}",
        f"--master-addr={layout.address}",
        f"--master-port={layout.port}",
    ]


def _paddle(layout: Layout, host_rank: int, device: str) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "paddle.distributed.launch",
        f"--nnodes={len(layout.hosts)}",
        f"--nproc_per_node={layout.processes_per_host}",
        f"--rank={host_rank}",
        f"--log_dir={layout.logs / 'paddle'}",
    ]
    if len(layout.hosts) > 1:  # Paddle compares addresses as text, to find out which host is the master
        master = _numeric_address(layout.address)
        host = _numeric_address(layout.hosts[host_rank]) if host_rank else master
        command += [f"--master={master}:{layout.port}", f"--host={host}"]
    return command + ["--backend=gloo"] * (device == "cpu")


def _numeric_address(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise UserError(
            f"the address of {host} is not known here: {error.strerror}; give --hosts numeric addresses"
        ) from None


def _msrun(layout: Layout, host_rank: int, _device: str) -> list[str]:
    return [
        str(Path(sys.executable).parent / "msrun"),
        f"--worker_num={layout.size}",
        f"--local_worker_num={layout.processes_per_host}",
        f"--master_addr={layout.address}",
        f"--master_port={layout.port}",
        f"--node_rank={host_rank}",
        f"--log_dir={layout.logs / f'msrun-{host_rank}'}",
        "--join=True",
    ]


def _mpirun(layout: Layout) -> list[str]:
    mpirun = Path(sys.executable).parent / "mpirun"
    command = [
        str(mpirun) if mpirun.exists() else "mpirun",
        "-n",
        str(layout.size),
        "--oversubscribe",
        "-x",
        f"MASTER_ADDR={layout.address}",
        "-x",
        f"MASTER_PORT={layout.port}",
    ]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    if len(layout.hosts) > 1:
        command += ["--host", ",".join(f"{host}:{layout.processes_per_host}" for host in layout.hosts)]
    return command


def _remote(shell: str, host: str, command: list[str]) -> list[str]:
    """Return the command that runs `command` on another host, in the current folder."""
    line = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(command)}"
    prefix = [part.replace("{host}", host) for part in shlex.split(shell)]
    return prefix + ([line] if prefix[0] == "ssh" else ["sh", "-c", line])


if __name__ == "__main__":
    cli_main()
