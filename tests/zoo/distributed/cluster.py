"""Stand-ins for ssh, sbatch and srun, and a program that reports the rank and environment in which it was started."""

import json
import os
import sys
from pathlib import Path

from tests.helpers.paths import ROOT

# The variables of a report: few, so that one write is not torn.
REPORTED = (
    "A",
    "CUDA_VISIBLE_DEVICES",
    "FAKE_HOST",
    "FLAGS_x",
    "NCCL_DEBUG",
    "NOT_FOR_RUNS",
    "WANDB_API_KEY",
    "ZOO_ENV",
)

AWKWARD = "two  words, 'single' \"double\" $HOME `x` \\ ; ü\nsecond line"

# Runs the command on this machine, with the few variables that sshd gives to a command.
SSH = """\
#!/bin/sh
printf '%s\\n' "$@" --- >> "{folder}/ssh.log"
while :; do case $1 in -p|-o) shift 2;; -*) shift;; *) break;; esac; done
host=$1; shift
exec env -i PATH=/usr/bin:/bin HOME="$HOME" FAKE_HOST="$host" sh -c "$*"
"""

SBATCH = """\
#!{python}
import os, re, subprocess, sys
text = open(sys.argv[1]).read()
options = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(\\S+))?$", text, re.MULTILINE))
assert len(options) == text.count("#SBATCH"), text
os.environ.update(SLURM_JOB_ID="77", FAKE_NODES=options["nodes"], FAKE_TASKS=options["ntasks-per-node"])
sys.exit(subprocess.call(["bash", sys.argv[1]]))
"""

SRUN = """\
#!{python}
import os, subprocess, sys
known = ("--export", "--label", "--kill-on-bad-exit", "--mpi", "--cpu-bind", "--cpus-per-task", "--container-image",
         "--container-workdir", "--container-mounts")
command = list(sys.argv[1:])
while command[0].startswith("-"):
    option = command.pop(0)
    assert option.partition("=")[0] in known, option
nodes, tasks = int(os.environ["FAKE_NODES"]), int(os.environ["FAKE_TASKS"])
if "FAKE_PROBE" in os.environ:
    command = [{python!r}, os.environ["FAKE_PROBE"], *command]
names = "127.0.0.1" + ",gpu2" * (nodes - 1)
processes = [
    subprocess.Popen(command, env=dict(
        os.environ, SLURM_STEP_NODELIST=names, SLURM_STEP_NUM_TASKS=str(nodes * tasks), SLURM_STEP_ID="0",
        SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank % tasks), SLURM_NODEID=str(rank // tasks)))
    for rank in range(nodes * tasks)
]
sys.exit(max(process.wait() for process in processes))
"""

PROBE = """\
import dataclasses, json, os, sys
sys.path.insert(0, {root!r})
from zoo.distributed.environment import detect
report = {{"launch": dataclasses.asdict(detect(os.environ)), "arguments": sys.argv[1:], "folder": os.getcwd(),
          "environment": {{name: value for name, value in os.environ.items() if name in {names!r}}}}}
os.write(1, json.dumps(report).encode() + b"\\n")
"""


def install(folder: Path) -> Path:
    """Write the programs to a folder and return the path of the probe."""
    for name, text in (("ssh", SSH), ("sbatch", SBATCH), ("srun", SRUN)):
        program = folder / name
        program.write_text(text.format(folder=folder, python=sys.executable))
        program.chmod(0o755)
    probe = folder / "probe.py"
    probe.write_text(PROBE.format(root=str(ROOT), names=REPORTED))
    return probe


def path_with(folder: Path) -> str:
    return f"{folder}:{os.environ['PATH']}"


def reports(text: str) -> list[dict]:
    """Return what the probes wrote, by rank."""
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda report: report["launch"]["rank"])
