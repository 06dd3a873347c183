"""What one framework computes for tests/zoo/trainer/test_parity.py: run in a process of its own, it leaves its arrays in a folder.

python -m tests.zoo.trainer.parity_worker FRAMEWORK FOLDER [FOLDER OF THE FRAMEWORK BEFORE]
python -m tests.zoo.trainer.parity_worker FRAMEWORK FOLDER --reload FOLDER
"""

import importlib
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load_file, save_file

from data.batch import Field
from tests.zoo.models.tsm import golden
from zoo.models import initializers, load_model_class, load_spec
from zoo.tasks.classify import CrossEntropy
from zoo.trainer import load_backend
from zoo.trainer.protocol import Launch, Mode, Plan

CLASSES, DECAY, RATE, STEPS = 7, 1e-2, 0.05, 6
CLIP = 0.2  # far below every norm here, so that clipping is always at work
RECORD = "recorded.npz"  # weights and images of a recorded net, put into the folder by the parent


class Case(NamedTuple):
    model: str
    options: dict
    shape: tuple  # of the input, with the batch in front
    weights: tuple = ("drawn",)
    seed: int = 0  # of the batches; another where an activation lies so near to 0 that the processor decides its side


BOTH = ("init", "drawn")
SMALL, CLIPS = (4, 3, 64, 64), (3, 4, 3, 64, 64)
FORWARDS = {
    "resnet18": Case("resnet", dict(depth=18, width=8), SMALL, BOTH),
    "resnet50": Case("resnet", dict(depth=50, width=8), SMALL, BOTH),
    "resnet50_dilated": Case("resnet", dict(depth=50, width=8, dilate=(False, True, True)), SMALL),
    "resnet50_wide": Case("resnet", dict(depth=50), (2, 3, 64, 64), ("recorded",)),
    "blockres": Case("tsm", dict(depth=18, width=8), CLIPS, BOTH),
    "block": Case("tsm", dict(depth=18, width=8, shift_place="block"), CLIPS),
    "none": Case("tsm", dict(depth=18, width=8, shift_place="none"), CLIPS),
    "pool": Case("tsm", dict(depth=18, width=8, temporal_pool=True), CLIPS),
    "past": Case("tsm", dict(depth=18, width=8, shift_direction="past", shift_div=3), CLIPS),
    "dropout": Case("tsm", dict(depth=18, width=8, dropout=0.5), CLIPS),
    "nonlocal": Case("tsm", dict(depth=50, width=8, non_local=True), CLIPS, BOTH),
}
# Small, so that few activations lie so near to 0 that rounding decides whether they pass a ReLU; that would show.
PICTURES, SHORT = (8, 3, 32, 32), (2, 4, 3, 32, 32)
UPDATES = {
    "tsm": (Case("tsm", dict(depth=18, width=8, dropout=0.5), SHORT), 0.0),
    "resnet": (Case("resnet", dict(depth=18, width=8), PICTURES, seed=200), 0.1),
    "all": (Case("resnet", dict(depth=50, width=8, decay="all"), PICTURES), 0.1),
    "nonlocal": (Case("tsm", dict(depth=50, width=8, non_local=True, dropout=0.0), SHORT), 0.0),
}
COMPILED = ("tsm",)  # where the framework prefers that; the others run operator by operator, which starts sooner
RELAY = "tsm"  # the case that is handed from framework to framework
HANDOVER = {"torch": 2, "paddle": 4, "mindspore": 6}  # the last update each does of the common run
FULL = {"resnet": dict(depth=50, num_classes=1000), "tsm": dict(depth=50, num_classes=400, segments=8)}


class Worker:
    """A framework behind what differs between them: how to call a trainer's net as training does."""

    def __init__(self, framework: str):
        self.framework, self.backend = framework, load_backend(framework)
        self.world = self.backend.start(Launch(), "cpu")

    def trainer(self, case: Case, smoothing: float = 0.0, compiled: bool = False):
        spec, arch = complete(case)
        fields = (Field("input", case.shape[1:], "float32"), Field("label", (), "int64"))
        noise = spec.dropout_masks(arch)

        def param_group(name):
            factor, share = spec.lr_and_decay_scale(arch, name)
            return factor, share * DECAY

        # The layout of a non-local net has a test of its own.
        layout = False if self.framework == "torch" and case.options.get("non_local") else None
        mode = self.world.resolve_mode(Mode("fp32", None, layout, compiled and self.framework == "mindspore"))
        plan = Plan(
            fields + tuple(source.field for source in noise),
            tuple(source.name for source in noise),
            param_group,
            mode,
            clip_norm=CLIP,
        )
        return self.backend.Trainer(
            load_model_class(case.model, self.framework), arch, CrossEntropy(smoothing), plan, self.world
        )

    def train_forward(self, trainer, device_batch) -> np.ndarray:
        """Logits of the net in training mode, by the trainer's own net; updates the running statistics."""
        inputs = [device_batch[name] for name in ("input",) + trainer.plan.dropout_masks]
        if self.framework == "mindspore":
            return trainer.train_forward(*inputs).asnumpy()
        trainer._train_mode()
        if self.framework == "paddle":
            return trainer.train_forward(inputs).numpy()
        return trainer.train_forward(*inputs).detach().numpy()


def complete(case: Case):
    spec = load_spec(case.model)
    options = {"dropout": 0.0, **case.options, "segments": case.shape[1]} if case.model == "tsm" else case.options
    return spec, spec.Arch(num_classes=CLASSES, **options)


def tensors(case: Case, weights: str, folder: str = "") -> dict[str, np.ndarray]:
    """What a net starts from, by canonical name."""
    spec, arch = complete(case)
    if weights == "recorded":
        with np.load(os.path.join(folder, RECORD)) as arrays:
            return {name: array for name, array in arrays.items() if name != "input"}
    if weights == "init":
        return {
            name: initializers.initialize(spec.initializer(arch, name, shape), 1, name, shape)
            for name, shape in spec.shapes(arch).items()
        }
    return {name: golden.drawn(name, shape) for name, shape in spec.shapes(arch).items()}


def batch(case: Case, seed: int = 0) -> dict[str, np.ndarray]:
    spec, arch = complete(case)
    rng = np.random.default_rng(case.seed + seed)
    made = {
        "input": rng.standard_normal(case.shape, dtype=np.float32),
        "label": rng.integers(0, CLASSES, case.shape[0]),
    }
    made.update(
        (source.name, np.stack([source.draw(rng) for _ in range(case.shape[0])])) for source in spec.dropout_masks(arch)
    )
    return made


def forwards(worker: Worker, folder: str) -> dict[str, np.ndarray]:
    """Logits in both modes, and the running statistics after the one training forward."""
    found = {}
    for name, case in FORWARDS.items():
        trainer = worker.trainer(case)
        for weights in case.weights:
            made = batch(case)
            if weights == "recorded":
                with np.load(os.path.join(folder, RECORD)) as arrays:
                    made["input"] = arrays["input"]
            device_batch = trainer.to_device(made)
            start = tensors(case, weights, folder)
            trainer.load_state_dict(start)
            if weights == "init":
                after = trainer.state_dict()
                assert all(after[key].tobytes() == value.tobytes() for key, value in start.items()), name
            found[f"{name}/{weights}/eval"] = trainer.predict(device_batch)
            found[f"{name}/{weights}/train"] = worker.train_forward(trainer, device_batch)
            found.update(
                (f"{name}/{weights}/after/{key}", value)
                for key, value in trainer.state_dict().items()
                if ".running_" in key
            )
    return found


def go(trainer, case: Case, first: int, last: int) -> np.ndarray:
    """Updates first+1 .. last: a row of loss and gradient norm each."""
    rows = []
    for step in range(first, last):
        numbers = trainer.read(trainer.step([trainer.to_device(batch(case, step))], RATE, 0))
        assert numbers["skipped"] == 0 and numbers["grad_norm"] > CLIP
        rows.append((numbers["loss"], numbers["grad_norm"]))
    return np.array(rows)


def updates(worker: Worker, folder: str, before: str | None) -> dict[str, np.ndarray]:
    """One update, three more; for one case a longer run, and a share of the run all frameworks do together."""
    found = {}
    for name, (case, smoothing) in UPDATES.items():
        trainer, start = worker.trainer(case, smoothing, name in COMPILED), tensors(case, "drawn")
        trainer.load_state_dict(start)
        rows = [go(trainer, case, 0, 1)]
        found.update((f"{name}/1/{key}", value) for key, value in trainer.state_dict().items())
        rows.append(go(trainer, case, 1, 4))
        found.update((f"{name}/4/{key}", value) for key, value in trainer.state_dict().items())
        if name == RELAY:
            rows.append(go(trainer, case, 4, STEPS))
            done = 0
            if before:
                trainer.load_state_dict(load_file(awaited(before, "handover.safetensors")))
                done = HANDOVER[Path(before).name]
            else:
                empty = {
                    f"momentum/{p.name}": np.zeros(p.shape, np.float32) for p in trainer.params if not p.is_statistic
                }
                trainer.load_state_dict({**start, **empty})
            found["relay"] = go(trainer, case, done, HANDOVER[worker.framework])
            save_arrays(trainer.state_dict(), folder, "handover.safetensors")
            # Its tensors themselves go round too, changed by nobody: from torch to paddle to mindspore to torch.
            passed = (before and passed_on(trainer, awaited(before, "passed.safetensors"))) or trainer.state_dict()
            save_arrays(passed, folder, "passed.safetensors")
        found[f"{name}/rows"] = np.concatenate(rows)
    return found


def passed_on(trainer, path: str) -> dict[str, np.ndarray]:
    """Take over another framework's tensors and dump them again."""
    trainer.load_state_dict(load_file(path))
    return trainer.state_dict()


def save_arrays(arrays: dict[str, np.ndarray], folder: str, name: str) -> None:
    """Write a file that is whole as soon as it is there."""
    save_file(arrays, os.path.join(folder, "writing"))
    os.rename(os.path.join(folder, "writing"), os.path.join(folder, name))


def awaited(folder: str, name: str) -> str:
    """A file that a process beside this one will write; the parent ends this one if that fails."""
    path = os.path.join(folder, name)
    while not os.path.exists(path):
        time.sleep(0.05)
    return path


def facts(worker: Worker) -> dict[str, np.ndarray]:
    """The full-sized nets: the names and shapes of their parameters."""
    found = {}
    names = importlib.import_module(f"zoo.trainer.{worker.framework}.names")
    for model, options in FULL.items():
        tensors = names.named_tensors(load_model_class(model, worker.framework)(load_spec(model).Arch(**options)))
        sizes = {name: int(np.prod(tensor.shape)) for name, tensor in tensors.items() if ".running_" not in name}
        found[f"{model}/count"], found[f"{model}/names"] = np.array(sum(sizes.values())), np.array(list(sizes))
    return found


def main(framework: str, folder: str, *rest: str) -> None:
    worker = Worker(framework)
    if rest[:1] == ("--reload",):
        case, smoothing = UPDATES[RELAY]
        save_arrays(
            passed_on(worker.trainer(case, smoothing), os.path.join(rest[1], "passed.safetensors")),
            folder,
            "reloaded.safetensors",
        )
        return
    np.savez(
        os.path.join(folder, "arrays.npz"),
        **updates(worker, folder, rest[0] if rest else None),
        **forwards(worker, folder),
        **facts(worker),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
