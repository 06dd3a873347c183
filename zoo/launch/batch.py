"""Scripts and manifests for batch systems, from the command line of tools/launch.py."""

import argparse
import os

from zoo.data.errors import UserError
from zoo.launch import commands, hosts, job, kubernetes, options, slurm, variables
from zoo.launch.job import Job
from zoo.run.cli import Request


def render(
    arguments: argparse.Namespace, request: Request, environment: dict[str, str], train_arguments: list[str]
) -> str:
    """Return the script or manifests of --print.

    Args:
        arguments: options of tools/launch.py.
        request: the resolved recipe.
        environment: variables for all processes.
        train_arguments: options of train.py.

    Raises:
        UserError: Options contradict each other, or a variable looks like a secret.
    """
    variables.check_printable(environment)
    run = _job(arguments, request, environment, train_arguments)
    return _slurm(arguments, run) if arguments.print == "slurm" else _kubernetes(arguments, request, run)


def _job(
    arguments: argparse.Namespace, request: Request, environment: dict[str, str], train_arguments: list[str]
) -> Job:
    count, processes = options.world(arguments.world)
    mounted = job.volumes(arguments.volume)
    if arguments.image:
        job.check_out(request.config.out or os.path.join("runs", request.recipe), mounted)
    elif mounted and arguments.print == "slurm":
        raise UserError("--volume: is mounted into a container; name its image with --image")
    gpus = arguments.gpus_per_node
    if gpus is None:
        gpus = 0 if request.config.device == "cpu" else processes
    if 0 < gpus < processes:
        raise UserError(f"--gpus-per-node {gpus}: each of the {processes} processes of a host needs a GPU of its own")
    if any(not word.isprintable() for word in (arguments.image or "", *train_arguments)):
        raise UserError("--print: an option has a line break or another control character")
    return Job(
        job.job_name(arguments.name, request.recipe, arguments.world),
        count,
        processes,
        gpus,
        arguments.cpus,
        job.seconds(arguments.time),
        arguments.image,
        mounted,
        environment,
        train_arguments,
    )


def _slurm(arguments: argparse.Namespace, run: Job) -> str:
    named = arguments.hosts or arguments.hostfile
    return slurm.script(
        run,
        partition=arguments.partition,
        account=arguments.account,
        time_limit=arguments.time,
        hosts=hosts.read(arguments.hosts, arguments.hostfile, run.hosts, run.processes_per_host) if named else [],
        logs=arguments.logs,
        folder=os.getcwd(),
    )


def _kubernetes(arguments: argparse.Namespace, request: Request, run: Job) -> str:
    namespace, shm_size = arguments.namespace or "default", arguments.shm_size or kubernetes.SHM_SIZE
    framework = request.config.framework
    if framework == "torch" and arguments.by != "mpirun":
        if arguments.mpi_args is not None:
            raise UserError("--mpi-args: torchrun starts the ranks; give --by mpirun for an MPIJob")
        return kubernetes.train_job(run, namespace, shm_size)
    if arguments.by == "native":
        raise UserError(f"--by native: Kubernetes starts {framework} by mpirun (MPIJob); leave it out")
    return kubernetes.mpi_job(run, namespace, shm_size, commands.split_mpi_args(arguments.mpi_args or ""))
