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

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from typing import NamedTuple

from data.errors import UserError
from zoo.distributed.control_group import free_port
from zoo.distributed.supervisor import end, explain, keep, one, supervise
from zoo.run import cli

EPILOG = """\
examples
  python tools/launch.py 1x8 -c configs/tsm_k400.yaml --amp
  python tools/launch.py 4x8 --hosts n1,n2,n3,n4 -c configs/resnet50_imagenet.yaml --amp --framework mindspore
  python tools/launch.py 1x8 --by mpirun -c configs/tsm_k400.yaml --framework paddle

Words that this tool does not know go to train.py. On several machines the checkout, the environment and --logs must lie
at the same path everywhere, --logs on a file system that they share, and ssh must work without a password. Each process
writes to its own file in --logs; what rank 0 writes is shown here too. When one process fails, all end, and the end of
its file is shown last. The first Ctrl-C or SIGTERM lets the run save and end, the second does not."""


class Where(NamedTuple):
    hosts: list[str]
    each: int  # processes per host
    address: str  # of rank 0
    port: int
    logs: Path
    by: str

    @property
    def size(self) -> int:
        return len(self.hosts) * self.each


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["--keep"]:
        return keep(words[1:])
    if words[:1] == ["--one"]:
        return one(Path(words[1]), words[2:])
    parser = argparse.ArgumentParser(
        prog="launch.py",
        description=__doc__,
        epilog=EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("world", metavar="HOSTSxPROCESSES", help="1x1, 1x8, 4x8")
    parser.add_argument("--hosts", metavar="A,B,...", help="names or addresses, that of rank 0 first; default this one")
    parser.add_argument("--hostfile", metavar="FILE", help="the same, one per line")
    parser.add_argument(
        "--by",
        choices=("native", "mpirun"),
        default="native",
        help="native: torchrun, paddle.distributed.launch, msrun; default native",
    )
    parser.add_argument("--address", metavar="HOST", help="of rank 0, if the first host's name is not the one to use")
    parser.add_argument("--port", type=int, metavar="N", help="for the launcher; default a free one")
    parser.add_argument(
        "--logs", metavar="DIR", default="logs", help="default logs; each start makes a new folder in it"
    )
    parser.add_argument(
        "--shell",
        metavar="COMMAND",
        default="ssh -o BatchMode=yes {host}",
        help="how to run a command on another host; default %(default)r",
    )
    parser.add_argument("--dry-run", action="store_true", help="show the commands, and stop")
    arguments, rest = parser.parse_known_args(words)
    try:
        return start(arguments, rest)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def start(arguments: argparse.Namespace, rest: list[str]) -> int:
    request = cli.read(cli.parse(rest))  # a mistake shows here, before anything starts
    where = _where(arguments)
    commands = _commands(where, request.config.framework, request.config.device, rest)
    if arguments.dry_run:
        print("\n".join(f"{host}: {shlex.join(command)}" for host, command in commands))
        return 0
    where.logs.mkdir(parents=True)
    print(f"logs: {where.logs}", flush=True)
    keepers = []
    try:
        for host, command in commands:
            words = [sys.executable, str(ROOT / "tools" / "launch.py"), "--keep", *command]
            if len(where.hosts) > 1 and where.by == "native":
                words = _remote(arguments.shell, host, words)
            with open(where.logs / f"launcher-{len(keepers)}.log", "w", encoding="utf-8") as file:
                keepers.append(
                    subprocess.Popen(
                        words,
                        bufsize=0,
                        stdin=subprocess.PIPE,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        cwd=ROOT,
                        start_new_session=True,
                    )
                )
        code = supervise(keepers, where.logs, where.size)
    finally:
        end(keepers)
    if code not in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM):
        explain(where.logs)
    return code


def _where(arguments: argparse.Namespace) -> Where:
    count, _, each = arguments.world.lower().partition("x")
    if not (count.isdigit() and each.isdigit() and int(count) and int(each)):
        raise UserError(f"expected hosts x processes such as 1x8 or 4x8, got {arguments.world}")
    hosts = arguments.hosts.split(",") if arguments.hosts else ["localhost"]
    if arguments.hostfile:
        try:
            lines = Path(arguments.hostfile).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise UserError(f"--hostfile {arguments.hostfile}: {error.strerror}") from None
        hosts = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
    if len(hosts) != int(count):
        raise UserError(
            f"{arguments.world} needs {count} hosts, but there are {len(hosts)}: {', '.join(hosts)}; "
            "name them with --hosts or --hostfile"
        )
    address = arguments.address or ("127.0.0.1" if hosts == ["localhost"] else hosts[0])
    base = Path(arguments.logs).resolve() / time.strftime("%Y%m%d-%H%M%S")
    logs = next(path for path in [base, *(Path(f"{base}-{number}") for number in range(2, 1000))] if not path.exists())
    return Where(hosts, int(each), address, arguments.port or free_port("127.0.0.1"), logs, arguments.by)


def _commands(where: Where, framework: str, device: str, words: list[str]) -> list[tuple]:
    """(host, command) for every launcher to start."""
    script = [str(ROOT / "tools" / "launch.py"), "--one", str(where.logs), *words]
    if where.size == 1:
        return [(where.hosts[0], [sys.executable, *script])]
    if where.by == "mpirun":
        return [(where.hosts[0], _mpirun(where) + [sys.executable, *script])]
    make = {"torch": _torchrun, "paddle": _paddle, "mindspore": _msrun}[framework]
    return [(host, make(where, number, device) + script) for number, host in enumerate(where.hosts)]


def _torchrun(where: Where, number: int, _device: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nnodes={len(where.hosts)}",
        f"--nproc-per-node={where.each}",
        f"--node-rank={number}",
        f"--master-addr={where.address}",
        f"--master-port={where.port}",
    ]


def _paddle(where: Where, number: int, device: str) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "paddle.distributed.launch",
        f"--nnodes={len(where.hosts)}",
        f"--nproc_per_node={where.each}",
        f"--rank={number}",
        f"--log_dir={where.logs / 'paddle'}",
    ]
    if len(where.hosts) > 1:  # each must know its own address, and the first that it is the master: names do not do
        master = _number(where.address)
        command += [f"--master={master}:{where.port}", f"--host={_number(where.hosts[number]) if number else master}"]
    return command + ["--backend=gloo"] * (device == "cpu")


def _number(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise UserError(f"the address of {host} is not known here: {error.strerror}; give --hosts numbers") from None


def _msrun(where: Where, number: int, _device: str) -> list[str]:
    return [
        str(Path(sys.executable).parent / "msrun"),
        f"--worker_num={where.size}",
        f"--local_worker_num={where.each}",
        f"--master_addr={where.address}",
        f"--master_port={where.port}",
        f"--node_rank={number}",
        f"--log_dir={where.logs / f'msrun-{number}'}",
        "--join=True",
    ]


def _mpirun(where: Where) -> list[str]:
    mpirun = Path(sys.executable).parent / "mpirun"
    command = [
        str(mpirun) if mpirun.exists() else "mpirun",
        "-n",
        str(where.size),
        "--oversubscribe",
        "-x",
        f"MASTER_ADDR={where.address}",
        "-x",
        f"MASTER_PORT={where.port}",
    ]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    if len(where.hosts) > 1:
        command += ["--host", ",".join(f"{host}:{where.each}" for host in where.hosts)]
    return command


def _remote(shell: str, host: str, command: list[str]) -> list[str]:
    line = f"cd {shlex.quote(str(ROOT))} && exec {shlex.join(command)}"
    words = [word.replace("{host}", host) for word in shlex.split(shell)]
    return words + ([line] if words[0] == "ssh" else ["sh", "-c", line])


if __name__ == "__main__":
    sys.exit(main())
