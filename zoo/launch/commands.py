"""Commands of the launchers that start the ranks: torchrun, paddle.distributed.launch, msrun and Open MPI's mpirun."""

import os
import shlex
import socket
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from zoo.data.errors import UserError


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


def build(layout: Layout, framework: str, device: str, script: list[str]) -> list[tuple[str, list[str]]]:
    """Return (host, command) for every launcher to start.

    Args:
        layout: hosts and processes.
        framework: whose launcher is used, unless mpirun is.
        device: train.device of the recipe.
        script: command of a rank, without the interpreter.
    """
    if layout.size == 1:
        return [(layout.hosts[0], [sys.executable, *script])]
    if layout.launcher == "mpirun":
        return [(layout.hosts[0], [*_mpirun(layout), sys.executable, *script])]
    launcher = {"torch": _torchrun, "paddle": _paddle, "mindspore": _msrun}[framework]
    return [(host, launcher(layout, host_rank, device) + script) for host_rank, host in enumerate(layout.hosts)]


def remote(shell: str, host: str, ssh_port: int | None, command: list[str]) -> list[str]:
    """Return the command that runs `command` on another host, in the current folder.

    Args:
        shell: words with {host}, and {command} where a command for a shell belongs. Without {command}, it is added at
            the end: one word for ssh, which gives it to a shell itself, else the three words `sh -c LINE`.
        host: name or address.
        ssh_port: None for that of the configuration.
        command: words.
    """
    line = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(command)}"
    words = [word.replace("{host}", host) for word in shlex.split(shell)]
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


def split_mpi_args(text: str) -> list[str]:
    """Split the value of --mpi-args into words. Raises UserError if a quote is not closed."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"--mpi-args {text}: {error}") from None


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
        *mpi_placement(layout.processes_per_host, layout.mpi_args),
        "-x",
        f"MASTER_ADDR={layout.address}",
        "-x",
        f"MASTER_PORT={layout.port}",
        *mpi_exports(layout.variables),
    ]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    if len(layout.hosts) > 1:
        command += ["--host", ",".join(f"{host}:{layout.processes_per_host}" for host in layout.hosts)]
    if layout.ssh_port:
        command += ["--mca", "plm_rsh_args", f"-p {layout.ssh_port}"]
    return [*command, *layout.mpi_args]
