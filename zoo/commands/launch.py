"""Start train.py in many processes: by each framework's own launcher or mpirun, on hosts, SLURM or Kubernetes."""

import argparse
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from zoo import program
from zoo.data.errors import UserError
from zoo.distributed.addresses import free_port
from zoo.distributed.secret import VARIABLE
from zoo.distributed.supervisor import (
    exec_rank,
    print_first_failure,
    run_launcher,
    send_variables,
    supervise,
    terminate,
)
from zoo.launch import batch, commands, hosts, options, variables
from zoo.run import cli


def main(argv: list[str]) -> int:
    # Hidden flags: this script also is the runner of a launcher, and the program that a launcher starts as a rank.
    if argv[:1] == ["--run-launcher"]:
        return run_launcher(argv[1:])
    if argv[:1] == ["--exec-rank"]:
        exec_rank(Path(argv[1]), argv[2:])
    arguments, train_arguments = options.parse(argv, __doc__)
    return start(arguments, train_arguments)


def start(arguments: argparse.Namespace, train_arguments: list[str]) -> int:
    """Start all processes and wait for them. Returns the exit code of the run."""
    request = cli.read(cli.parse(train_arguments))  # mistakes in the recipe are reported before anything starts
    options.check(arguments)
    environment = variables.collect(arguments.env)
    if arguments.print:
        sys.stdout.write(batch.render(arguments, request, environment, train_arguments))
        return 0
    layout = _layout(arguments, environment)
    script = [program.MAIN, "launch", "--exec-rank", str(layout.logs), *train_arguments]
    launchers = commands.build(layout, request.config.framework, request.config.device, script)
    if arguments.dry_run:
        lines = [f"{host}: {shlex.join(command)}" for host, command in launchers]
        print("\n".join(lines + variables.describe(environment)))
        return 0
    return _run(launchers, layout, arguments.shell or options.SHELL)


def _run(launchers: list[tuple[str, list[str]]], layout: commands.Layout, shell: str) -> int:
    """Start the launchers under runners and supervise them. Returns the exit code of the run."""
    try:
        layout.logs.mkdir(parents=True)
    except FileExistsError:
        raise UserError(f"--logs: {layout.logs} was made by another start in this second; start again") from None
    except OSError as error:
        raise UserError(f"--logs: cannot make {layout.logs}: {error.strerror}") from None
    print(f"logs: {layout.logs}", flush=True)
    runners: list[subprocess.Popen[bytes]] = []
    try:
        for host, command in launchers:
            command = program.command("launch", "--run-launcher", *command)
            if len(layout.hosts) > 1 and layout.launcher == "native":
                command = commands.remote(shell, host, layout.ssh_port, command)
            with open(layout.logs / f"launcher-{len(runners)}.log", "w", encoding="utf-8") as file:
                runners.append(_start(command, file))
            send_variables(runners[-1], layout.variables)
        code = supervise(runners, layout.logs, layout.size)
    finally:
        terminate(runners)
    if code not in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM):
        print_first_failure(layout.logs)
    return code


def _start(command: Sequence[str], output: TextIO) -> subprocess.Popen[bytes]:
    """Start a launcher whose standard input is a pipe. Raises UserError if its program cannot be run."""
    try:
        return subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        raise UserError(f"--shell: cannot run {command[0]}: {error.strerror}") from None


def _layout(arguments: argparse.Namespace, environment: dict[str, str]) -> commands.Layout:
    count, processes = options.world(arguments.world)
    names = hosts.read(arguments.hosts, arguments.hostfile, count, processes)
    if arguments.address is not None:
        hosts.check_address(arguments.address, names == ["localhost"])
    return commands.Layout(
        names,
        processes,
        arguments.address or ("127.0.0.1" if names == ["localhost"] else names[0]),
        arguments.port or free_port("127.0.0.1"),
        _new_folder(arguments.logs or "logs"),
        arguments.by or "native",
        {VARIABLE: secrets.token_hex(16), **environment},  # --env ZOO_SECRET takes that of the caller
        commands.split_mpi_args(arguments.mpi_args or ""),
        arguments.ssh_port,
    )


def _new_folder(parent: str) -> Path:
    """Return a path below `parent` that does not exist: the time of the start, with a number if need be."""
    path = Path(parent).resolve() / time.strftime("%Y%m%d-%H%M%S")
    numbered = (Path(f"{path}-{number}") for number in range(2, 1000))
    return next(candidate for candidate in (path, *numbered) if not candidate.exists())
