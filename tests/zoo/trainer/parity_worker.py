"""Compute TSM and ResNet in one framework for tests/zoo/trainer/test_parity.py; the arrays go into a folder.

python -m tests.zoo.trainer.parity_worker FRAMEWORK FOLDER [FOLDER OF THE PREVIOUS FRAMEWORK]
"""

import math
import os
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.helpers import frameworks
from tests.zoo.models.tsm import golden
from zoo.data.batch import LABEL, Field
from zoo.models import initializers, load_model_class, load_spec
from zoo.tasks import classify
from zoo.trainer.plan import Mode, ParamGroup, Plan

CLASSES, DECAY, LR, STEPS = 7, 1e-2, 0.05, 6
CLIP_NORM = 0.2  # far below every norm here, so that clipping is always at work
RECORD = "recorded.npz"  # weights and images of a recorded model, put into the folder by the parent
Arrays = dict[str, np.ndarray]


class Case(NamedTuple):
    model: str
    options: dict
    shape: tuple  # of the input, with the batch in front
    weights: tuple = ("drawn",)
    seed: int = 0  # of the batches; another where an activation lies so near to 0 that the processor decides its side


BOTH = ("init", "drawn")
IMAGES, CLIPS = (4, 3, 64, 64), (3, 4, 3, 64, 64)
FORWARDS = {
    "resnet18": Case("resnet", dict(depth=18, width=8), IMAGES, BOTH),
    "resnet50": Case("resnet", dict(depth=50, width=8), IMAGES, BOTH),
    "resnet50_dilated": Case("resnet", dict(depth=50, width=8, dilate=(False, True, True)), IMAGES),
    "resnet50_wide": Case("resnet", dict(depth=50), (2, 3, 64, 64), ("recorded",)),
    "blockres": Case("tsm", dict(depth=18, width=8), CLIPS, BOTH),
    "block": Case("tsm", dict(depth=18, width=8, shift_place="block"), CLIPS),
    "none": Case("tsm", dict(depth=18, width=8, shift_place="none"), CLIPS),
    "pool": Case("tsm", dict(depth=18, width=8, temporal_pool=True), CLIPS),
    "past": Case("tsm", dict(depth=18, width=8, shift_direction="past", shift_div=3), CLIPS),
    "causal": Case("tsm", dict(depth=18, width=8, shift_direction="causal"), CLIPS),
    "dropout": Case("tsm", dict(depth=18, width=8, dropout=0.5), CLIPS),
    "nonlocal": Case("tsm", dict(depth=50, width=8, non_local=True), CLIPS, BOTH),
    "mobile": Case("tsm_mobilenet_v2", dict(width=8), CLIPS),
    "mobile_causal": Case("tsm_mobilenet_v2", dict(width=8, shift_direction="causal"), CLIPS),
}
# Small, so that few activations lie so near to 0 that rounding decides whether they pass a ReLU; that would show.
SMALL_IMAGES, SMALL_CLIPS = (8, 3, 32, 32), (2, 4, 3, 32, 32)
UPDATES = {
    "tsm": (Case("tsm", dict(depth=18, width=8, dropout=0.5), SMALL_CLIPS), 0.0),
    "resnet": (Case("resnet", dict(depth=18, width=8), SMALL_IMAGES, seed=200), 0.1),
    "nonlocal": (Case("tsm", dict(depth=50, width=8, non_local=True, dropout=0.0), SMALL_CLIPS), 0.0),
}
COMPILED = ("tsm",)  # where the framework prefers that; the others run eagerly, which starts sooner
CHAOTIC = {"nonlocal": 5e-4}  # attention amplifies rounding: momenta after the first update, and no further ones
RELAY = "tsm"  # the case that is handed from framework to framework
HANDOVER = {"torch": 2, "paddle": 4, "mindspore": 6}  # the last update each does of the common run
FULL_SIZE = {"resnet": dict(depth=50, num_classes=1000), "tsm": dict(depth=50, num_classes=400, segments=8)}


class Worker:
    """A framework's trainers of the cases."""

    def __init__(self, framework: str):
        self.framework, self.backend = framework, frameworks.adapter(framework)

    def trainer(self, case: Case, smoothing: float = 0.0, compiled: bool = False):
        spec, arch = architecture(case)
        masks = spec.dropout_masks(arch)

        def param_group(name):
            factor, decay = spec.lr_and_decay_scale(arch, name)
            return ParamGroup(factor, decay * DECAY)

        # The layout of a non-local model has a test of its own.
        layout = False if self.framework == "torch" and case.options.get("non_local") else None
        world = self.backend.WORLD
        plan = Plan(
            (Field("input", case.shape[1:], "float32"), LABEL, *(mask.field for mask in masks)),
            tuple(mask.name for mask in masks),
            param_group,
            world.resolve_mode(Mode("fp32", None, layout, compiled and self.framework == "mindspore")),
            clip_norm=CLIP_NORM,
        )
        model = load_model_class(case.model, self.framework)
        return self.backend.Trainer(model, arch, classify.Settings(label_smoothing=smoothing), plan, world)


def architecture(case: Case):
    """Return the specification of a case's model and its architecture."""
    spec = load_spec(case.model)
    of_clips = {"dropout": 0.0, "segments": case.shape[1]} if len(case.shape) == 5 else {}
    known = {field.name for field in fields(spec.Arch)}
    options = {key: value for key, value in of_clips.items() if key in known}
    return spec, spec.Arch(num_classes=CLASSES, **{**options, **case.options})


def initial_tensors(case: Case, weights: str, folder: str = "") -> Arrays:
    """Return the tensors that a model starts from, by canonical name."""
    spec, arch = architecture(case)
    if weights == "recorded":
        with np.load(os.path.join(folder, RECORD)) as arrays:
            return {name: array for name, array in arrays.items() if name != "input"}
    if weights == "init":
        return {
            name: initializers.initialize(spec.initializer(arch, name, shape), 1, name, shape)
            for name, shape in spec.shapes(arch).items()
        }
    return {name: golden.drawn(name, shape) for name, shape in spec.shapes(arch).items()}


def random_batch(case: Case, seed: int = 0) -> Arrays:
    spec, arch = architecture(case)
    rng, samples = np.random.default_rng(case.seed + seed), case.shape[0]
    batch = {"input": rng.standard_normal(case.shape, dtype=np.float32), "label": rng.integers(0, CLASSES, samples)}
    for mask in spec.dropout_masks(arch):
        batch[mask.name] = np.stack([mask.sample(rng) for _ in range(samples)])
    return batch


def forwards(worker: Worker, folder: str) -> Arrays:
    """Return the logits of evaluation and training, and the running statistics after the one training forward."""
    arrays = {}
    for name, case in FORWARDS.items():
        trainer = worker.trainer(case)
        for weights in case.weights:
            batch, key = random_batch(case), f"{name}/{weights}"
            if weights == "recorded":
                with np.load(os.path.join(folder, RECORD)) as record:
                    batch["input"] = record["input"]
            tensors = initial_tensors(case, weights, folder)
            trainer.load_state_dict(tensors)
            if weights == "init":
                state = trainer.state_dict()
                assert all(state[key].tobytes() == value.tobytes() for key, value in tensors.items()), name
            arrays[f"{key}/eval"] = trainer.predict(trainer.to_device(batch))
            (arrays[f"{key}/train"],) = worker.backend.forward(trainer, batch, train=True)
            arrays.update((f"{key}/after/{k}", v) for k, v in trainer.state_dict().items() if ".running_" in k)
    return arrays


def run(trainer, case: Case, first: int, last: int) -> np.ndarray:
    """Do the updates first+1 .. last; return a row of loss and gradient norm for each."""
    rows = []
    for step in range(first, last):
        numbers = trainer.read(trainer.step([trainer.to_device(random_batch(case, step))], LR, step))
        assert numbers["skipped"] == 0 and numbers["grad_norm"] > CLIP_NORM
        rows.append((numbers["loss"], numbers["grad_norm"]))
    return np.array(rows)


def updates(worker: Worker, folder: str, previous: str | None) -> Arrays:
    """Do one update and three more of each case; of one, a longer run and this framework's part of the relay."""
    arrays = {}
    for name, (case, smoothing) in UPDATES.items():
        trainer = worker.trainer(case, smoothing, name in COMPILED)
        trainer.load_state_dict(initial_tensors(case, "drawn"))
        rows = [run(trainer, case, 0, 1)]
        arrays.update((f"{name}/1/{key}", value) for key, value in trainer.state_dict().items())
        if name not in CHAOTIC:
            rows.append(run(trainer, case, 1, 4))
            arrays.update((f"{name}/4/{key}", value) for key, value in trainer.state_dict().items())
        if name == RELAY:
            rows.append(run(trainer, case, 4, STEPS))
            arrays["relay"] = relay(worker, trainer, folder, previous)
        arrays[f"{name}/rows"] = np.concatenate(rows)
    return arrays


def relay(worker: Worker, trainer, folder: str, previous: str | None) -> np.ndarray:
    """Continue the run of the previous framework, and hand it and its unchanged tensors to the next one."""
    case, _ = UPDATES[RELAY]
    if previous:
        trainer.load_state_dict(load_file(wait_for(previous, "handover.safetensors")))
    else:
        momentum = {
            f"optimizer/momentum/{p.name}": np.zeros(p.shape, np.float32) for p in trainer.params if not p.is_statistic
        }
        trainer.load_state_dict({**initial_tensors(case, "drawn"), **momentum})
    first = HANDOVER[Path(previous).name] if previous else 0
    rows = run(trainer, case, first, HANDOVER[worker.framework])
    save_arrays(trainer.state_dict(), folder, "handover.safetensors")
    if previous:  # from torch to paddle to mindspore to torch
        trainer.load_state_dict(load_file(wait_for(previous, "passed.safetensors")))
    save_arrays(trainer.state_dict(), folder, "passed.safetensors")
    return rows


def save_arrays(arrays: Arrays, folder: str, name: str) -> None:
    """Write a file that is complete as soon as it exists."""
    save_file(arrays, os.path.join(folder, "writing"))
    os.rename(os.path.join(folder, "writing"), os.path.join(folder, name))


def wait_for(folder: str, name: str) -> str:
    """Wait for a file of another process; the parent ends this one if that fails."""
    path = os.path.join(folder, name)
    while not os.path.exists(path):
        time.sleep(0.05)
    return path


def parameters(worker: Worker) -> Arrays:
    """Return the names and the number of the parameters of the models in full size."""
    arrays = {}
    for name, options in FULL_SIZE.items():
        model = load_model_class(name, worker.framework)(load_spec(name).Arch(**options))
        sizes = {key: math.prod(shape) for key, shape in worker.backend.shapes(model).items() if ".running_" not in key}
        arrays[f"{name}/count"], arrays[f"{name}/names"] = np.array(sum(sizes.values())), np.array(list(sizes))
    return arrays


def main(framework: str, folder: str, *rest: str) -> None:
    worker = Worker(framework)
    np.savez(
        os.path.join(folder, "arrays.npz"),
        **updates(worker, folder, rest[0] if rest else None),
        **forwards(worker, folder),
        **parameters(worker),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
