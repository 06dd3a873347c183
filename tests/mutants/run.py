"""Plant every fault and run the test that must notice it.

python -m tests.mutants.run [--framework NAME] [--only NAME] [--jobs N] [--results FILE]

Prints a line per fault and exits with 1 if a test passes in spite of its fault. Results are kept in a file by a digest
of the sources, so that a run that was interrupted continues where it stopped.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.helpers.paths import ROOT
from tests.mutants.fault import SHARED, Fault
from tests.mutants.faults import FAULTS
from tests.mutants.tree import copied_tree, digest

RESULTS = ROOT / "runs" / "mutants.jsonl"
FRAMEWORKS = ("torch", "paddle", "mindspore", SHARED)
Result = dict[str, Any]


def sound_key(framework: str, killer: str) -> str:
    """Return the key of a killer's run without a fault."""
    return f"{framework}: {killer}"


def jobs_of(framework: str, faults: Sequence[Fault]) -> list[dict[str, Any]]:
    """Return the jobs of a framework's faults: each killer once without a fault, then the faults."""
    faults = [fault for fault in faults if fault.framework == framework]
    killers = dict.fromkeys(fault.killer for fault in faults)
    sound = [{"key": sound_key(framework, killer), "fault": None, "killer": killer} for killer in killers]
    return sound + [{"key": fault.key, "fault": list(fault), "killer": fault.killer} for fault in faults]


def run_jobs(framework: str, jobs: Sequence[dict[str, Any]]) -> Iterator[Result]:
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


class Store:
    """Results by key in a file of JSON lines, of which those with the digest of today's sources count."""

    def __init__(self, path: Path):
        self.path, self.digest = path, digest()
        self.results: dict[str, Result] = {}
        if path.exists():
            rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
            self.results = {row["key"]: row for row in rows if row["digest"] == self.digest}

    def add(self, result: Result) -> None:
        self.results[result["key"]] = result
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({**result, "digest": self.digest}) + "\n")


def run(faults: Sequence[Fault], store: Store, jobs: int = 1, show: bool = False) -> None:
    """Run what the store lacks, up to `jobs` processes at once."""

    def run_part(framework: str, part: Sequence[dict[str, Any]]) -> None:
        for result in run_jobs(framework, part):
            store.add(result)
            if show:
                print(f"{result['seconds']:6.1f} s  {result['outcome']:6}  {result['key']}  {result['message']}")

    with ThreadPoolExecutor(jobs) as pool:
        futures = []
        for framework in FRAMEWORKS:
            missing = [job for job in jobs_of(framework, faults) if job["key"] not in store.results]
            parts = [missing[index::jobs] for index in range(jobs)]
            futures += [pool.submit(run_part, framework, part) for part in parts if part]
        for future in futures:
            future.result()


def problems(faults: Sequence[Fault], results: dict[str, Result]) -> list[str]:
    """Return a line for each fault that its killer did not notice, or whose killer fails without it."""
    found = []
    for fault in faults:
        without = results.get(sound_key(fault.framework, fault.killer), {"outcome": "no result", "message": ""})
        if without["outcome"] != "passed":
            found.append(f"{fault.key}: {fault.killer} fails without the fault: {without['message']}")
            continue
        result = results.get(fault.key, {"outcome": "no result", "message": ""})
        if result["outcome"] != "failed":
            found.append(f"{fault.key}: {fault.killer} {result['outcome']} {result['message']}".rstrip())
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Plant every fault and run the test that must notice it.")
    parser.add_argument("--framework", choices=FRAMEWORKS, help="faults of this one only")
    parser.add_argument("--only", metavar="TEXT", help="faults whose name contains this text")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="where results are kept")
    options = parser.parse_args(arguments)
    faults = [
        fault for fault in FAULTS if options.framework in (None, fault.framework) and (options.only or "") in fault.key
    ]
    store = Store(options.results)
    run(faults, store, options.jobs, show=True)
    found = problems(faults, store.results)
    print("\n".join([*found, f"{len(faults) - len(found)} of {len(faults)} faults are noticed"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
