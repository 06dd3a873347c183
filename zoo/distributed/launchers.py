"""Launchers that start the ranks on one or several hosts: torchrun, paddle.distributed.launch, msrun, mpirun."""

import os
import re
import shlex
import socket
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from zoo.data.errors import UserError, natural, parsing

# A name or IPv6 address, and slots as for MPICH or Open MPI.
HOST = re.compile(
    r"([A-Za-z0-9_][A-Za-z0-9._-]*|[0-9A-Fa-f:]*:[0-9A-Fa-f:.%a-z]*)(?::\d+)?(?:\s+(?:max[-_])?slots\s*=\s*\d+)*"
)
SHELL = "ssh -o BatchMode=yes {host}"


class Layout(NamedTuple):
    """Processes to start and the launcher that starts them. address: of rank 0; port: for the launcher."""

    hosts: list[str]
    processes_per_host: int
    address: str
    port: int
    logs: Path
    launcher: str  # native or mpirun
    variables: dict[str, str]  # for all processes; the runners set them before they start a launcher
    mpi_args: list[str]
    ssh_port: int | None

    @property
    def size(self) -> int:
        return len(self.hosts) * self.processes_per_host


def read_world(text: str, option: str = "") -> tuple[int, int]:
    """Return the number of hosts and of processes per host of `4x8`, or of `8` on one host; option: for the message."""
    numbers = [natural(number) or 0 for number in text.strip().lower().split("x")]
    if 0 in numbers or len(numbers) > 2:
        prefix = f"{option}: " if option else ""
        raise UserError(f"{prefix}expected HOSTSxPROCESSES such as 1x8 or 4x8, got {text}")
    return (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def read_hosts(names: str | None, file: str | None, count: int) -> list[str]:
    """Return the hosts of a run, the one of rank 0 first.

    Args:
        names: value of --hosts; None for this host, or those of the file.
        file: value of --hostfile. One host per line: `n1`, `n1 slots=8` (Open MPI) or `n1:8` (MPICH), or a line per
            slot (the node file of a batch system). `#` starts a comment.
    """
    if names and file:
        raise UserError("--hosts and --hostfile: give one of them")
    place, texts = "--hosts", (names or "localhost").split(",")
    if file:
        place = f"--hostfile {file}"
        with parsing(f"{place} cannot be read"):
            lines = Path(file).read_text(encoding="utf-8").splitlines()
        texts = [text for line in lines if (text := line.partition("#")[0].strip())]
    matches = {text: HOST.fullmatch(text.strip()) for text in texts}
    for text, match in matches.items():
        if match is None:
            raise UserError(
                f"{place}: {text!r} is not a host; write `n1`, `n1 slots=8` or `n1:8` (users and ports belong into "
                "~/.ssh/config, or to --shell and --ssh-port)"
            )
    hosts = list(dict.fromkeys(match[1] for match in matches.values() if match))
    if len(hosts) != count:
        raise UserError(
            f"{count} hosts are needed, but there are {len(hosts)}: {', '.join(hosts)}; name them with --hosts or "
            "--hostfile"
        )
    return hosts


def build(layout: Layout, framework: str, device: str, script: list[str]) -> list[tuple[str, list[str]]]:
    """Return (host, command) for every launcher to start.

    Args:
        framework: whose launcher is used, unless mpirun is.
        script: command of a rank, without the interpreter.
    """
    if layout.size == 1:
        return [(layout.hosts[0], [sys.executable, *script])]
    if layout.launcher == "mpirun":
        return [(layout.hosts[0], [*_mpirun(layout), sys.executable, *script])]
    if framework not in NATIVE:
        raise UserError(f"--by native: {framework} has no launcher of its own; leave it out, mpirun starts the ranks")
    launcher = NATIVE[framework]
    return [(host, launcher(layout, host_rank, device) + script) for host_rank, host in enumerate(layout.hosts)]


def remote(shell: str, host: str, ssh_port: int | None, command: list[str]) -> list[str]:
    """Return the command that runs `command` on another host, in the current folder.

    Args:
        shell: words with {host}, and {command} where a command for a shell belongs. Without {command}, it is added at
            the end: one word for ssh, which gives it to a shell itself, else the three words `sh -c LINE`.
        ssh_port: None for that of the configuration.
    """
    line = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(command)}"
    words = [word.replace("{host}", host) for word in split(shell, "--shell")]
    is_ssh = Path(words[0]).name == "ssh"
    if ssh_port and is_ssh:
        words[1:1] = ["-p", str(ssh_port)]
    if "{command}" in shell:
        return [word.replace("{command}", shlex.join(["sh", "-c", line])) for word in words]
    return [*words, line] if is_ssh else [*words, "sh", "-c", line]


def mpi_exports(variables: Iterable[str]) -> list[str]:
    """Return the options with which mpirun passes variables of its own environment to all ranks."""
    return [word for name in variables for word in ("-x", name)]


def mpi_placement(processes_per_host: int, mpi_args: Sequence[str]) -> list[str]:
    """Return the options that put the same number of ranks on every host, on all of its cores.

    Open MPI 5 puts all ranks on the first host with `--oversubscribe` alone, and may bind each rank to one core, its
    data workers too. Options that are in mpi_args already, which mpirun takes only once, are left out.
    """
    options = {"--map-by": f"ppr:{processes_per_host}:node:oversubscribe", "--bind-to": "none"}
    return [word for name, value in options.items() if name not in mpi_args for word in (name, value)]


def split(text: str, option: str) -> list[str]:
    """Split the value of an option into words. Raises UserError if a quote is not closed."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"{option} {text}: {error}") from None


def _torchrun(layout: Layout, host_rank: int, _device: str) -> list[str]:
    options = {
        "nnodes": len(layout.hosts),
        "nproc-per-node": layout.processes_per_host,
        "node-rank": host_rank,
        "master-addr": layout.address,
        "master-port": layout.port,
    }
    return [sys.executable, "-m", "torch.distributed.run", *_options(options)]


def _paddle(layout: Layout, host_rank: int, device: str) -> list[str]:
    options: dict[str, object] = {
        "nnodes": len(layout.hosts),
        "nproc_per_node": layout.processes_per_host,
        "rank": host_rank,
    }
    if len(layout.hosts) > 1:  # Paddle compares addresses as text, to find out which host is the master
        master = _numeric_address(layout.address)
        host = _numeric_address(layout.hosts[host_rank]) if host_rank else master
        options |= {"master": f"{master}:{layout.port}", "host": host}
    if device == "cpu":
        options |= {"log_dir": layout.logs / "paddle", "backend": "gloo"}  # this one writes no environment
    return [sys.executable, "-m", "paddle.distributed.launch", *_options(options)]


def _numeric_address(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise UserError(
            f"the address of {host} is not known here: {error.strerror}; give --hosts numeric addresses"
        ) from None


def _msrun(layout: Layout, host_rank: int, _device: str) -> list[str]:
    options = {
        "worker_num": layout.size,
        "local_worker_num": layout.processes_per_host,
        "master_addr": layout.address,
        "master_port": layout.port,
        "node_rank": host_rank,
        "log_dir": layout.logs / f"msrun-{host_rank}",
        "join": True,
    }
    return [str(Path(sys.executable).parent / "msrun"), *_options(options)]


NATIVE = {"torch": _torchrun, "paddle": _paddle, "mindspore": _msrun}


def default(framework: str) -> str:
    """Return the launcher of a framework: its own, native, if it has one."""
    return "native" if framework in NATIVE else "mpirun"


def _options(options: dict[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]


def _mpirun(layout: Layout) -> list[str]:
    mpirun = Path(sys.executable).parent / "mpirun"
    command = [str(mpirun) if mpirun.exists() else "mpirun", "-n", str(layout.size)]
    command += mpi_placement(layout.processes_per_host, layout.mpi_args)
    command += mpi_exports([f"MASTER_ADDR={layout.address}", f"MASTER_PORT={layout.port}", *layout.variables])
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    if len(layout.hosts) > 1:
        command += ["--host", ",".join(f"{host}:{layout.processes_per_host}" for host in layout.hosts)]
    if layout.ssh_port:
        command += ["--mca", "plm_rsh_args", f"-p {layout.ssh_port}"]
    return [*command, *layout.mpi_args]
