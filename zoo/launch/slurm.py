"""SLURM batch scripts: one `srun` that starts all ranks, whatever the framework.

Every rank finds out its number from the variables of srun (zoo/distributed/launchers.py), so no launcher of a framework
is needed. Containers are those of the plugin pyxis.
"""

import re
import shlex
from collections.abc import Sequence

from zoo import program
from zoo.data.errors import UserError
from zoo.launch.job import IMAGE_FOLDER, Job, Volume

NOTICE = 120  # seconds between SIGTERM, at which a run saves and ends, and the time limit
WORD = re.compile(r"[A-Za-z0-9_.,-]+")


def script(
    job: Job,
    *,
    partition: str | None,
    account: str | None,
    time_limit: str | None,
    hosts: Sequence[str],
    logs: str | None,
    folder: str,
) -> str:
    """Return a batch script for `sbatch`.

    Args:
        job: the run.
        partition, account: of SLURM; None for the defaults of the site.
        time_limit: in a form of `sbatch --time`; None for that of the partition.
        hosts: hosts to use; empty for any.
        logs: folder of the output, which has to exist; None for the folder in which sbatch is called.
        folder: current folder of the ranks, without a container.

    Raises:
        UserError: A value has characters that a line of #SBATCH cannot hold.
    """
    whole_hosts = job.cpus_per_process is None
    options = {
        "job-name": job.name,
        "nodes": str(job.hosts),
        "ntasks-per-node": str(job.processes_per_host),
        "gpus-per-node": str(job.gpus_per_host) if job.gpus_per_host else None,
        "cpus-per-task": None if whole_hosts else str(job.cpus_per_process),
        "exclusive": "" if whole_hosts else None,
        "mem": "0" if whole_hosts else None,  # all of it
        "partition": _word("--partition", partition),
        "account": _word("--account", account),
        "time": time_limit,
        "nodelist": ",".join(hosts) or None,
        "signal": f"TERM@{NOTICE}",
        "output": _path("--logs", f"{logs}/%x-%j.log" if logs else "%x-%j.log"),
    }
    lines = ["#!/bin/bash"]
    lines += [f"#SBATCH --{name}" + f"={value}" * bool(value) for name, value in options.items() if value is not None]
    lines += ["set -eu"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in job.variables.items()]
    lines += [] if job.image else [f"cd {shlex.quote(folder)}"]
    return "\n".join([*lines, _join(_srun(job), _rank(job)), ""])


def _srun(job: Job) -> list[str]:
    # Without --mpi=none, a site may add variables of PMI. Without --cpu-bind=none, a rank gets one core, its data
    # workers too. srun does not inherit --cpus-per-task since SLURM 22.05.
    words = ["srun", "--export=ALL", "--label", "--kill-on-bad-exit=1", "--mpi=none"]
    words.append("--cpu-bind=none" if job.cpus_per_process is None else f"--cpus-per-task={job.cpus_per_process}")
    if job.image:
        words += [f"--container-image={job.image}", f"--container-workdir={IMAGE_FOLDER}"]
        if job.volumes:
            words.append(f"--container-mounts={','.join(map(_mount, job.volumes))}")
    return words


def _rank(job: Job) -> list[str]:
    train = ["python", f"{IMAGE_FOLDER}/train.py"] if job.image else program.command("train")
    return [*train, *job.train_arguments]


def _mount(volume: Volume) -> str:
    if not volume.source.startswith("/"):
        raise UserError(f"--volume {volume.source}:{volume.path}: SLURM mounts folders; give an absolute path")
    return f"{volume.source}:{volume.path}" + ":ro" * volume.read_only


def _join(*groups: Sequence[str]) -> str:
    """Join words to a command of the shell, each group on a line of its own."""
    return " \\\n    ".join(shlex.join(group) for group in groups)


def _word(option: str, value: str | None) -> str | None:
    if value is not None and not WORD.fullmatch(value):
        raise UserError(f"{option} {value}: expected letters, digits and _ . , -")
    return value


def _path(option: str, value: str) -> str:
    if re.search(r"\s", value):
        raise UserError(f"{option}: a path of sbatch cannot have blanks: {value}")
    return value
