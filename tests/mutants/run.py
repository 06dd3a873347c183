"""Plant every fault and run the test that must notice it, or compare frameworks with and without it.

python -m tests.mutants.run [--compare] [--framework NAME] [--only TEXT] [--jobs N]

Prints a line per fault and exits with 1 if a test passes in spite of its fault, or if the comparison is silent.
"""

import argparse
import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.helpers.paths import ROOT
from tests.mutants.fault import FRAMEWORKS, Fault, read_table

FOLDERS = ("configs", "tests", "tools", "zoo")
FILES = ("pyproject.toml", "train.py")
LARGE = "golden"  # folder of tests, which is linked
Job = dict[str, Any]
Result = dict[str, Any]


@contextmanager
def copied_tree() -> Iterator[Path]:
    """Yield a temporary folder with the source files of the repository."""
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        tree, ignored = Path(folder), shutil.ignore_patterns(LARGE)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, tree / name, ignore=ignored, symlinks=True)
        for name in FILES:
            shutil.copy(ROOT / name, tree / name)
        (tree / "tests" / LARGE).symlink_to(ROOT / "tests" / LARGE)
        compileall.compile_dir(tree, quiet=1)  # what was not compiled before
        yield tree


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
            # JAX compiles updates in a third of the time, and what no fault changes once.
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
            "JAX_COMPILATION_CACHE_DIR": str(tree / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
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


def sound_key(framework: str, test: str) -> str:
    """Return the key of a test's run without a fault."""
    return f"{framework}: {test}"


def run(faults: Sequence[Fault], jobs: int = 1, show: bool = False) -> dict[str, Result]:
    """Run each test once without a fault, then with its faults; return the results by key."""
    results: dict[str, Result] = {}

    def run_part(framework: str, part: Sequence[Job]) -> None:
        for result in run_jobs(framework, part):
            results[result["key"]] = result
            if show:
                print(f"{result['seconds']:6.1f} s  {result['outcome']:6}  {result['key']}  {result['message']}")

    with ThreadPoolExecutor(jobs) as pool:
        futures = []
        for framework in FRAMEWORKS:
            own = [fault for fault in faults if fault.framework == framework]
            tests = dict.fromkeys(fault.test for fault in own)
            todo = [{"key": sound_key(framework, test), "fault": None, "test": test} for test in tests]
            todo += [{"key": fault.key, "fault": list(fault), "test": fault.test} for fault in own]
            futures += [
                pool.submit(run_part, framework, todo[index::jobs]) for index in range(jobs) if todo[index::jobs]
            ]
        for future in futures:
            future.result()
    return results


def problems(faults: Sequence[Fault], results: dict[str, Result]) -> list[str]:
    """Return a line for each fault that its test did not notice, or whose test fails without it."""
    found, missing = [], {"outcome": "no result", "message": ""}
    for fault in faults:
        sound = results.get(sound_key(fault.framework, fault.test), missing)
        result = results.get(fault.key, missing)
        if sound["outcome"] != "passed":
            found.append(f"{fault.key}: {fault.test} fails without the fault: {sound['message']}")
        elif result["outcome"] != "failed":
            found.append(f"{fault.key}: {fault.test} {result['outcome']} {result['message']}".rstrip())
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", action="store_true", help="compare frameworks with and without each fault instead")
    parser.add_argument("--framework", choices=FRAMEWORKS, help="faults of this one only")
    parser.add_argument("--only", metavar="TEXT", default="", help="faults whose name contains this text")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    options = parser.parse_args(arguments)
    faults = [fault for fault in read_table() if options.framework in (None, fault.framework)]
    faults = [fault for fault in faults if options.only in fault.key]
    if options.compare:
        from tests.mutants import comparison

        faults = [fault for fault in faults if fault.recipe]
        found = [line for lines in comparison.misses(faults, comparison.compare(faults, show=True)) for line in lines]
    else:
        found = problems(faults, run(faults, options.jobs, show=True))
    print("\n".join([*found, f"{len(found)} problems with {len(faults)} faults"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
