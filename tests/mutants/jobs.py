"""Run the jobs of faults in copies of the repository, and keep their results."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.helpers.paths import ROOT
from tests.mutants.fault import SHARED
from tests.mutants.tree import copied_tree, digest

RESULTS = ROOT / "runs" / "mutants.jsonl"
FRAMEWORKS = ("torch", "paddle", "mindspore", SHARED)
Job = dict[str, Any]
Result = dict[str, Any]


def run_jobs(framework: str, jobs: Sequence[Job]) -> Iterator[Result]:
    """Run jobs in a copy of the repository; yield each result as soon as it is there."""
    with copied_tree() as tree:
        environment = {
            **os.environ,
            "PYTHONPATH": str(tree),
            "PYTHONDONTWRITEBYTECODE": "1",  # the copy has what it needs
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "OMP_NUM_THREADS": "1",
            "GLOG_v": "3",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.worker", framework],
            cwd=tree,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdin and process.stdout
        with process.stdin:
            json.dump(jobs, process.stdin)
        try:
            yield from (json.loads(line) for line in process.stdout if line.startswith("{"))
        finally:
            process.kill()
            process.wait()


def newest(path: Path) -> dict[str, Result]:
    """Return the last result of each key in a file of JSON lines, whatever its sources were."""
    if not path.exists():
        return {}
    return {row["key"]: row for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())}


class Store:
    """Results by key in a file of JSON lines, of which those with the digest of today's sources count."""

    def __init__(self, path: Path):
        self.path, self.digest = path, digest()
        self.results = {key: row for key, row in newest(path).items() if row["digest"] == self.digest}

    def add(self, result: Result) -> None:
        self.results[result["key"]] = result
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({**result, "digest": self.digest}) + "\n")
