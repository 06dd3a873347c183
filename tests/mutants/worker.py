"""Run tests or proofs on a copy of the repository with one fault after the other; run.py starts it.

python -m tests.mutants.worker FRAMEWORK < JOBS

It imports the framework once and forks a process for every job, so that a fault in one cannot reach another. The
current folder is the copy. Standard input is a JSON list of jobs {"key", "fault": the values of a Fault or null,
"test", or "proof": arguments of comparison.record_proof}; standard output is a line of JSON for each: {"key",
"outcome": passed, failed, recorded or error, "message", "seconds"}.
"""

import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.fault import SHARED, Fault, find_test, plant

TIMEOUT = 600.0  # seconds of one job
PRELOADED = ("numpy", "hypothesis", "cv2", "PIL.Image", "yaml", "safetensors.numpy")  # nothing of the repository
LIBRARIES = {  # torch._dynamo, which the first optimizer would import
    "torch": ("torch", "torch._dynamo"),
    SHARED: ("torch", "torch._dynamo"),
    "paddle": ("paddle",),
    "mindspore": ("mindspore",),
    "jax": ("jax", "flax.nnx"),
}
FAILURES = (AssertionError, pytest.fail.Exception)  # of a test that noticed something; others are crashes


class Recorder:
    """Plugin of pytest that keeps the first exception of a test."""

    def __init__(self):
        self.error: BaseException | None = None

    def pytest_exception_interact(self, call: Any) -> None:
        self.error = self.error or call.excinfo.value


def run_test(framework: str, name: str) -> BaseException | None:
    """Run a test or a case; return what it raised."""
    path, _, function = find_test(name, Path.cwd()).partition("::")
    if function.startswith("case_"):
        frameworks = importlib.import_module("tests.helpers.frameworks")
        backend = frameworks.adapter("torch" if framework == SHARED else framework)
        backend.FP32_MODES = backend.FP32_MODES[:1]  # eager; compiling the same code takes seconds
        try:
            getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), function)(backend)
        except BaseException as error:  # pytest.fail raises no Exception
            return error
        return None
    recorder = Recorder()
    test = f"{path}::{function}" if function else path
    code = pytest.main(["-x", "--assert=plain", "-p", "no:cacheprovider", test], plugins=[recorder])
    if code and recorder.error is None:
        return RuntimeError(f"pytest ended with {code!r} for {test}")
    return recorder.error


def is_failure(error: BaseException) -> bool:
    """Return whether an error is a failed assertion, or refuses what is right; hypothesis may group several."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_failure, error.exceptions))
    return isinstance(error, FAILURES) or type(error).__name__ == "UserError"


def attempt(framework: str, job: dict[str, Any]) -> dict[str, str]:
    """Run a job in this process; return the outcome and a line of the error."""
    try:
        if "proof" in job:
            from tests.mutants.comparison import record_proof  # imports the repository, which may have a fault

            return record_proof(framework, **job["proof"])
        error = run_test(framework, job["test"])
    except BaseException as crash:
        return {"outcome": "error", "message": summary(crash)}
    if error is None:
        return {"outcome": "passed", "message": ""}
    return {"outcome": "failed" if is_failure(error) else "error", "message": summary(error)}


def summary(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


def forked(function: Any, *arguments: Any) -> dict[str, Any]:
    """Return what a function returns in a process of its own, whose output is dropped."""
    with tempfile.TemporaryDirectory() as folder:
        answer = os.path.join(folder, "answer.json")
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (1, 2):
                os.dup2(null, stream)
            result = function(*arguments)
            with open(answer, "w", encoding="utf-8") as file:
                json.dump(result, file)
            os._exit(0)
        code = wait(pid)
        if os.path.exists(answer) and os.path.getsize(answer):
            return json.loads(Path(answer).read_text(encoding="utf-8"))
    return {"outcome": "error", "message": f"the process ended with {code}"}


def wait(pid: int) -> str:
    """Wait for a process, and end its group when it takes too long; return how it ended."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return f"status {os.waitstatus_to_exitcode(status)}"
        time.sleep(0.01)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return f"no result within {TIMEOUT:.0f} s"


def run_job(framework: str, tree: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Plant the fault of a job, run its test, and take the fault out again."""
    start, restore = time.monotonic(), None
    try:
        if job["fault"]:
            restore = plant(Fault(*job["fault"]), tree)
        result = forked(attempt, framework, job)
    except ValueError as error:
        result = {"outcome": "error", "message": str(error)}
    finally:
        if restore:
            restore()
    return {"key": job["key"], **result, "seconds": round(time.monotonic() - start, 2)}


def main(framework: str) -> None:
    jobs, tree = json.load(sys.stdin), Path.cwd()
    for name in (*PRELOADED, *LIBRARIES[framework]):
        importlib.import_module(name)
    gc.freeze()  # else each process collects what all share, pytest five times
    for job in jobs:
        print(json.dumps(run_job(framework, tree, job)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
