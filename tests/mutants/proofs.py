"""What tools/compare.py reports of each fault that changes the mathematics of one framework.

The proof of the framework with the fault is compared with those of the others without it, on a small recipe.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.mutants.fault import SHARED, Fault
from tests.mutants.jobs import FRAMEWORKS, Job, Result, Store, run_jobs
from tests.mutants.recipes import make_sets, overrides
from tests.mutants.recording import PRECISIONS
from zoo.compare import record
from zoo.compare.findings import Finding, judge

COMPARED = tuple(name for name in FRAMEWORKS if name != SHARED)
SLOW = "mindspore"  # its fp64 takes ten times as long on a CPU
NO_RESULT: Result = {"outcome": "no result", "message": ""}


class Setting(NamedTuple):
    """A recipe and its options."""

    recipe: str
    options: tuple[str, ...]


def key_of(fault: Fault) -> str:
    return f"compare {fault.key}"


def sound_key(setting: Setting) -> str:
    return f"compare without a fault: {' '.join([setting.recipe, *setting.options])}"


def setting_of(fault: Fault) -> Setting:
    return Setting(fault.recipe, fault.options)


def companions(fault: Fault) -> list[str]:
    """Return the frameworks that a fault's is compared with; the slow one only where the recipe has no options."""
    return [name for name in COMPARED if name != fault.framework and (name != SLOW or not fault.options)]


def compare(faults: Sequence[Fault], store: Store) -> Iterator[Result]:
    """Compare what the store lacks; add and yield each result.

    `outcome` is reported, silent or, if the proof stopped, error. `titles`, `what`, `places` and `cause` are those of
    the first finding; `named` says whether any finding names the fault's file.
    """
    faults = [fault for fault in faults if fault.recipe and key_of(fault) not in store.results]
    if not faults:
        return
    with tempfile.TemporaryDirectory(prefix="proofs") as name:
        folder = Path(name)
        make_sets(folder / "sets")
        for setting, names in record_sound(faults, folder).items():
            result = report(findings({name: prefix(folder, setting, name) for name in names}))
            store.add({"key": sound_key(setting), "seconds": 0.0, "message": "", **result})
            yield store.results[sound_key(setting)]
        for framework in COMPARED:
            own = {key_of(fault): fault for fault in faults if fault.framework == framework}
            jobs = [job(key, setting_of(fault), fault, folder / slug(key), folder) for key, fault in own.items()]
            for result in run_jobs(framework, jobs):
                store.add({**result, **judged(own[result["key"]], result, folder)})
                yield store.results[result["key"]]


def record_sound(faults: Sequence[Fault], folder: Path) -> dict[Setting, list[str]]:
    """Record the proofs without faults that a comparison needs; return the frameworks of each setting."""
    needed: dict[Setting, list[str]] = {}
    for fault in faults:
        names = needed.setdefault(setting_of(fault), [])
        names += [name for name in companions(fault) if name not in names]
    for framework in COMPARED:
        settings = [setting for setting, names in needed.items() if framework in names]
        jobs = [job(sound_key(each), each, None, prefix(folder, each, framework), folder) for each in settings]
        for result in run_jobs(framework, jobs):
            if result["outcome"] != "recorded":
                raise RuntimeError(f"{framework}: {result['key']}: {result['message']}")
    return needed


def job(key: str, setting: Setting, fault: Fault | None, target: Path, folder: Path) -> Job:
    settings = overrides(setting.recipe, setting.options, folder / "sets")
    proof = {"recipe": setting.recipe, "overrides": settings, "prefix": str(target)}
    return {"key": key, "fault": list(fault) if fault else None, "proof": proof}


def prefix(folder: Path, setting: Setting, framework: str) -> Path:
    return folder / slug(f"{framework} {sound_key(setting)}")


def slug(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text)


def findings(prefixes: dict[str, Path]) -> list[Finding]:
    """Judge the proofs of several frameworks, whose files begin with the prefixes."""
    names = [name for name in COMPARED if name in prefixes]
    proofs, rounded = (
        {name: record.load(f"{prefixes[name]}-{precision}.safetensors") for name in names} for precision in PRECISIONS
    )
    return judge(proofs, rounded).findings


def report(found: Sequence[Finding]) -> Result:
    if not found:
        return {"outcome": "silent"}
    first = found[0]
    return {
        "outcome": "reported",
        "titles": list(first.titles),
        "what": first.what,
        "places": list(first.places),
        "cause": first.cause,
    }


def judged(fault: Fault, result: Result, folder: Path) -> Result:
    """Return the report on a fault's proof."""
    if result["outcome"] != "recorded":
        return {"outcome": "error"}
    prefixes = {name: prefix(folder, setting_of(fault), name) for name in companions(fault)}
    found = findings({**prefixes, fault.framework: folder / slug(key_of(fault))})
    places = [place for finding in found for place in finding.places]
    return {**report(found), "named": any(place.split(":")[0] == fault.file for place in places)}


def misses(faults: Sequence[Fault], results: dict[str, Result]) -> tuple[list[str], list[str], list[str]]:
    """Return a line for each fault that is not reported, for each whose file is not named, and for each false alarm.

    A framework that stops with an error is a report without a file.
    """
    silent, unnamed = [], []
    for fault in faults:
        result = results.get(key_of(fault), NO_RESULT)
        if result["outcome"] not in ("reported", "error"):
            silent.append(f"{fault.key}: {result['outcome']} {result['message']}".rstrip())
        elif not result.get("named"):
            unnamed.append(f"{fault.key}: {fault.file} is not among {', '.join(result.get('places', []))}")
    sound = {sound_key(setting_of(fault)) for fault in faults}
    alarms = [f"{key}: {results[key]['what']}" for key in sorted(sound) if results.get(key, {}).get("what")]
    return silent, unnamed, alarms
