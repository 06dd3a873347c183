"""Run the same test cases in every framework, each in a process of its own, because one process loads one framework.

A module of cases has functions case_<name>(backend); `backend` is the framework's adapter,
tests/zoo/trainer/<framework>/adapter.py. PyTorch is what pytest's own process loads: its cases run there. The cases of
another framework share one process, since importing a framework takes seconds.
"""

import ast
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import traceback
from collections import deque
from pathlib import Path
from types import ModuleType

import pytest

from zoo.frameworks import FRAMEWORKS
from zoo.trainer import load_backend

TESTS = Path(__file__).resolve().parents[1]
PREFIX = "case-result "  # of a line with a result, to tell it from what a framework prints
_worker: "Worker | None" = None


def names(module: str) -> list[str]:
    """Return the cases of tests/<module>.py without importing it."""
    tree = ast.parse((TESTS / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")]


def parameters(*modules: str, frameworks: tuple[str, ...] = FRAMEWORKS) -> list:
    """Return (framework, module, case) for frameworks; those that need a process of their own are slow."""
    return [
        pytest.param(
            framework,
            module,
            case,
            id=f"{framework}-{case.removeprefix('case_')}",
            marks=[] if framework == "torch" else [pytest.mark.slow],
        )
        for framework in frameworks
        for module in modules
        for case in names(module)
    ]


def check(framework: str, module: str, case: str, timeout: float = 600) -> None:
    """Run a case; fail with its traceback, or skip if the framework is not installed."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    if framework == "torch":
        getattr(importlib.import_module(f"tests.{module}"), case)(adapter(framework))
    elif error := worker(framework).run(module, case, timeout):
        pytest.fail(error, pytrace=False)


class Worker:
    """A process that has imported a framework, and runs one case after the other.

    Args:
        variables: of its environment.
    """

    def __init__(self, framework: str, **variables: str):
        self.framework = framework
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.frameworks", framework],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=TESTS.parent,
            env={**os.environ, "PYTHONPATH": str(TESTS.parent), **variables},
        )

    def run(self, module: str, case: str, timeout: float) -> str | None:
        """Return the traceback of a case, or None if it passed. timeout: in seconds, after which the process ends."""
        timer, output = threading.Timer(timeout, self.process.kill), deque[str](maxlen=50)
        timer.start()
        print(module, case, file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith(PREFIX):
                timer.cancel()
                return json.loads(line.removeprefix(PREFIX))
            output.append(line)
        timer.cancel()
        return f"no result; exit code {self.process.wait()} within {timeout:.0f} s:\n{''.join(output)}"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def worker(framework: str) -> Worker:
    """Return the worker of a framework; that of another is closed, because each takes a gigabyte."""
    global _worker
    if _worker is None or _worker.framework != framework or _worker.process.poll() is not None:
        if _worker:
            _worker.close()
        _worker = Worker(framework)
    return _worker


def adapter(framework: str) -> ModuleType:
    load_backend(framework)  # first: it sets the environment that the framework reads when it is imported
    return importlib.import_module(f"tests.zoo.trainer.{framework}.adapter")


def main(framework: str) -> None:
    """Run the cases that standard input names, a module and a function in a line."""
    backend = adapter(framework)
    for line in sys.stdin:
        module, case = line.split()
        error = None
        try:
            getattr(importlib.import_module(f"tests.{module}"), case)(backend)
        except BaseException:  # pytest.fail raises no Exception
            error = traceback.format_exc()
        print(f"\n{PREFIX}{json.dumps(error)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
