"""Kubernetes manifests: valid by the definitions of the operators, and what their commands start."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.helpers.cli import call_zoo
from tests.helpers.paths import ROOT
from tests.helpers.processes import BIN, MPIRUN, environment, losses, train_arguments
from tests.zoo.launch import cluster
from tests.zoo.launch.schema import errors
from zoo.launch.job import IMAGE_FOLDER

SCHEMAS = Path(__file__).parent / "schemas"
COMMON = ["--print", "k8s", "--image", "registry/zoo:1", "--volume", "runs:/runs", "--out", "/runs/tsm"]
AWKWARD = "two  words, 'single' \"double\" $HOME $(PATH) $$ : # ü\nsecond line"


def render(capsys, *arguments):
    code = call_zoo("launch", *arguments, *COMMON, "-c", "configs/tsm_demo.yaml")
    output = capsys.readouterr()
    assert code == 0, output.err
    documents = list(yaml.safe_load_all(output.out))
    for document in documents:
        schema = json.loads((SCHEMAS / f"{document['kind']}.json").read_text())
        assert list(errors(document, schema)) == []
    return documents


def expand(text, variables):
    """Replace what a kubelet replaces: $(NAME) if it is set, and $$ by $."""
    return re.sub(
        r"\$(\$|\((\w+)\))", lambda match: "$" if match[1] == "$" else variables.get(match[2], match[0]), text
    )


def start(container, capture, **variables):
    """Return command and environment of a container as a kubelet starts it."""
    environ = {}
    for entry in container.get("env", []):
        environ[entry["name"]] = expand(entry["value"], environ)
    words = [expand(word, environ) for word in container["command"] + container.get("args", [])]
    return words, {**capture, **environ, **variables}


def test_torchrun_by_a_train_job(capsys, no_variables, monkeypatch):
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    runtime, job = render(
        capsys,
        *["4x8", "--namespace", "team", "--name", "mine", "--time", "1-0", "--cpus", "4", "--shm-size", "32Gi"],
        *["--volume", "/mnt/data:/data:ro"],
    )
    assert runtime["kind"] == "TrainingRuntime" and job["kind"] == "TrainJob"
    for document in (runtime, job):
        assert document["metadata"]["name"] == "mine" and document["metadata"]["namespace"] == "team"
    assert job["spec"] == {
        "activeDeadlineSeconds": 86400,
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "mine"},
        "trainer": {
            "image": "registry/zoo:1",
            "numNodes": 4,
            "numProcPerNode": 8,
            "command": ["torchrun", f"{IMAGE_FOLDER}/train.py"],
            "args": ["--out", "/runs/tsm", "-c", "configs/tsm_demo.yaml"],
            "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
            "resourcesPerNode": {"requests": {"cpu": "32"}, "limits": {"nvidia.com/gpu": "8"}},
        },
    }
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 4, "torch": {}}
    [node] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert node["name"] == "node"  # the operator looks for this job and container
    assert node["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pod = node["template"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["name"] == "node" and container["workingDir"] == IMAGE_FOLDER
    assert container["volumeMounts"] == [
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "volume-0", "mountPath": "/data", "readOnly": True},
        {"name": "volume-1", "mountPath": "/runs"},
    ]
    assert pod["volumes"] == [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "32Gi"}},
        {"name": "volume-0", "hostPath": {"path": "/mnt/data", "type": "Directory"}},
        {"name": "volume-1", "persistentVolumeClaim": {"claimName": "runs"}},
    ]


@pytest.mark.parametrize("framework, by", [("paddle", []), ("mindspore", []), ("torch", ["--by", "mpirun"])])
def test_mpirun_by_an_mpi_job(capsys, no_variables, framework, by):
    [job] = render(capsys, "4x8", "--framework", framework, *by, "--mpi-args=--tag-output", "--env", "A=b")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    spec = job["spec"]
    assert (spec["slotsPerWorker"], spec["launcherCreationPolicy"]) == (8, "WaitForWorkersReady")
    launcher, worker = spec["mpiReplicaSpecs"]["Launcher"], spec["mpiReplicaSpecs"]["Worker"]
    assert (launcher["replicas"], worker["replicas"]) == (1, 4)
    [container] = launcher["template"]["spec"]["containers"]
    assert container["command"] == words_of(
        "mpirun -n 32 --hostfile /etc/mpi/hostfile --map-by ppr:8:node:oversubscribe --bind-to none "
        "--allow-run-as-root -x MASTER_ADDR=tsm-demo-4x8-worker-0.tsm-demo-4x8.default.svc -x PATH "
        "-x LD_LIBRARY_PATH -x A -x ZOO_ENV --tag-output"
    )
    assert container["args"][:5] == ["python", "-P", f"{IMAGE_FOLDER}/train.py", "--framework", framework]
    assert "resources" not in container  # GPUs are those of the workers
    [container] = worker["template"]["spec"]["containers"]
    assert container["command"] == ["/usr/sbin/sshd", "-De"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    assert {"name": "volume-0", "mountPath": "/runs"} in container["volumeMounts"]


def words_of(text):
    return text.split()


def test_a_kubelet_restores_every_value(capsys, no_variables, monkeypatch):
    monkeypatch.setenv("NCCL_DEBUG", AWKWARD)
    _, job = render(capsys, "1x1", "-o", "data.root=/$(NCCL_DEBUG)/$$x")
    words, environ = start(job["spec"]["trainer"], {})
    assert environ == {"NCCL_DEBUG": AWKWARD}
    assert words[2:4] == ["-o", "data.root=/$(NCCL_DEBUG)/$$x"]


@pytest.mark.skipif(MPIRUN is None, reason="mpirun is not installed")
def test_the_launcher_starts_the_ranks_on_the_workers(capsys, no_variables, tmp_path, monkeypatch):
    """The launcher's command, with the operator's variables and hosts file, and a probe instead of train.py."""
    monkeypatch.setenv("NCCL_DEBUG", AWKWARD)
    [job] = render(capsys, "2x2", "--by", "mpirun")
    probe = cluster.install(tmp_path)
    hostfile = tmp_path / "hostfile"
    names = [f"tsm-demo-2x2-worker-{number}.tsm-demo-2x2.default.svc" for number in (0, 1)]
    hostfile.write_text("".join(f"{name} slots=2\n" for name in names))
    [container] = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    operator = {"OMPI_MCA_orte_keep_fqdn_hostnames": "true", "OMPI_MCA_orte_default_hostfile": str(hostfile)}
    operator |= {"OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10", "OMPI_MCA_orte_set_default_slots": "2"}
    words, environ = start(container, {**os.environ, **operator, "PATH": cluster.path_with(tmp_path)})
    words = [MPIRUN, *words[1:]]
    words[words.index("/etc/mpi/hostfile")] = str(hostfile)
    program = words.index("python")
    words[program : program + 3] = [sys.executable, str(probe)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environ, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = cluster.reports(done.stdout)
    assert [(report["launch"]["local_rank"], report["environment"]["FAKE_HOST"]) for report in found] == [
        (0, names[0]), (1, names[0]), (0, names[1]), (1, names[1])
    ]  # fmt: skip
    for report in found:
        assert report["launch"]["address"] == names[0] and report["environment"]["NCCL_DEBUG"] == AWKWARD
        assert report["arguments"] == ["--out", "/runs/tsm", "-c", "configs/tsm_demo.yaml"]


def test_violations_are_found():
    schema = json.loads((SCHEMAS / "MPIJob.json").read_text())
    job = {"kind": "MPIJob", "spec": {"slotsPerWorker": "8", "slots": 1, "runPolicy": {"backoffLimit": True}}}
    assert sorted(errors(job, schema)) == [
        ".spec.mpiReplicaSpecs: is missing",
        ".spec.runPolicy.backoffLimit: True has a wrong type",
        ".spec.slots: is not defined",
        ".spec.slotsPerWorker: '8' has a wrong type",
    ]
    assert list(errors("x", {"type": "string", "enum": ["y"], "pattern": "z"})) == [
        ": 'x' is none of ['y']",
        ": 'x' does not match z",
    ]


@pytest.mark.parametrize(
    "arguments, error",
    [
        (["--image", ""], "name a container image with --image"),
        (["--namespace", "My Team"], "--namespace My Team: expected lower-case letters"),
        (["--shm-size", "lots"], "--shm-size lots: expected a quantity"),
        (["--volume", "No_Claim:/data"], "expected the name of a PersistentVolumeClaim"),
        (["--framework", "paddle", "--by", "native"], "--by native: Kubernetes starts paddle by mpirun"),
        (["--mpi-args", "--tag output"], "--mpi-args: torchrun starts the ranks"),
        (["--by", "mpirun", "--mpi-args", "'a b"], "No closing quotation"),
        (["--hosts", "a,b"], "--hosts: is only for"),
        (["--partition", "gpu"], "--partition: is only for --print slurm"),
        (["--dry-run"], "--dry-run: is only for"),
        (["--env", "HF_TOKEN=abc"], "looks like a secret, which --print would write down"),
    ],
)
def test_mistakes(capsys, arguments, error):
    assert call_zoo("launch", "2x2", *COMMON, *arguments, "-c", "configs/tsm_demo.yaml") == 2
    output = capsys.readouterr()
    assert output.err.startswith("error: ") and error in output.err and output.out == ""


@pytest.mark.slow
def test_the_train_job_trains(demo_sets, tmp_path):
    """Its command, with the variables that the operator sets; the checkout stands for the image."""
    arguments = train_arguments(demo_sets, "tsm", tmp_path / "run", "torch", "--max-steps", 2)[1:]
    tool = [sys.executable, str(ROOT / "tools/launch.py"), "1x2", "--print", "k8s", "--image", "i"]
    tool += ["--volume", f"runs:{tmp_path}", *arguments]
    done = subprocess.run(tool, capture_output=True, text=True, env=environment(), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    trainer = list(yaml.safe_load_all(done.stdout))[1]["spec"]["trainer"]
    operator = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "127.0.0.1"}
    words, environ = start(trainer, environment(), **operator, PET_MASTER_PORT="29517")
    words = [shutil.which("torchrun", path=str(BIN)), *words[1:]]
    words[1] = words[1].replace(IMAGE_FOLDER, str(ROOT))
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, env=environ, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 rank(s) x 1 micro-batch(es)" in done.stdout and len(losses(tmp_path / "run")) == 2
