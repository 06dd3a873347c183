"""What `zoo compare` reports of each fault that changes the mathematics of one framework, on small recipes.

The proof of the framework with the fault is compared with those of the others without it. A fault in code that all
share is in all alike, so its proof is judged alone.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutants.fault import FRAMEWORKS, SHARED, Fault, find_file, framework_of
from tests.mutants.run import Job, Result, run_jobs
from zoo.compare.findings import Finding, judge
from zoo.data.demo import motion, portraits, shapes, streets
from zoo.parity import record

PRECISIONS = ("fp64", "fp32", "mixed")
UPDATES = 2  # the second one has momentum
COMPARED = tuple(name for name in FRAMEWORKS if name != SHARED)
SLOW = ("mindspore", "jax")  # fp64 takes ten times as long on a CPU; compiling does
COMMON = ("data.workers=0", "train.batch=6", "train.accumulate=1")
PORTRAITS = dict(size=32, identities=7, shots=4, val_identities=4, val_shots=3, val_pairs=10)
SMALL = {
    "tsm": ("model.width=8", "model.dropout=0.5", "data.size=16", "data.segments=4")
    + ("data.train_clips=24", "data.val_clips=8"),
    "resnet50": ("model.width=8", "data.size=24", "data.train_images=24", "data.val_images=8"),
    "deeplabv3plus": ("model.width=8", "model.head_width=16", "model.low_width=8", "model.aux_width=8")
    + ("data.crop=[32, 48]", "data.train_images=24", "data.val_images=8"),
    "arcface": ("model.width=8", "model.embedding=16", "task.scale=8.0")
    + tuple(f"data.{key}={value}" for key, value in PORTRAITS.items()),
}


class Setting(NamedTuple):
    """A recipe and its options."""

    recipe: str
    options: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"compare without a fault: {' '.join([self.recipe, *self.options])}"


def make_sets(folder: Path) -> None:
    """Make the data sets of all recipes, a folder each."""
    motion.make(str(folder / "tsm"), 24, 8)
    shapes.make(str(folder / "resnet50"), 24, 8)
    streets.make(str(folder / "deeplabv3plus"), 24, 8)
    portraits.make(portraits.Settings(root=str(folder / "arcface"), **PORTRAITS))


def overrides(setting: Setting, sets: Path) -> list[str]:
    """Return the settings of a proof, as for `-o`; the last of several of a key counts."""
    settings = [f"data.root={sets / setting.recipe}", *COMMON, *SMALL[setting.recipe], *setting.options]
    return [f"{key}={value}" for key, value in dict(setting.split("=", 1) for setting in settings).items()]


def record_proof(framework: str, recipe: str, overrides: Sequence[str], prefix: str) -> dict[str, Any]:
    """Write <prefix>-<precision>.safetensors for fp64, fp32 and the recipe's 16 bits, in the process of a worker.

    Everything of the repository that a fault may change is imported here, after it was planted.
    """
    from zoo.compare import proof
    from zoo.run.job import assemble, join
    from zoo.run.recipe import resolve_recipe
    from zoo.run.request import Options
    from zoo.run.resume import restore

    proof.UPDATES = UPDATES
    # MindSpore would compile for longer than it computes; JAX always compiles.
    eager = [] if framework == "jax" else ["train.compile=false"]
    request = resolve_recipe(
        Options(f"configs/{recipe}_demo.yaml", [*overrides, *eager], framework=framework, device="cpu")
    )
    job = assemble(request, join(request, {}))
    restore(request.config, job, None, print)
    state = job.trainer.state_dict()
    weights = {param.name: state[param.name] for param in job.trainer.params}
    batches = proof.batches(job, request.config.seed)
    for precision in PRECISIONS:
        compute = job.plan.mode.compute if precision == "mixed" else precision
        if precision != "mixed" or job.plan.mode.is_mixed:
            proof.record(job, request.config, compute, weights, batches).save(f"{prefix}-{precision}.safetensors")
    return {"outcome": "recorded", "message": ""}


def setting_of(fault: Fault) -> Setting:
    return Setting(fault.recipe, fault.options)


def in_fp32(setting: Setting) -> Setting:
    """Return a setting without 16 bits, which not every framework has on a CPU."""
    return setting._replace(options=tuple(option for option in setting.options if "train.precision" not in option))


def companions(fault: Fault) -> list[str]:
    """Return the frameworks that a fault's is compared with; slow ones only where the recipe has no options."""
    if framework_of(find_file(fault)) == SHARED:
        return []
    return [name for name in COMPARED if name != fault.framework and (name not in SLOW or not fault.options)]


def compare(faults: Sequence[Fault], show: bool = False) -> dict[str, Result]:
    """Compare with and without each fault; return the results by key.

    `outcome` is reported, silent or, if the proof stopped, error. `what`, `places` and `cause` are those of the first
    finding; `named` says whether any finding names the fault's file.
    """
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory(prefix="proofs") as name:
        folder = Path(name)
        make_sets(folder / "sets")
        for setting, names in record_sound(faults, folder).items():
            if names:
                results[setting.key] = report(findings({name: prefix(folder, setting.key, name) for name in names}))
        for framework in COMPARED:
            own = {fault.key: fault for fault in faults if fault.framework == framework}
            jobs = [job(key, setting_of(fault), fault, prefix(folder, key), folder) for key, fault in own.items()]
            for result in run_jobs(framework, jobs):
                results[result["key"]] = {**result, **judged(own[result["key"]], result, folder)}
                for precision in PRECISIONS:  # 50 MB each
                    Path(f"{prefix(folder, result['key'])}-{precision}.safetensors").unlink(missing_ok=True)
                if show:
                    what = results[result["key"]].get("what") or result["message"]
                    print(f"{results[result['key']]['outcome']:8}  {result['key']}  {what}", flush=True)
    return results


def record_sound(faults: Sequence[Fault], folder: Path) -> dict[Setting, list[str]]:
    """Record the proofs without faults that a comparison needs; return the frameworks of each setting."""
    needed: dict[Setting, list[str]] = {}
    for fault in faults:
        names = needed.setdefault(setting_of(fault), [])
        names += [name for name in companions(fault) if name not in names]
    for framework in COMPARED:
        settings = [setting for setting, names in needed.items() if framework in names]
        jobs = [job(each.key, in_fp32(each), None, prefix(folder, each.key, framework), folder) for each in settings]
        for result in run_jobs(framework, jobs):
            if result["outcome"] != "recorded":
                raise RuntimeError(f"{framework}: {result['key']}: {result['message']}")
    return needed


def job(key: str, setting: Setting, fault: Fault | None, target: Path, folder: Path) -> Job:
    proof = {"recipe": setting.recipe, "overrides": overrides(setting, folder / "sets"), "prefix": str(target)}
    return {"key": key, "fault": list(fault) if fault else None, "proof": proof}


def prefix(folder: Path, key: str, framework: str = "") -> Path:
    return folder / "".join(letter if letter.isalnum() else "-" for letter in f"{framework} {key}")


def findings(prefixes: dict[str, Path]) -> list[Finding]:
    """Judge the proofs of several frameworks, whose files begin with the prefixes."""
    names = [name for name in COMPARED if name in prefixes]
    paths = [{name: f"{prefixes[name]}-{precision}.safetensors" for name in names} for precision in PRECISIONS]
    records = [{name: record.load(path) for name, path in each.items() if os.path.exists(path)} for each in paths]
    return judge(*records).findings


def report(found: Sequence[Finding]) -> Result:
    if not found:
        return {"outcome": "silent"}
    first = found[0]
    return {"outcome": "reported", "what": first.what, "places": list(first.places), "cause": first.cause}


def judged(fault: Fault, result: Result, folder: Path) -> Result:
    """Return the report on a fault's proof."""
    if result["outcome"] != "recorded":
        return {"outcome": "error"}
    prefixes = {name: prefix(folder, setting_of(fault).key, name) for name in companions(fault)}
    found = findings({**prefixes, fault.framework: prefix(folder, fault.key)})
    places = [place.split(":")[0] for finding in found for place in finding.places]
    return {**report(found), "named": str(find_file(fault)) in places}


def misses(faults: Sequence[Fault], results: dict[str, Result]) -> tuple[list[str], list[str], list[str]]:
    """Return a line for each fault that is not reported, for each whose file is not named, and for each false alarm.

    A framework that stops with an error is a report without a file.
    """
    silent, unnamed = [], []
    for fault in faults:
        result = results.get(fault.key, {"outcome": "no result", "message": ""})
        if result["outcome"] not in ("reported", "error"):
            silent.append(f"{fault.key}: not reported: {result['outcome']} {result['message']}".rstrip())
        elif not result.get("named"):
            unnamed.append(f"{fault.key}: its file is not among {', '.join(result.get('places', []))}")
    sound = {setting_of(fault).key for fault in faults}
    alarms = [f"{key}: {results[key]['what']}" for key in sorted(sound) if results.get(key, {}).get("what")]
    return silent, unnamed, alarms
