"""Batch scripts for SLURM and manifests for Kubernetes, as `zoo launch --print` writes them.

SLURM: one `srun` starts all ranks, whatever the framework; containers are those of the plugin pyxis. Kubernetes:
Kubeflow Trainer's TrainJob starts torchrun (v2.3, trainer.kubeflow.org/v1alpha1), the MPI Operator's MPIJob starts
mpirun (v0.8, kubeflow.org/v2beta1). Ranks find out their numbers from the variables of each.
"""

import argparse
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import yaml

from zoo import program
from zoo.config.schema import Config
from zoo.data.errors import UserError
from zoo.distributed import launchers
from zoo.distributed.environment import check_printable

IMAGE_FOLDER = "/opt/vision-zoo"  # of this project in container images: the WORKDIR of environments/*.Dockerfile
MAX_NAME = 40  # characters; Kubernetes appends to it, up to 63
NOTICE = 120  # seconds between SIGTERM, at which a run saves and ends, and the time limit or the end of its pods
SHM_SIZE = "16Gi"
SSH_PORT = 22
HOSTFILE = "/etc/mpi/hostfile"  # of the operator; Open MPI 5 does not read the variable that names it

Manifest = dict[str, Any]


class Volume(NamedTuple):
    """Something to mount into containers. source: a folder of the host, or a PersistentVolumeClaim."""

    source: str
    path: str
    read_only: bool


class Job(NamedTuple):
    """A run as a batch system starts it."""

    name: str
    hosts: int
    processes_per_host: int
    gpus_per_host: int
    cpus_per_process: int | None  # None: all cores of whole hosts
    image: str | None
    volumes: list[Volume]
    variables: dict[str, str]
    train_arguments: list[str]

    @property
    def size(self) -> int:
        return self.hosts * self.processes_per_host


def render(
    arguments: argparse.Namespace,
    recipe: str,
    config: Config,
    variables: dict[str, str],
    train_arguments: list[str],
) -> str:
    """Return the script or manifests of --print. arguments: of `zoo launch`; train_arguments: of `zoo train`."""
    check_printable(variables)
    count, processes = launchers.read_world(arguments.world)
    mounted = read_volumes(arguments.volume)
    if arguments.image:
        check_out(config.out or os.path.join("runs", recipe), mounted)
    elif mounted and arguments.print == "slurm":
        raise UserError("--volume: is mounted into a container; name its image with --image")
    gpus = arguments.gpus_per_node
    if gpus is None:
        gpus = 0 if config.device == "cpu" else processes
    if 0 < gpus < processes:
        raise UserError(f"--gpus-per-node {gpus}: each of the {processes} processes of a host needs a GPU of its own")
    job = Job(
        arguments.name or job_name(recipe, f"{count}x{processes}"),
        count,
        processes,
        gpus,
        arguments.cpus,
        arguments.image,
        mounted,
        variables,
        train_arguments,
    )
    return _slurm(job, arguments) if arguments.print == "slurm" else _kubernetes(job, arguments, config.framework)


def job_name(recipe: str, world: str) -> str:
    """Return a name that Kubernetes takes, such as tsm-k400-4x8."""
    stem = re.sub(r"[^a-z0-9]+", "-", recipe.lower()).strip("-")
    stem = stem if stem[:1].isalpha() else f"run-{stem}"
    return f"{stem[: MAX_NAME - len(world) - 1].rstrip('-')}-{world.lower()}"


def read_volumes(texts: Sequence[str]) -> list[Volume]:
    """Return the values of --volume, SOURCE:PATH or SOURCE:PATH:ro."""
    found: list[Volume] = []
    for text in texts:
        source, _, rest = text.partition(":")
        path, _, mode = rest.partition(":")
        if not source or not path.startswith("/") or mode not in ("", "ro") or re.search(r"[\s,]", text):
            raise UserError(f"--volume {text}: expected SOURCE:PATH or SOURCE:PATH:ro, with an absolute PATH")
        found.append(Volume(source, path, mode == "ro"))
    return found


def check_out(out: str, mounted: Sequence[Volume]) -> None:
    """Check that the folder of the run, relative to the project's folder in the image, outlives the containers."""
    folder = PurePosixPath(IMAGE_FOLDER) / out
    if not any(folder.is_relative_to(volume.path) for volume in mounted if not volume.read_only):
        raise UserError(
            f"the run would be written to {folder} in the container and be lost with it; "
            "mount a volume, such as --volume CLAIM:/runs, and give --out /runs/NAME"
        )


def _slurm(job: Job, arguments: argparse.Namespace) -> str:
    """Return a batch script for `sbatch`; without a container, ranks run in the current folder."""
    hosts = []
    if arguments.hosts or arguments.hostfile:
        hosts = launchers.read_hosts(arguments.hosts, arguments.hostfile, job.hosts)
    whole_hosts = job.cpus_per_process is None
    options = {
        "job-name": job.name,
        "nodes": str(job.hosts),
        "ntasks-per-node": str(job.processes_per_host),
        "gpus-per-node": str(job.gpus_per_host) if job.gpus_per_host else None,
        "cpus-per-task": None if whole_hosts else str(job.cpus_per_process),
        "exclusive": "" if whole_hosts else None,
        "mem": "0" if whole_hosts else None,  # all of it
        "time": arguments.time,
        "nodelist": ",".join(hosts) or None,
        "signal": f"TERM@{NOTICE}",
        "output": os.path.join(arguments.logs or "", "%x-%j.log"),
    }
    lines = ["#!/bin/bash"]
    lines += [f"#SBATCH --{name}" + f"={value}" * bool(value) for name, value in options.items() if value is not None]
    lines += ["set -eu"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in job.variables.items()]
    lines += [] if job.image else [f"cd {shlex.quote(os.getcwd())}"]
    train = ["python", f"{IMAGE_FOLDER}/train.py"] if job.image else program.command("train")
    return "\n".join([*lines, f"{shlex.join(_srun(job))} \\\n    {shlex.join([*train, *job.train_arguments])}", ""])


def _srun(job: Job) -> list[str]:
    # Without --mpi=none, a site may add variables of PMI. Without --cpu-bind=none, a rank gets one core, its data
    # workers too. srun does not inherit --cpus-per-task since SLURM 22.05.
    words = ["srun", "--export=ALL", "--label", "--kill-on-bad-exit=1", "--mpi=none"]
    words.append("--cpu-bind=none" if job.cpus_per_process is None else f"--cpus-per-task={job.cpus_per_process}")
    if job.image:
        words += [f"--container-image={job.image}", f"--container-workdir={IMAGE_FOLDER}"]
        if job.volumes:
            words.append(f"--container-mounts={','.join(map(_container_mount, job.volumes))}")
    return words


def _container_mount(volume: Volume) -> str:
    if not volume.source.startswith("/"):
        raise UserError(f"--volume {volume.source}:{volume.path}: SLURM mounts folders; give an absolute path")
    return f"{volume.source}:{volume.path}" + ":ro" * volume.read_only


def _kubernetes(job: Job, arguments: argparse.Namespace, framework: str) -> str:
    """Return manifests: a TrainJob for PyTorch, an MPIJob for the others and with --by mpirun."""
    if not job.image:
        raise UserError("--print k8s: name a container image with --image, such as registry/vision-zoo:torch")
    if framework == "torch" and arguments.by != "mpirun":
        if arguments.mpi_args is not None:
            raise UserError("--mpi-args: torchrun starts the ranks; give --by mpirun for an MPIJob")
        return _train_job(job)
    if arguments.by == "native":
        raise UserError(f"--by native: Kubernetes starts {framework} by mpirun (MPIJob); leave it out")
    return _mpi_job(job, launchers.split(arguments.mpi_args or "", "--mpi-args"))


def _train_job(job: Job) -> str:
    """Return a TrainingRuntime and a TrainJob as YAML: torchrun on every host."""
    labels = {"trainer.kubeflow.org/framework": "torch"}
    node = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0, "template": {"spec": _pod(job, "node", "Never")}},
    }
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": job.name, "labels": labels},
        "spec": {
            "mlPolicy": {"numNodes": job.hosts, "torch": {}},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": node}]}},
        },
    }
    trainer = {
        "image": job.image,
        "numNodes": job.hosts,
        "numProcPerNode": job.processes_per_host,
        "command": ["torchrun", f"{IMAGE_FOLDER}/train.py"],  # the operator sets its options as PET_* variables
        "args": [_escape(word) for word in job.train_arguments],
        "env": _environment(job),
        "resourcesPerNode": _resources(job),
    }
    spec = {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": job.name},
        "trainer": trainer,
    }
    train = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": job.name},
        "spec": spec,
    }
    return _dump(runtime, train)


def _mpi_job(job: Job, mpi_args: list[str]) -> str:
    """Return an MPIJob as YAML: mpirun in a launcher pod, ranks in the worker pods, in an image with an ssh server."""
    mpirun = [
        "mpirun",
        "-n",
        str(job.size),
        "--hostfile",
        HOSTFILE,
        *launchers.mpi_placement(job.processes_per_host, mpi_args),
        "--allow-run-as-root",
        "-x",
        f"MASTER_ADDR={job.name}-worker-0.{job.name}",
        # Ranks are children of sshd, which keeps nothing of the environment of the image.
        *launchers.mpi_exports(["PATH", "LD_LIBRARY_PATH", *job.variables]),
        *mpi_args,
    ]
    launcher = {
        "name": "launcher",
        "image": job.image,
        "workingDir": IMAGE_FOLDER,
        "command": [_escape(word) for word in mpirun],
        "args": ["python", f"{IMAGE_FOLDER}/train.py", *map(_escape, job.train_arguments)],
        "env": _environment(job),
    }
    worker = _pod(job, "worker", None)
    worker["containers"][0] |= {
        "command": ["sh", "-c", "ssh-keygen -A && exec /usr/sbin/sshd -De"],  # keys of this pod alone
        "readinessProbe": {"tcpSocket": {"port": SSH_PORT}, "initialDelaySeconds": 2},
        "resources": _resources(job),
    }
    manifest = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": job.name},
        "spec": {
            "slotsPerWorker": job.processes_per_host,
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
            "mpiReplicaSpecs": {
                "Launcher": {
                    "replicas": 1,
                    "restartPolicy": "Never",
                    "template": {"spec": {"terminationGracePeriodSeconds": NOTICE, "containers": [launcher]}},
                },
                "Worker": {"replicas": job.hosts, "restartPolicy": "Never", "template": {"spec": worker}},
            },
        },
    }
    return _dump(manifest)


def _pod(job: Job, container: str, restart: str | None) -> dict[str, Any]:
    """Return the specification of a pod with one container, in which ranks run."""
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}]
    for number, volume in enumerate(job.volumes):
        read_only = {"readOnly": True} if volume.read_only else {}
        mounts.append({"name": f"volume-{number}", "mountPath": volume.path, **read_only})
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHM_SIZE}}]
    volumes += [_volume(number, volume) for number, volume in enumerate(job.volumes)]
    main = {"name": container, "image": job.image, "workingDir": IMAGE_FOLDER, "volumeMounts": mounts}
    policy = {"restartPolicy": restart} if restart else {}
    return {**policy, "terminationGracePeriodSeconds": NOTICE, "containers": [main], "volumes": volumes}


def _volume(number: int, volume: Volume) -> dict[str, Any]:
    if volume.source.startswith("/"):
        return {"name": f"volume-{number}", "hostPath": {"path": volume.source, "type": "Directory"}}
    return {"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": volume.source}}


def _resources(job: Job) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if job.cpus_per_process:
        resources["requests"] = {"cpu": str(job.cpus_per_process * job.processes_per_host)}
    if job.gpus_per_host:
        resources["limits"] = {"nvidia.com/gpu": str(job.gpus_per_host)}
    return resources


def _environment(job: Job) -> list[dict[str, str]]:
    return [{"name": name, "value": _escape(value)} for name, value in job.variables.items()]


def _escape(text: str) -> str:
    """Escape what Kubernetes would replace in commands and variables: $(NAME); $$ is a plain $."""
    return text.replace("$", "$$")


def _dump(*manifests: Manifest) -> str:
    return yaml.safe_dump_all(manifests, sort_keys=False, explicit_start=True, width=120)
