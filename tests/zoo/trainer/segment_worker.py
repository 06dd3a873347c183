"""What one framework computes for tests/zoo/trainer/test_segment_parity.py, in a process of its own: its arrays go into a file.

python -m tests.zoo.trainer.segment_worker FRAMEWORK FILE
"""

import sys

import numpy as np

from data.batch import Field
from tests.zoo.models.tsm.golden import drawn
from zoo.models import load_model_class, load_spec
from zoo.tasks import segment
from zoo.trainer import load_backend
from zoo.trainer.protocol import Launch, Mode, Plan

CLASSES, RATE = 5, 0.005
SMALL = dict(num_classes=CLASSES, head_width=16, low_width=8, aux_width=8, width=8)
# name -> options, height and width. 65 = 8 * 8 + 1 suits aligned corners; 49 is odd and does not.
NETS = {
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
}
LABELS = ("mixed", "ignored")
OUTPUTS = {
    "whole": segment.Settings(),
    "slide": segment.Settings(window=(24, 32), stride=(13, 20)),
    "flip": segment.Settings(flip=True),
    "slide_flip": segment.Settings(window=(30, 30), flip=True),
}
SIZE = (40, 56)  # of the maps: as the first picture, or another


def logits(seed: int, size=SIZE) -> np.ndarray:
    return 2 * np.random.default_rng(seed).standard_normal((2, CLASSES, *size), dtype=np.float32)


def labels(kind: str, size=SIZE) -> np.ndarray:
    made = np.random.default_rng(5).integers(0, CLASSES, (2, *size)).astype(np.uint8)
    made[:, : size[0] // 3, : size[1] // 2] = segment.IGNORE_INDEX
    return np.full_like(made, segment.IGNORE_INDEX) if kind == "ignored" else made


def pictures() -> np.ndarray:
    return np.random.default_rng(6).integers(0, 256, (2, *SIZE, 3), np.uint8)


def scaled() -> np.ndarray:
    """Another scale of the pictures; any picture will do."""
    return np.random.default_rng(7).integers(0, 256, (2, 20, 28, 3), np.uint8)


class Worker:
    def __init__(self, framework: str):
        self.framework, self.backend = framework, load_backend(framework)
        self.world = self.backend.start(Launch(), "cpu")

    def trainer(self, name: str, settings=segment.Settings(), compiled: bool = False):
        options, (height, width) = NETS[name]
        spec = load_spec("deeplabv3plus")
        arch = spec.Arch(crop=(height, width), **{**SMALL, **options})
        noise = spec.dropout_masks(arch)
        fields = (
            Field("image", (height, width, 3), "uint8", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            Field("label", (height, width), "uint8", missing=255),
        )
        mode = self.world.resolve_mode(Mode("fp32", None, None, compiled))
        plan = Plan(
            fields + tuple(source.field for source in noise),
            tuple(source.name for source in noise),
            lambda name: (1.0, 1e-3),
            mode,
            output=segment.output(settings),
        )
        trainer = self.backend.Trainer(
            load_model_class("deeplabv3plus", self.framework), arch, segment.objective(settings), plan, self.world
        )
        trainer.load_state_dict({name: drawn(name, shape) for name, shape in spec.shapes(arch).items()})
        rng = np.random.default_rng(3)
        batch = {
            "image": rng.integers(0, 256, (2, height, width, 3), np.uint8),
            "label": labels("mixed", (height, width)),
            **{source.name: np.stack([source.draw(rng) for _ in range(2)]) for source in noise},
        }
        return trainer, batch

    def both_modes(self, name: str) -> dict[str, np.ndarray]:
        """Logits of an evaluation, then those of training and the running statistics after it."""
        trainer, batch = self.trainer(name)
        device_batch = trainer.to_device(batch)
        rest = [device_batch[key] for key in trainer.plan.dropout_masks]
        if self.framework == "mindspore":
            found = {"eval": trainer.predictor(device_batch["image"]).asnumpy()}
            trained = [x.asnumpy() for x in trainer.train_forward(trainer.preprocess(device_batch["image"]), *rest)]
        elif self.framework == "paddle":
            trainer.model.eval()
            found = {"eval": trainer.eval_forward([trainer.preprocess(device_batch["image"])]).numpy()}
            trainer._train_mode()
            trained = [x.numpy() for x in trainer.train_forward([trainer.preprocess(device_batch["image"]), *rest])]
        else:
            trainer.model.eval()
            found = {"eval": trainer.eval_forward(trainer.preprocess(device_batch["image"])).detach().numpy()}
            trainer._train_mode()
            trained = [
                x.detach().numpy() for x in trainer.train_forward(trainer.preprocess(device_batch["image"]), *rest)
            ]
        found.update((f"train{i}", value) for i, value in enumerate(trained))
        found.update((f"after/{key}", value) for key, value in trainer.state_dict().items() if ".running_" in key)
        return {f"{name}/{key}": value for key, value in found.items()}

    def objective(self, name: str, kind: str) -> dict[str, np.ndarray]:
        """Total, count and the gradient of the total by both logits."""
        objectives = __import__(f"zoo.trainer.{self.framework}.objectives", fromlist=["build"])
        made = objectives.build(segment.objective(OBJECTIVES[name]))
        first, second, label = logits(2), logits(3), labels(kind)
        if self.framework == "torch":
            import torch

            a, b = (torch.from_numpy(x).requires_grad_() for x in (first, second))
            batch = {"label": torch.from_numpy(label)}
            total = made.total((a, b), batch)
            total.backward()
            found = float(total), float(made.count(batch)), a.grad.numpy(), b.grad.numpy()
        elif self.framework == "paddle":
            import paddle

            a, b = (paddle.to_tensor(x, stop_gradient=False) for x in (first, second))
            batch = {"label": paddle.to_tensor(label)}
            total = made.total((a, b), batch)
            total.backward()
            found = float(total), float(made.count(batch)), a.grad.numpy(), b.grad.numpy()
        else:
            from mindspore import Tensor, value_and_grad

            label = Tensor(label)
            total, grads = value_and_grad(lambda a, b: made((a, b), label), (0, 1))(Tensor(first), Tensor(second))
            found = float(total), float(made.count({"label": label})), grads[0].asnumpy(), grads[1].asnumpy()
        return {
            f"{name}/{kind}/{key}": np.asarray(value)
            for key, value in zip(("total", "count", "by_first", "by_second"), found)
        }

    def maps(self) -> dict[str, np.ndarray]:
        """Class maps of a net that is one fixed function of the pixels, at one scale, two, and another size."""
        trainer, _ = self.trainer("mmseg")
        outputs = __import__(f"zoo.trainer.{self.framework}.outputs", fromlist=["build"])
        found = {}
        for name, settings in OUTPUTS.items():
            made = outputs.build(segment.output(settings), trainer_arch())
            for case, images, size in (
                ("one", [pictures()], SIZE),
                ("two", [pictures(), scaled()], SIZE),
                ("larger", [pictures()], (55, 80)),
            ):
                device_batch = trainer.to_device({str(i): image for i, image in enumerate(images)})
                values = made(self.stand_in, list(device_batch.values()), size)
                found[f"{name}/{case}"] = values.numpy() if self.framework != "mindspore" else values.asnumpy()
        return found

    def stand_in(self, x):
        """Logits (N, CLASSES, h, w) that depend on the pixel, its neighbours' place in the window, and nothing else."""
        array = x.asnumpy() if self.framework == "mindspore" else x.numpy()
        return self.tensor(fixed_net(array))

    def tensor(self, array: np.ndarray):
        if self.framework == "torch":
            import torch

            return torch.from_numpy(array)
        if self.framework == "paddle":
            import paddle

            return paddle.to_tensor(array)
        from mindspore import Tensor

        return Tensor(array)

    def update(self) -> dict[str, np.ndarray]:
        """One update of the whole trainer, on a batch with ignored pixels and on one that has nothing else."""
        found = {}
        for kind in LABELS:
            trainer, batch = self.trainer("mmseg", compiled=self.framework == "mindspore")
            batch["label"] = labels(kind, batch["label"].shape[1:])
            numbers = trainer.read(trainer.step([trainer.to_device(batch)], RATE, 0))
            found[f"{kind}/loss"] = np.asarray(numbers["loss"])
            found[f"{kind}/grad_norm"] = np.asarray(numbers["grad_norm"])
            found.update((f"{kind}/{name}", value) for name, value in trainer.state_dict().items())
        return {f"update/{key}": value for key, value in found.items()}


def trainer_arch():
    return load_spec("deeplabv3plus").Arch(num_classes=CLASSES, align_corners=True)


def fixed_net(pixels: np.ndarray) -> np.ndarray:
    """uint8 (N, h, w, 3) -> float32 (N, CLASSES, h, w): a window that lies elsewhere gives other logits."""
    height, width = pixels.shape[1:3]
    row, column = np.mgrid[:height, :width].astype(np.float32)
    x = pixels.astype(np.float32) / 64
    rows = [
        x[..., 0],
        x[..., 1] + 0.02 * row,
        x[..., 2] - 0.01 * column + 0.3,
        (x[..., 0] + x[..., 1]) / 2 + 0.5,
        0.1 * column - x[..., 2] + 1,
    ]
    return np.ascontiguousarray(np.stack([np.broadcast_to(row, x.shape[:3]) for row in rows], 1), dtype=np.float32)


def main(framework: str, path: str) -> None:
    worker, found = Worker(framework), {}
    for name in NETS:
        found.update(worker.both_modes(name))
    for name in OBJECTIVES:
        for kind in LABELS:
            found.update(worker.objective(name, kind))
    found.update(worker.maps())
    found.update(worker.update())
    np.savez(path, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
