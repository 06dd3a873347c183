"""One update of each model by a framework on a device, compared with what another device or framework computed."""

import tempfile
from pathlib import Path
from typing import NamedTuple

from zoo.doctor import agreement, child
from zoo.doctor.agreement import TOLERANCES, Tolerance, Update
from zoo.doctor.child import Answer
from zoo.doctor.finding import FAILURE, OK, Finding

MODELS = ("tsm", "resnet", "deeplabv3plus", "arcface")  # those of update_probe.CASES, which imports the whole zoo


class Reference(NamedTuple):
    """Updates to compare with. name: of the framework or device; updates: by model."""

    name: str
    updates: dict[str, Update]


def examine(
    framework: str, device: str, precision: str, seconds: float, reference: Reference | None
) -> tuple[Finding, dict[str, Update]]:
    """Do the updates.

    Args:
        framework: name of the framework.
        device: that it starts on, such as cuda:1.
        precision: fp32, fp16 or bf16.
        seconds: time limit.
        reference: updates in fp32; None if there are none yet.

    Returns:
        The line about them, and the updates that are sound, by model.
    """
    try:
        answer, computed = _compute(framework, device, precision, seconds)
    except OSError as error:
        reason = f"no temporary folder: {error.strerror}"
        return Finding(framework, f"update in {precision}", FAILURE, reason, "make room, or set TMPDIR"), {}
    topic = f"update in {precision}"
    problems = [] if answer.failure is None else [_of_model(answer)]
    sound: dict[str, Update] = {}
    apart: dict[str, Tolerance] = {}
    for model, computed_update in computed.items():
        problem = agreement.defect(computed_update)
        if problem is None and reference and model in reference.updates:
            apart[model] = agreement.difference(computed_update, reference.updates[model])
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


def _of_model(answer: Answer) -> str:
    """Return why a probe failed, with the model that it was at."""
    stage = str(answer.facts.get("stage", ""))
    return f"{answer.failure}" if f"while {stage}" in str(answer.failure) else f"{stage}: {answer.failure}"


def _disagreement(apart: Tolerance, tolerance: Tolerance, name: str) -> str | None:
    """Return how an update differs from the reference of this name; None within the tolerance."""
    if apart.loss <= tolerance.loss and apart.update <= tolerance.update:
        return None
    return f"differs from {name} by {apart.loss:.0e} in its loss and by {apart.update:.0e} in its update"


def _compute(framework: str, device: str, precision: str, seconds: float) -> tuple[Answer, dict[str, Update]]:
    """Return the answer of the probe, and the updates that it has written, by model."""
    with tempfile.TemporaryDirectory() as folder:
        answer = child.ask(seconds, "update", framework, device, precision, folder)
        computed = {
            model: agreement.load(answer.facts[model], Path(folder, f"{model}.npz"))
            for model in MODELS
            if model in answer.facts
        }
    return answer, computed
