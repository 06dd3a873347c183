"""The batch script: its directives, and what it starts through stand-ins for sbatch and srun."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.files import write_list
from tests.helpers.paths import ROOT
from tests.helpers.processes import environment, losses, train_arguments
from tests.helpers.training import events
from tests.zoo.launch import cluster

AWKWARD = "two  words, 'single' \"double\" $HOME `x` \\ ; ü\nsecond line"


def render(capsys, *arguments):
    code = call_zoo("launch", *arguments, "--print", "slurm", "-c", "configs/tsm_demo.yaml")
    output = capsys.readouterr()
    assert code == 0, output.err
    return output.out


def directives(script):
    return re.findall(r"^#SBATCH --(.*)$", script, re.MULTILINE)


def test_whole_hosts_by_default(capsys, no_variables):
    script = render(capsys, "2x8")
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
        f"    {sys.executable} -P {ROOT}/train.py -c configs/tsm_demo.yaml",
    ]


def test_all_options(capsys, no_variables, tmp_path):
    arguments = ["2x2", "--name", "mine", "--time", "1-12", "--partition", "gpu", "--account", "me", "--cpus", "6"]
    arguments += ["--gpus-per-node", "4", "--logs", "out", "--hostfile", write_list(tmp_path, "n1 slots=2\nn2:2\n")]
    arguments += ["--image", "registry#zoo:torch", "--volume", "/mnt/d:/data:ro", "--volume", "/mnt/r:/runs"]
    script = render(capsys, *arguments, "--out", "/runs/tsm")
    assert directives(script) == [
        "job-name=mine",
        "nodes=2",
        "ntasks-per-node=2",
        "gpus-per-node=4",
        "cpus-per-task=6",
        "partition=gpu",
        "account=me",
        "time=1-12",
        "nodelist=n1,n2",
        "signal=TERM@120",
        "output=out/%x-%j.log",
    ]
    assert script.endswith(
        "srun --export=ALL --label --kill-on-bad-exit=1 --mpi=none --cpus-per-task=6 "
        "'--container-image=registry#zoo:torch' --container-workdir=/opt/vision-zoo "
        "--container-mounts=/mnt/d:/data:ro,/mnt/r:/runs \\\n"
        "    python -P /opt/vision-zoo/train.py --out /runs/tsm -c configs/tsm_demo.yaml\n"
    )


def test_a_job_on_cpus_asks_for_no_gpus(capsys):
    assert not [line for line in directives(render(capsys, "1x2", "--device", "cpu")) if line.startswith("gpus")]


def test_the_script_starts_every_rank_with_its_variables(capsys, no_variables, tmp_path, monkeypatch):
    probe = cluster.install(tmp_path)
    monkeypatch.setenv("NCCL_DEBUG", AWKWARD)
    monkeypatch.setenv("TORCH_TOKEN", "secret")
    script = tmp_path / "job.sh"
    script.write_text(render(capsys, "2x2", "--env", "A=b c", "-o", "data.root=/with blank/$x"))
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
            sys.executable, "-P", f"{ROOT}/train.py", "-o", "data.root=/with blank/$x", "-c", "configs/tsm_demo.yaml"
        ]  # fmt: skip
        assert report["folder"] == os.getcwd()
        assert report["environment"]["NCCL_DEBUG"] == AWKWARD and report["environment"]["A"] == "b c"
        assert report["environment"]["ZOO_ENV"] == "A"


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck(capsys, tmp_path):
    script = tmp_path / "job.sh"
    script.write_text(render(capsys, "2x2", "--env", "A=b 'c'"))
    assert subprocess.run(["shellcheck", script], capture_output=True, text=True).stdout == ""


@pytest.mark.parametrize(
    "arguments, error",
    [
        (["--partition", "a b"], "--partition a b: expected letters"),
        (["--account", "x\n#SBATCH"], "--account"),
        (["--time", "2 days"], "--time 2 days: expected minutes"),
        (["--logs", "my logs"], "a path of sbatch cannot have blanks"),
        (["--gpus-per-node", "1"], "each of the 2 processes of a host needs a GPU"),
        (["--cpus", "0"], "--cpus 0: expected a number from 1 to 4096"),
        (["--volume", "/a:/b"], "--volume: is mounted into a container; name its image with --image"),
        (["--image", "i", "--volume", "runs:/runs", "--out", "/runs/x"], "SLURM mounts folders; give an absolute path"),
        (["--image", "i"], "would be written to /opt/vision-zoo/runs/tsm_demo in the container and be lost"),
        (["--hosts", "n1"], "2x2 needs 2 hosts"),
        (["--namespace", "x"], "--namespace: is only for --print k8s"),
        (["--by", "mpirun"], "--by: is only for"),
        (["--env", "API_KEY=abc"], "--env API_KEY: looks like a secret"),
        (["--out", "a\nb"], "an option has a line break"),
    ],
)
def test_mistakes(capsys, arguments, error):
    assert call_zoo("launch", "2x2", "--print", "slurm", *arguments, "-c", "configs/tsm_demo.yaml") == 2
    output = capsys.readouterr()
    assert output.err.startswith("error: ") and error in output.err and output.out == ""


@pytest.mark.slow
def test_the_script_trains(demo_sets, tmp_path, monkeypatch):
    """A real run of two ranks; its journal has the variables."""
    cluster.install(tmp_path)
    arguments = train_arguments(demo_sets, "tsm", tmp_path / "run", "torch", "--max-steps", 2)[1:]
    variables = {**environment(), "NCCL_DEBUG": "WARN", "PATH": cluster.path_with(tmp_path)}
    tool = [sys.executable, str(ROOT / "tools/launch.py"), "1x2", "--print", "slurm", "--env", "A=b c", *arguments]
    script = subprocess.run(tool, capture_output=True, text=True, env=variables, cwd=ROOT)
    assert script.returncode == 0, script.stderr
    (tmp_path / "job.sh").write_text(script.stdout)
    done = subprocess.run(
        ["sbatch", tmp_path / "job.sh"], capture_output=True, text=True, env=variables, cwd=tmp_path, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 rank(s) x 1 micro-batch(es)" in done.stdout and len(losses(tmp_path / "run")) == 2
    begin = next(event for event in events(tmp_path / "run") if event["event"] == "begin")
    recorded = begin["hosts"][0]["environment"]
    assert begin["launcher"] == "srun" and (recorded["NCCL_DEBUG"], recorded["A"]) == ("WARN", "b c")
