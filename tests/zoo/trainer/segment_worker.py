"""Compute DeepLabV3+ in one framework for tests/zoo/trainer/test_segment_parity.py; the arrays go into a file.

python -m tests.zoo.trainer.segment_worker FRAMEWORK FILE
"""

import sys

import numpy as np

from tests.helpers import frameworks
from tests.zoo.models.tsm.golden import drawn
from tests.zoo.trainer.tiny_reference import MEAN, STD
from zoo.data.batch import Field
from zoo.models import load_model_class, load_spec
from zoo.tasks import segment
from zoo.trainer.plan import Mode, ParamGroup, Plan

CLASSES, LR = 5, 0.005
SMALL = dict(num_classes=CLASSES, head_width=16, low_width=8, aux_width=8, width=8)
# name -> options, height and width. 65 = 8 * 8 + 1 suits aligned corners; 49 is odd and does not.
MODELS = {
    "mmseg": (dict(depth=18), (48, 64)),
    "mmseg_odd": (dict(depth=18), (49, 33)),
    "plain_aligned": (dict(depth=50, stem="plain", align_corners=True), (65, 65)),
    "stride16_multigrid": (dict(depth=50, output_stride=16, multi_grid=(1, 2, 4), rates=(6, 12, 18)), (64, 64)),
    "paddleseg": (dict(depth=50, variant="paddleseg"), (64, 48)),
    "paddleseg_auxiliary": (dict(depth=50, variant="paddleseg", auxiliary=True), (48, 48)),
}
OBJECTIVES = {
    "valid": segment.Settings(),
    "all": segment.Settings(average="all", aux_weight=0.25),
    "hardest": segment.Settings(ohem_kept=300),
    "threshold": segment.Settings(ohem_kept=30, ohem_threshold=0.3),
    "threshold_many": segment.Settings(ohem_kept=700, ohem_threshold=0.01),
    "smoothed_hardest": segment.Settings(ohem_kept=300, label_smoothing=0.3),
    "smoothed_threshold": segment.Settings(ohem_kept=30, ohem_threshold=0.3, label_smoothing=0.3),
}
MASKS = ("mixed", "ignored")
OUTPUTS = {
    "whole": segment.Settings(),
    "slide": segment.Settings(window=(24, 32), stride=(13, 20)),
    "flip": segment.Settings(flip=True),
    "slide_flip": segment.Settings(window=(30, 30), flip=True),
}
SIZE = (40, 56)  # height and width of the images
Arrays = dict[str, np.ndarray]


def random_logits(seed: int, size=SIZE) -> np.ndarray:
    return 2 * np.random.default_rng(seed).standard_normal((2, CLASSES, *size), dtype=np.float32)


def random_mask(content: str, size=SIZE) -> np.ndarray:
    """Return labels (2, *size), of which some (mixed) or all (ignored) are left out."""
    mask = np.random.default_rng(5).integers(0, CLASSES, (2, *size)).astype(np.uint8)
    mask[:, : size[0] // 3, : size[1] // 2] = segment.IGNORE_INDEX
    return np.full_like(mask, segment.IGNORE_INDEX) if content == "ignored" else mask


def random_images() -> np.ndarray:
    return np.random.default_rng(6).integers(0, 256, (2, *SIZE, 3), np.uint8)


def random_small_images() -> np.ndarray:
    """Return the second scale of an evaluation."""
    return np.random.default_rng(7).integers(0, 256, (2, 20, 28, 3), np.uint8)


class Worker:
    """A framework's trainers of DeepLabV3+ models."""

    def __init__(self, framework: str):
        self.framework, self.backend = framework, frameworks.adapter(framework)

    def trainer(self, name: str, compiled: bool = False):
        """Return a trainer of MODELS and a batch for it."""
        options, (height, width) = MODELS[name]
        spec = load_spec("deeplabv3plus")
        arch = spec.Arch(crop=(height, width), **{**SMALL, **options})
        masks, settings = spec.dropout_masks(arch), segment.Settings()
        fields = (
            Field("image", (height, width, 3), "uint8", MEAN, STD),
            Field("label", (height, width), "uint8", missing=255),
        )
        world = self.backend.WORLD
        plan = Plan(
            fields + tuple(mask.field for mask in masks),
            tuple(mask.name for mask in masks),
            lambda name: ParamGroup(1.0, 1e-3),
            world.resolve_mode(Mode("fp32", None, None, compiled)),
            output=segment.output(settings),
        )
        model = load_model_class("deeplabv3plus", self.framework)
        trainer = self.backend.Trainer(model, arch, settings, plan, world)
        trainer.load_state_dict({name: drawn(name, shape) for name, shape in spec.shapes(arch).items()})
        rng = np.random.default_rng(3)
        batch = {
            "image": rng.integers(0, 256, (2, height, width, 3), np.uint8),
            "label": random_mask("mixed", (height, width)),
            **{mask.name: np.stack([mask.sample(rng) for _ in range(2)]) for mask in masks},
        }
        return trainer, batch

    def logits(self, name: str) -> Arrays:
        """Return the logits of an evaluation, then those of training and the running statistics after it."""
        trainer, batch = self.trainer(name)
        (evaluated,) = self.backend.forward(trainer, batch, train=False)
        arrays = {"eval": evaluated}
        arrays.update((f"train{i}", x) for i, x in enumerate(self.backend.forward(trainer, batch, train=True)))
        arrays.update((f"after/{key}", value) for key, value in trainer.state_dict().items() if ".running_" in key)
        return {f"{name}/{key}": value for key, value in arrays.items()}

    def update(self) -> Arrays:
        """Do one update with a mask that has ignored pixels alone."""
        trainer, batch = self.trainer("mmseg", compiled=self.framework == "mindspore")
        batch["label"] = random_mask("ignored", batch["label"].shape[1:])
        numbers = trainer.read(trainer.step([trainer.to_device(batch)], LR, 0))
        numbers = {key: np.asarray(numbers[key]) for key in ("loss", "grad_norm")}
        return {f"update/{key}": value for key, value in {**trainer.state_dict(), **numbers}.items()}


def fixed_model(pixels: np.ndarray) -> np.ndarray:
    """Return logits (N, CLASSES, h, w), float32, of uint8 (N, h, w, 3); they depend on the place in the window."""
    height, width = pixels.shape[1:3]
    row, column = np.mgrid[:height, :width].astype(np.float32)
    x = pixels.astype(np.float32) / 64
    logits = [
        x[..., 0],
        x[..., 1] + 0.02 * row,
        x[..., 2] - 0.01 * column + 0.3,
        (x[..., 0] + x[..., 1]) / 2 + 0.5,
        0.1 * column - x[..., 2] + 1,
    ]
    return np.ascontiguousarray(np.stack([np.broadcast_to(z, x.shape[:3]) for z in logits], 1), dtype=np.float32)


def main(framework: str, path: str) -> None:
    worker, arrays = Worker(framework), {}
    for name in MODELS:
        arrays.update(worker.logits(name))
    np.savez(path, **arrays, **worker.update())


if __name__ == "__main__":
    main(*sys.argv[1:])
