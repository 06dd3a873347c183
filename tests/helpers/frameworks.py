"""Run the same test cases in every framework, each in a process of its own, because one process loads one framework.

A module of cases has functions case_<name>(backend); `backend` is the framework's adapter,
tests/zoo/trainer/<framework>/adapter.py. PyTorch is what pytest's own process loads: its cases run there. The cases of
another framework share one process for each module, since importing a framework takes seconds.
"""

import ast
import functools
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from types import ModuleType

import pytest

from zoo.frameworks import FRAMEWORKS
from zoo.trainer import load_backend

TESTS = Path(__file__).resolve().parents[1]
PREFIX = "case-result "  # of a line with a result, to tell it from what a framework prints


def names(module: str) -> list[str]:
    """Return the cases of tests/<module>.py without importing it."""
    tree = ast.parse((TESTS / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")]


def parameters(*modules: str) -> list:
    """Return (framework, module, case) for all frameworks; those that need a process of their own are slow."""
    return [
        pytest.param(
            framework,
            module,
            case,
            id=f"{framework}-{case.removeprefix('case_')}",
            marks=[] if framework == "torch" else [pytest.mark.slow],
        )
        for framework in FRAMEWORKS
        for module in modules
        for case in names(module)
    ]


def check(framework: str, module: str, case: str, timeout: float = 600) -> None:
    """Run a case; fail with its traceback, or skip if the framework is not installed."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    if framework == "torch":
        getattr(importlib.import_module(f"tests.{module}"), case)(adapter(framework))
        return
    results, end = run_all(framework, module, timeout)
    error = results.get(case, f"no result; the process ended with:\n{end}")
    if error:
        pytest.fail(error, pytrace=False)


@functools.cache
def run_all(framework: str, module: str, timeout: float) -> tuple[dict[str, str | None], str]:
    """Run all cases of a module once.

    Returns:
        case -> its traceback, or None if it passed; and the exit code with the last lines of standard error.
    """
    command = [sys.executable, "-m", "tests.helpers.frameworks", framework, module]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, cwd=TESTS.parent, env=environment, timeout=timeout, check=False
        )
        output, end = process.stdout, f"exit code {process.returncode}\n{process.stderr[-4000:]}"
    except subprocess.TimeoutExpired as expired:
        output, end = (expired.stdout or b"").decode(), f"more than {timeout} s"
    lines = [line.removeprefix(PREFIX) for line in output.splitlines() if line.startswith(PREFIX)]
    return dict(json.loads(line) for line in lines), end


def adapter(framework: str) -> ModuleType:
    load_backend(framework)  # first: it sets the environment that the framework reads when it is imported
    return importlib.import_module(f"tests.zoo.trainer.{framework}.adapter")


def main(framework: str, module: str) -> None:
    backend, cases = adapter(framework), importlib.import_module(f"tests.{module}")
    for name in names(module):
        error = None
        try:
            getattr(cases, name)(backend)
        except BaseException:  # pytest.fail raises no Exception
            error = traceback.format_exc()
        print(f"\n{PREFIX}{json.dumps([name, error])}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
