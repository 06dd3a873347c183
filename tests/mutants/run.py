"""Plant every fault and run the test that must notice it, or compare frameworks with and without it.

python -m tests.mutants.run [--compare] [--framework NAME] [--only TEXT] [--jobs N] [--results FILE]
python -m tests.mutants.run --table

Prints a line per fault and exits with 1 if a test passes in spite of its fault, or if the comparison is silent. Results
are kept in a file by a digest of the sources, so that a run that was interrupted continues where it stopped. --table
writes the newest results into docs/parity.md.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.helpers.paths import ROOT
from tests.mutants import proofs, table
from tests.mutants.fault import Fault
from tests.mutants.faults import FAULTS
from tests.mutants.jobs import FRAMEWORKS, RESULTS, Job, Result, Store, newest, run_jobs


def sound_key(framework: str, killer: str) -> str:
    """Return the key of a killer's run without a fault."""
    return f"{framework}: {killer}"


def jobs_of(framework: str, faults: Sequence[Fault]) -> list[Job]:
    """Return the jobs of a framework's faults: each killer once without a fault, then the faults."""
    faults = [fault for fault in faults if fault.framework == framework]
    killers = dict.fromkeys(fault.killer for fault in faults)
    sound = [{"key": sound_key(framework, killer), "fault": None, "killer": killer} for killer in killers]
    return sound + [{"key": fault.key, "fault": list(fault), "killer": fault.killer} for fault in faults]


def run(faults: Sequence[Fault], store: Store, jobs: int = 1, show: bool = False) -> None:
    """Run what the store lacks, up to `jobs` processes at once."""

    def run_part(framework: str, part: Sequence[Job]) -> None:
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


def compare(faults: Sequence[Fault], store: Store) -> list[str]:
    """Compare frameworks with and without each fault; return the lines of `misses`."""
    for result in proofs.compare(faults, store):
        print(f"{result['outcome']:8}  {result['key']}  {result.get('what') or result['message']}", flush=True)
    silent, unnamed, alarms = proofs.misses([fault for fault in faults if fault.recipe], store.results)
    return [*(f"not reported: {line}" for line in silent), *(f"file not named: {line}" for line in unnamed), *alarms]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Plant every fault and run the test that must notice it.")
    parser.add_argument("--compare", action="store_true", help="compare frameworks with and without each fault instead")
    parser.add_argument("--table", action="store_true", help=f"write the newest results into {table.PAGE}")
    parser.add_argument("--framework", choices=FRAMEWORKS, help="faults of this one only")
    parser.add_argument("--only", metavar="TEXT", default="", help="faults whose name contains this text")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="where results are kept")
    options = parser.parse_args(arguments)
    if options.table:
        path = ROOT / table.PAGE
        path.write_text(table.page(FAULTS, newest(options.results), path.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    faults = [fault for fault in FAULTS if options.framework in (None, fault.framework) and options.only in fault.key]
    store = Store(options.results)
    if options.compare:
        found = compare(faults, store)
    else:
        run(faults, store, options.jobs, show=True)
        found = problems(faults, store.results)
    print("\n".join([*found, f"{len(found)} problems with {len(faults)} faults"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
