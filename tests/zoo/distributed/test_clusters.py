"""Batch scripts and manifests: their texts, valid by the operators' definitions, and what they start."""

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
from tests.helpers.files import write_list
from tests.helpers.json_schema import errors
from tests.helpers.paths import ROOT
from tests.helpers.processes import BIN, MPIRUN, environment, losses, train_arguments
from tests.zoo.distributed import cluster
from zoo import program
from zoo.distributed.clusters import IMAGE_FOLDER

SCHEMAS = Path(__file__).parent / "schemas"
IMAGE = ["--image", "registry/zoo:1", "--volume", "runs:/runs", "--out", "/runs/tsm"]
AWKWARD = cluster.AWKWARD + " $(PATH) $$ : # "


def render(capsys, kind, *arguments):
    code = call_zoo("launch", *arguments, "--print", kind, "-c", "tsm_demo")
    output = capsys.readouterr()
    assert code == 0, output.err
    return output.out


def manifests(capsys, *arguments):
    documents = list(yaml.safe_load_all(render(capsys, "k8s", *arguments, *IMAGE)))
    for document in documents:
        schema = json.loads((SCHEMAS / f"{document['kind']}.json").read_text())
        assert list(errors(document, schema)) == []
    return documents


def directives(script):
    return re.findall(r"^#SBATCH --(.*)$", script, re.MULTILINE)


def test_whole_hosts_by_default(capsys, no_variables):
    script = render(capsys, "slurm", "2x8")
    assert directives(script) == [
        "job-name=tsm-demo-2x8",
        "nodes=2",
        "ntasks-per-node=8",
        "gpus-per-node=8",
        "exclusive",
        "mem=0",
        "signal=TERM@120",
        "output=%x-%j.log",
    ]
    assert script.splitlines()[-4:] == [
        "set -eu",
        f"cd {os.getcwd()}",
        "srun --export=ALL --label --kill-on-bad-exit=1 --mpi=none --cpu-bind=none \\",
        f"    {sys.executable} {program.MAIN} train -c tsm_demo",
    ]


def test_all_options(capsys, no_variables, tmp_path):
    arguments = ["2x2", "--name", "mine", "--time", "1-12", "--cpus", "6"]
    arguments += ["--gpus-per-node", "4", "--logs", "out", "--hostfile", write_list(tmp_path, "n1 slots=2\nn2:2\n")]
    arguments += ["--image", "registry#zoo:torch", "--volume", "/mnt/d:/data:ro", "--volume", "/mnt/r:/runs"]
    script = render(capsys, "slurm", *arguments, "--out", "/runs/tsm")
    assert directives(script) == [
        "job-name=mine",
        "nodes=2",
        "ntasks-per-node=2",
        "gpus-per-node=4",
        "cpus-per-task=6",
        "time=1-12",
        "nodelist=n1,n2",
        "signal=TERM@120",
        "output=out/%x-%j.log",
    ]
    assert script.endswith(
        "srun --export=ALL --label --kill-on-bad-exit=1 --mpi=none --cpus-per-task=6 "
        "'--container-image=registry#zoo:torch' --container-workdir=/opt/vision-zoo "
        "--container-mounts=/mnt/d:/data:ro,/mnt/r:/runs \\\n"
        "    python /opt/vision-zoo/train.py --out /runs/tsm -c tsm_demo\n"
    )


def test_the_script_starts_every_rank_with_its_variables(capsys, no_variables, tmp_path, monkeypatch):
    probe = cluster.install(tmp_path)
    monkeypatch.setenv("NCCL_DEBUG", AWKWARD)
    monkeypatch.setenv("TORCH_TOKEN", "secret")
    script = tmp_path / "job.sh"
    script.write_text(render(capsys, "slurm", "2x2", "--env", "A=b c", "-o", "data.root=/with blank/$x"))
    assert "secret" not in script.read_text()
    assert subprocess.run(["bash", "-n", script]).returncode == 0
    monkeypatch.delenv("NCCL_DEBUG")  # sbatch may be called from elsewhere
    variables = {**os.environ, "PATH": cluster.path_with(tmp_path), "FAKE_PROBE": str(probe)}
    done = subprocess.run(["sbatch", script], capture_output=True, text=True, timeout=60, env=variables, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = cluster.reports(done.stdout)
    assert [report["launch"] for report in found] == [
        {
            "rank": rank,
            "size": 4,
            "local_rank": rank % 2,
            "launcher": "srun",
            "address": "127.0.0.1",
            "job": "77 0",
            "local_address": found[0]["launch"]["local_address"],
        }
        for rank in range(4)
    ]
    for report in found:
        assert report["arguments"] == [
            sys.executable, program.MAIN, "train", "-o", "data.root=/with blank/$x", "-c", "tsm_demo"
        ]  # fmt: skip
        assert report["folder"] == os.getcwd()
        assert report["environment"]["NCCL_DEBUG"] == AWKWARD and report["environment"]["A"] == "b c"
        assert report["environment"]["ZOO_ENV"] == "A"


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
    runtime, job = manifests(
        capsys,
        *["4x8", "--name", "mine", "--cpus", "4"],
        *["--volume", "/mnt/data:/data:ro"],
    )
    assert runtime["kind"] == "TrainingRuntime" and job["kind"] == "TrainJob"
    for document in (runtime, job):
        assert document["metadata"]["name"] == "mine"
    assert job["spec"] == {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "mine"},
        "trainer": {
            "image": "registry/zoo:1",
            "numNodes": 4,
            "numProcPerNode": 8,
            "command": ["torchrun", f"{IMAGE_FOLDER}/train.py"],
            "args": ["--out", "/runs/tsm", "-c", "tsm_demo"],
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
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
        {"name": "volume-0", "hostPath": {"path": "/mnt/data", "type": "Directory"}},
        {"name": "volume-1", "persistentVolumeClaim": {"claimName": "runs"}},
    ]


@pytest.mark.parametrize(
    "framework, by", [("paddle", []), ("mindspore", []), ("jax", []), ("torch", ["--by", "mpirun"])]
)
def test_mpirun_by_an_mpi_job(capsys, no_variables, framework, by):
    [job] = manifests(capsys, "4x8", "--framework", framework, *by, "--mpi-args=--tag-output", "--env", "A=b")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    spec = job["spec"]
    assert (spec["slotsPerWorker"], spec["launcherCreationPolicy"]) == (8, "WaitForWorkersReady")
    launcher, worker = spec["mpiReplicaSpecs"]["Launcher"], spec["mpiReplicaSpecs"]["Worker"]
    assert (launcher["replicas"], worker["replicas"]) == (1, 4)
    [container] = launcher["template"]["spec"]["containers"]
    assert container["command"] == words_of(
        "mpirun -n 32 --hostfile /etc/mpi/hostfile --map-by ppr:8:node:oversubscribe --bind-to none "
        "--allow-run-as-root -x MASTER_ADDR=tsm-demo-4x8-worker-0.tsm-demo-4x8 -x PATH "
        "-x LD_LIBRARY_PATH -x A -x ZOO_ENV --tag-output"
    )
    assert container["args"][:4] == ["python", f"{IMAGE_FOLDER}/train.py", "--framework", framework]
    assert "resources" not in container  # GPUs are those of the workers
    [container] = worker["template"]["spec"]["containers"]
    assert container["command"] == ["sh", "-c", "ssh-keygen -A && exec /usr/sbin/sshd -De"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    assert {"name": "volume-0", "mountPath": "/runs"} in container["volumeMounts"]


def words_of(text):
    return text.split()


@pytest.mark.skipif(MPIRUN is None, reason="mpirun is not installed")
def test_the_launcher_starts_the_ranks_on_the_workers(capsys, no_variables, tmp_path, monkeypatch):
    """The launcher's command, with the operator's variables and hosts file, and a probe instead of train.py."""
    monkeypatch.setenv("NCCL_DEBUG", AWKWARD)
    [job] = manifests(capsys, "2x2", "--by", "mpirun")
    probe = cluster.install(tmp_path)
    hostfile = tmp_path / "hostfile"
    names = [f"tsm-demo-2x2-worker-{number}.tsm-demo-2x2" for number in (0, 1)]
    hostfile.write_text("".join(f"{name} slots=2\n" for name in names))
    [container] = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    operator = {"OMPI_MCA_orte_keep_fqdn_hostnames": "true", "OMPI_MCA_orte_default_hostfile": str(hostfile)}
    operator |= {"OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10", "OMPI_MCA_orte_set_default_slots": "2"}
    words, environ = start(container, {**os.environ, **operator, "PATH": cluster.path_with(tmp_path)})
    words = [MPIRUN, *words[1:]]
    words[words.index("/etc/mpi/hostfile")] = str(hostfile)
    first = words.index("python")
    words[first : first + 2] = [sys.executable, str(probe)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environ, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = cluster.reports(done.stdout)
    assert [(report["launch"]["local_rank"], report["environment"]["FAKE_HOST"]) for report in found] == [
        (0, names[0]), (1, names[0]), (0, names[1]), (1, names[1])
    ]  # fmt: skip
    for report in found:
        assert report["launch"]["address"] == names[0] and report["environment"]["NCCL_DEBUG"] == AWKWARD
        assert report["arguments"] == ["--out", "/runs/tsm", "-c", "tsm_demo"]


@pytest.mark.parametrize(
    "words, error",
    [
        ("slurm --gpus-per-node 1", "each of the 2 processes of a host needs a GPU"),
        ("slurm --volume /a:/b", "name its image with --image"),
        ("slurm --image i --volume runs:/runs --out /runs/x", "SLURM mounts folders; give an absolute path"),
        ("slurm --image i", "would be written to /opt/vision-zoo/runs/tsm_demo in the container and be lost"),
        ("slurm --hosts n1", "2 hosts are needed"),
        ("k8s --time 1-0", "--time: is only for --print slurm"),
        ("slurm --env API_KEY=abc", "--env API_KEY: looks like a secret"),
        ("k8s", "name a container image with --image"),
        ("k8s IMAGE --framework paddle --by native", "--by native: Kubernetes starts paddle by mpirun"),
        ("k8s IMAGE --mpi-args=-v", "--mpi-args: torchrun starts the ranks"),
        ("k8s IMAGE --hosts a,b", "--hosts: is only for"),
        ("k8s IMAGE --dry-run", "--dry-run: is only for"),
    ],
)
def test_mistakes(capsys, words, error):
    arguments = [part for word in words.split() for part in (IMAGE if word == "IMAGE" else [word])]
    assert call_zoo("launch", "2x2", "-c", "tsm_demo", "--print", *arguments) == 2
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
