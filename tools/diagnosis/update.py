"""One update of each model by a framework on a device, compared with what another device or framework computed."""

import tempfile
from pathlib import Path
from typing import NamedTuple

from tools.diagnosis import agreement, child
from tools.diagnosis.agreement import TOLERANCES, Update
from tools.diagnosis.finding import FAILURE, OK, Finding

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
    with tempfile.TemporaryDirectory() as folder:
        answer = child.ask(seconds, "update", framework, device, precision, folder)
        computed = {
            model: agreement.load(answer.facts[model], Path(folder, f"{model}.npz"))
            for model in MODELS
            if model in answer.facts
        }
    problems = [] if answer.failure is None else [answer.failure]
    sound, largest = {}, agreement.Tolerance(0.0, 0.0)
    for model, update in computed.items():
        defect = agreement.defect(update)
        if defect is None and reference and model in reference.updates:
            apart = agreement.difference(update, reference.updates[model])
            largest = agreement.Tolerance(max(largest.loss, apart.loss), max(largest.update, apart.update))
            if not (apart.loss <= TOLERANCES[precision].loss and apart.update <= TOLERANCES[precision].update):
                words = f"by {apart.loss:.0e} in its loss and by {apart.update:.0e} in its update"
                problems.append(f"{model} differs from {reference.name} {words}")
                continue
        if defect:
            problems.append(f"{model}: {defect}")
        else:
            sound[model] = update
    topic = f"update in {precision}"
    if problems:
        remedy = f"see python train.py -c configs/tsm_demo.yaml --framework {framework} --device {device}"
        return Finding(framework, topic, FAILURE, f"on {device}: {'; '.join(problems)}", remedy), sound
    text = f"{', '.join(sound)} on {device}"
    if reference:
        text += f": as {reference.name}, losses within {largest.loss:.0e}, updates within {largest.update:.0e}"
    return Finding(framework, topic, OK, text), sound
