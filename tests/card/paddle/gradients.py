"""Gradients of the models in fp32, fp16 and bf16: python -m tests.card.paddle.gradients FRAMEWORK FILE."""

import sys

import numpy as np
from safetensors.numpy import save_file

from tests.helpers import frameworks
from tests.zoo.trainer.trainer_setup import make_model, random_inputs, update
from zoo.trainer.plan import Mode

MODELS = {  # name: options, shape of a sample, section `task:`
    "resnet": ({"depth": 18, "width": 8}, (32, 32, 3), {}),
    "tsm": ({"depth": 18, "width": 8, "segments": 2}, (2, 32, 32, 3), {}),
    "deeplabv3plus": ({"depth": 18, "width": 8, "head_width": 16, "low_width": 8, "aux_width": 8}, (33, 33, 3), {}),
    "arcface": ({"depth": 18, "width": 8, "embedding": 16}, (32, 32, 3), {"scale": 8.0}),
}
CLASSES, SAMPLES = 5, 16
PRECISIONS = ("fp32", "fp16", "bf16")


def main(framework: str, path: str) -> None:
    backend, tensors = frameworks.adapter(framework), {}
    for name, (options, shape, task) in MODELS.items():
        for precision in PRECISIONS:
            mode = Mode(precision, None if precision == "fp32" else "O1", False, False)
            trainer, _ = make_model(backend, name, options, shape, CLASSES, task, mode, loss_scale=1024.0)
            update(trainer, random_inputs(trainer, CLASSES, SAMPLES), lr=0.0)
            gradients = trainer.gradients().items()
            tensors |= {f"{name}/{precision}/{key}": np.ascontiguousarray(value) for key, value in gradients}
    save_file(tensors, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
