"""Runs test cases in a process of their own: one process never loads two frameworks, and pytest's has PyTorch.

A module of cases is an ordinary file with functions case_<name>(). `names` lists them without importing the file,
`check` is the verdict on one. All cases of a module share one process, since importing a framework takes seconds.
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

import pytest

TESTS = Path(__file__).resolve().parents[1]
MARK = "case-result "  # in front of a result, to tell it from what a framework prints


def names(module: str) -> list[str]:
    """The cases of tests/<module>.py."""
    tree = ast.parse((TESTS / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")]


def check(framework: str, module: str, case: str, timeout: float = 600) -> None:
    """Fail with the traceback if the case failed; skip if the framework is not installed."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    verdicts, ending = child(module, timeout)
    error = verdicts.get(case, f"no result; the process ended so:\n{ending}")
    if error:
        pytest.fail(error, pytrace=False)


@functools.cache
def child(module: str, timeout: float) -> tuple[dict[str, str | None], str]:
    """Run all cases of a module once: case -> its traceback or None; and the last lines of standard error."""
    command = [sys.executable, "-m", "tests.helpers.frameworks", module]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=TESTS.parent, env=environment, timeout=timeout, check=False
        )
        output, ending = done.stdout, f"exit code {done.returncode}\n{done.stderr[-4000:]}"
    except subprocess.TimeoutExpired as expired:
        output, ending = (expired.stdout or b"").decode(), f"more than {timeout} s"
    lines = [line[len(MARK) :] for line in output.splitlines() if line.startswith(MARK)]
    return dict(json.loads(line) for line in lines), ending


def main(module: str) -> None:
    cases = importlib.import_module(f"tests.{module}")
    for name in names(module):
        error = None
        try:
            getattr(cases, name)()
        except BaseException:  # pytest.fail and the like are no Exception
            error = traceback.format_exc()
        print(f"\n{MARK}{json.dumps([name, error])}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
