"""One update of each model by a framework on a device, compared with what another device or framework computed."""

import math
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zoo.doctor import child
from zoo.doctor.child import FAILURE, OK, Finding, Report
from zoo.trainer.state import STATISTICS

LR = 0.01  # recipes begin their warm-up with 0, which changes no weight
# A static scale: with the recipes' first one, tiny models may overflow in fp16 and skip the update.
COMMON = ("data.name=synthetic", "data.workers=0", "train.batch=4", "train.global_batch=4", "optim.loss_scale=128")
Arrays = dict[str, np.ndarray]


class Tolerance(NamedTuple):
    """Relative difference of a loss, and of what an update adds to the weights or to the running statistics."""

    loss: float
    update: float


# Measured with the models below on a CPU, loss and update: two frameworks in fp32 differ by at most 7e-7
# and 5e-5; fp16 from fp32 in the same framework by 1e-3 and 0.03, bf16 by 7e-3 and 0.1. A layer that is not updated, or
# another kernel than the right one, changes the update by its own size.
TOLERANCES = {"fp32": Tolerance(1e-4, 1e-3), "fp16": Tolerance(0.01, 0.2), "bf16": Tolerance(0.05, 0.4)}


class Update(NamedTuple):
    """One update of a model: loss, norm of the gradient and number of skipped updates; tensors before and after it."""

    numbers: dict[str, Any]
    before: Arrays
    after: Arrays


def load(numbers: dict[str, Any], path: Path) -> Update:
    """Read what `probe` wrote of a model."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    parts = [
        {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        for prefix in ("before/", "after/")
    ]
    return Update(numbers, *parts)


def defect(update: Update) -> str | None:
    """Return what is wrong with an update by itself; None if it is as it should be."""
    if any(update.numbers.get(name) is None for name in ("loss", "grad_norm")):
        return "its loss or gradient is not finite"
    if update.numbers.get("skipped"):
        return "the update was skipped"
    broken = next((name for name, array in update.after.items() if not np.isfinite(array).all()), None)
    if broken:
        return f"{broken} is not finite after the update"
    weights = [name for name in update.after if not name.endswith(STATISTICS)]
    if all(np.array_equal(update.before[name], update.after[name]) for name in weights):
        return "the update changed no weight"
    return None


def difference(update: Update, expected: Update) -> Tolerance:
    """Return the relative differences of two updates that began with the same weights and batch; inf if they did not.

    That of the tensors is the norm of the difference over the norm of the update, of all weights together and of all
    running statistics together: a single tensor, whose gradient may be nothing but rounding, does not count by itself.
    """
    loss, right = update.numbers["loss"], expected.numbers["loss"]
    groups: tuple[list[str], list[str]] = ([], [])
    for name in expected.after:
        groups[name.endswith(STATISTICS)].append(name)
    same = update.after.keys() == expected.after.keys() and all(
        np.array_equal(array, expected.before[name]) for name, array in update.before.items()
    )
    if not same:
        return Tolerance(math.inf, math.inf)
    shares = [_share(update, expected, names) for names in groups if names]
    return Tolerance(abs(loss - right) / max(abs(right), 1e-12), max(shares))


def _share(update: Update, expected: Update, names: list[str]) -> float:
    """Return the norm of the difference of tensors relative to the norm of their expected change."""
    apart = change = 0.0
    for name in names:
        after, right = (each.after[name].astype(np.float64) for each in (update, expected))
        apart += float(((after - right) ** 2).sum())
        change += float(((right - expected.before[name].astype(np.float64)) ** 2).sum())
    return math.sqrt(apart / max(change, 1e-30))


class Reference(NamedTuple):
    """Updates to compare with. name: of the framework or device; updates: by model."""

    name: str
    updates: dict[str, Update]


def examine(
    framework: str, device: str, precision: str, seconds: float, reference: Reference | None
) -> tuple[Finding, dict[str, Update]]:
    """Do the updates.

    Args:
        device: that it starts on, such as cuda:1.
        precision: fp32, fp16 or bf16.
        reference: updates in fp32; None if there are none yet.

    Returns:
        The line about them, and the updates that are sound, by model.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = child.ask(seconds, "update", framework, device, precision, folder)
        computed = {
            model: load(answer.facts[model], Path(folder, f"{model}.npz")) for model in CASES if model in answer.facts
        }
    topic = f"update in {precision}"
    problems = []
    if answer.failure is not None:
        stage = answer.facts.get("stage", "")  # which names the model
        problems.append(answer.failure if f"while {stage}" in answer.failure else f"{stage}: {answer.failure}")
    sound: dict[str, Update] = {}
    apart: dict[str, Tolerance] = {}
    for model, computed_update in computed.items():
        problem = defect(computed_update)
        if problem is None and reference and model in reference.updates:
            apart[model] = difference(computed_update, reference.updates[model])
            problem = _disagreement(apart[model], TOLERANCES[precision], reference.name)
        if problem:
            problems.append(f"{model}: {problem}")
        else:
            sound[model] = computed_update
    if problems:
        remedy = f"see python train.py -c configs/tsm_demo.yaml --framework {framework} --device {device}"
        return Finding(framework, topic, FAILURE, f"on {device}: {'; '.join(problems)}", remedy), sound
    text = f"{', '.join(sound)} on {device}"
    if reference and apart:
        loss, update = (max(values) for values in zip(*apart.values()))
        others = "".join(f"; {model} is not compared" for model in sound if model not in apart)
        text += f": as {reference.name}, losses within {loss:.0e}, updates within {update:.0e}{others}"
    return Finding(framework, topic, OK, text), sound


def _disagreement(apart: Tolerance, tolerance: Tolerance, name: str) -> str | None:
    """Return how an update differs from the reference of this name; None within the tolerance."""
    if apart.loss <= tolerance.loss and apart.update <= tolerance.update:
        return None
    return f"differs from {name} by {apart.loss:.0e} in its loss and by {apart.update:.0e} in its update"


# Model -> recipe and changes: small enough for a second of computing.
CASES = {
    "tsm": ("configs/tsm_demo.yaml", "data.kind=clip data.size=32 data.segments=4 data.num_classes=5 model.width=8"),
    "resnet": ("configs/resnet50_demo.yaml", "data.kind=image data.size=48 data.num_classes=5 model.width=8"),
    "deeplabv3plus": (
        "configs/deeplabv3plus_demo.yaml",
        "data.kind=scene data.crop=[48,64] data.base_size=[48,64] data.num_classes=5 "
        "model.width=8 model.head_width=16 model.low_width=8 model.aux_width=8",
    ),
    "arcface": (
        "configs/arcface_demo.yaml",
        "data.kind=face data.size=32 data.num_classes=7 model.width=8 model.embedding=16",
    ),
}


def probe(report: Report, framework: str, device: str, precision: str, folder: str) -> None:
    """Do an update of each model; weights and batch are the same in every framework.

    A model's arrays go into <folder>/<model>.npz: before/<name> and after/<name>, parameters and running statistics.
    Facts: <model>, its loss and the norm of its gradient.
    """
    from zoo.run.job import assemble, join, sample_batch
    from zoo.run.recipe import resolve_recipe
    from zoo.run.request import Options
    from zoo.run.resume import restore

    for model, (recipe, overrides) in CASES.items():
        report(stage=f"updating {model}")
        settings = [*COMMON, f"train.precision={precision}", *overrides.split()]
        request = resolve_recipe(Options(recipe, settings, framework=framework, device=device))
        job = assemble(request, join(request, {}))
        restore(request.config, job, None, lambda line: None)
        arrays = {f"before/{name}": array for name, array in _weights(job.trainer).items()}
        numbers = job.trainer.read(job.trainer.step([sample_batch(job)], LR, 0))
        arrays.update({f"after/{name}": array for name, array in _weights(job.trainer).items()})
        np.savez(Path(folder, f"{model}.npz"), **arrays)
        # NaN is no JSON
        values = {name: numbers[name] for name in ("loss", "grad_norm", "skipped")}
        report(**{model: {name: value if math.isfinite(value) else None for name, value in values.items()}})


def _weights(trainer) -> dict[str, np.ndarray]:
    state = trainer.state_dict()
    return {param.name: np.array(state[param.name]) for param in trainer.params}
