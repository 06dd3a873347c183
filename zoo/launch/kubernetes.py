"""Kubernetes manifests: Kubeflow Trainer's TrainJob starts torchrun, the MPI Operator's MPIJob starts mpirun.

Written for Kubeflow Trainer v2.3 (trainer.kubeflow.org/v1alpha1) and the MPI Operator v0.8 (kubeflow.org/v2beta1).
"""

import re
from typing import Any

import yaml

from zoo.data.errors import UserError
from zoo.launch import commands
from zoo.launch.job import IMAGE_FOLDER, NAME, Job, Volume

GRACE_PERIOD = 120  # seconds between SIGTERM, at which a run saves and ends, and the end of its pods
SHM_SIZE = "16Gi"
QUANTITY = re.compile(r"[1-9]\d*(\.\d+)?(Ki|Mi|Gi|Ti|k|M|G|T)?")
SSH_PORT = 22
HOSTFILE = "/etc/mpi/hostfile"  # of the operator; Open MPI 5 does not read the variable that names it

Manifest = dict[str, Any]


def train_job(job: Job, namespace: str, shm_size: str) -> str:
    """Return a TrainingRuntime and a TrainJob as YAML: torchrun on every host.

    Args:
        job: the run, with an image.
        namespace: of all objects.
        shm_size: limit of /dev/shm, such as 16Gi.
    """
    _check(job, namespace, shm_size)
    labels = {"trainer.kubeflow.org/framework": "torch"}
    node = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0, "template": {"spec": _pod(job, shm_size, "node", "Never")}},
    }
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": job.name, "namespace": namespace, "labels": labels},
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
    limit = {"activeDeadlineSeconds": job.seconds} if job.seconds else {}
    train = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": job.name, "namespace": namespace},
        "spec": {**limit, **spec},
    }
    return _dump(runtime, train)


def mpi_job(job: Job, namespace: str, shm_size: str, mpi_args: list[str]) -> str:
    """Return an MPIJob as YAML: mpirun in a launcher pod, ranks in the worker pods, for any framework.

    Args:
        job: the run, with an image that has Open MPI and an ssh server.
        namespace: of all objects; part of the workers' names.
        shm_size: limit of /dev/shm, such as 16Gi.
        mpi_args: further options of mpirun.
    """
    _check(job, namespace, shm_size)
    mpirun = [
        "mpirun",
        "-n",
        str(job.size),
        "--hostfile",
        HOSTFILE,
        *commands.mpi_placement(job.processes_per_host, mpi_args),
        "--allow-run-as-root",
        "-x",
        f"MASTER_ADDR={job.name}-worker-0.{job.name}.{namespace}.svc",
        # Ranks are children of sshd, which keeps nothing of the environment of the image.
        *commands.mpi_exports(["PATH", "LD_LIBRARY_PATH", *job.variables]),
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
    worker = _pod(job, shm_size, "worker", None)
    worker["containers"][0] |= {
        "command": ["/usr/sbin/sshd", "-De"],
        "readinessProbe": {"tcpSocket": {"port": SSH_PORT}, "initialDelaySeconds": 2},
        "resources": _resources(job),
    }
    policy = {"cleanPodPolicy": "Running", "backoffLimit": 0}
    manifest = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": job.name, "namespace": namespace},
        "spec": {
            "slotsPerWorker": job.processes_per_host,
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": {**policy, **({"activeDeadlineSeconds": job.seconds} if job.seconds else {})},
            "mpiReplicaSpecs": {
                "Launcher": {
                    "replicas": 1,
                    "restartPolicy": "Never",
                    "template": {"spec": {"terminationGracePeriodSeconds": GRACE_PERIOD, "containers": [launcher]}},
                },
                "Worker": {"replicas": job.hosts, "restartPolicy": "Never", "template": {"spec": worker}},
            },
        },
    }
    return _dump(manifest)


def _check(job: Job, namespace: str, shm_size: str) -> None:
    if not job.image:
        raise UserError("--print k8s: name a container image with --image, such as registry/vision-zoo:torch")
    if not NAME.fullmatch(namespace):
        raise UserError(f"--namespace {namespace}: expected lower-case letters, digits and -")
    if not QUANTITY.fullmatch(shm_size):
        raise UserError(f"--shm-size {shm_size}: expected a quantity of Kubernetes such as 16Gi")
    for volume in job.volumes:
        if not volume.source.startswith("/") and not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", volume.source):
            raise UserError(
                f"--volume {volume.source}:{volume.path}: expected the name of a PersistentVolumeClaim, or an "
                "absolute path for a folder of the host"
            )


def _pod(job: Job, shm_size: str, container: str, restart: str | None) -> dict[str, Any]:
    """Return the specification of a pod with one container, in which ranks run."""
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    mounts += [_mount(number, volume) for number, volume in enumerate(job.volumes)]
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shm_size}}]
    volumes += [_volume(number, volume) for number, volume in enumerate(job.volumes)]
    main = {"name": container, "image": job.image, "workingDir": IMAGE_FOLDER, "volumeMounts": mounts}
    policy = {"restartPolicy": restart} if restart else {}
    return {**policy, "terminationGracePeriodSeconds": GRACE_PERIOD, "containers": [main], "volumes": volumes}


def _mount(number: int, volume: Volume) -> dict[str, Any]:
    return {"name": f"volume-{number}", "mountPath": volume.path, **({"readOnly": True} if volume.read_only else {})}


def _volume(number: int, volume: Volume) -> dict[str, Any]:
    if volume.source.startswith("/"):
        return {"name": f"volume-{number}", "hostPath": {"path": volume.source, "type": "Directory"}}
    return {"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": volume.source}}


def _resources(job: Job) -> dict[str, Any]:
    """Return the resources of a host."""
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
