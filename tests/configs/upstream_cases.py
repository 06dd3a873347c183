"""Losses of the recipes and their gradients against those recorded from upstream, in every framework.

The loss is that of the objective of the recipe as it is, on recorded logits or embeddings.
"""

from types import SimpleNamespace

import numpy as np

from tests.configs.upstream import check, recipe
from zoo.data.batch import LABEL, Field
from zoo.tasks import face
from zoo.trainer.plan import ParamGroup, Plan

TOLERANCE = 4e-6  # of float32: of the loss, and of the largest element of a gradient; measured: 2.0e-6


def case_pixel_loss_of_mmsegmentation(backend):
    for name in ("deeplabv3plus_cityscapes", "deeplabv3plus_cityscapes_769"):
        config, values = recipe(name).config, recipe(name).values
        logits = [values["loss/logits"], values["loss/aux_logits"]]
        total, count, *gradients = backend.loss_of_logits(config.task, logits, values["loss/label"])
        check(f"{name}, loss", total / count, values["loss/value"], TOLERANCE)
        for gradient, head in zip(gradients, ("", "aux_")):
            check(f"{name}, {head}gradient", gradient / count, values[f"loss/{head}gradient"], TOLERANCE)


def case_smoothed_loss_of_nvidia(backend):
    check_classification(backend, "resnet50_imagenet")


def case_loss_of_torchvision(backend):
    check_classification(backend, "resnet50_imagenet_v1")


def case_margin_loss_of_plsc(backend):
    for name in ("arcface_ms1m", "arcface_synthetic"):
        check_margin(backend, recipe(name).config.task, recipe(name).values, "arcface")


def case_margin_loss_of_insightface(backend):
    """The recipe's, and that of insightface's recipes with ArcFace's margin, whose gradient ignores the margin."""
    glint360k = recipe("arcface_glint360k")
    check_margin(backend, glint360k.config.task, glint360k.values, "cosface")
    settings = face.Settings(threshold=False, gradient="straight")
    check_margin(backend, settings, glint360k.values, "arcface")


def check_classification(backend, name):
    """Compare the mean loss and its gradient by the logits.

    A linear layer without momentum takes the unit matrix, so its weight is the transposed logits, and the momentum
    buffer after one update is their transposed gradient.
    """
    config, values = recipe(name).config, recipe(name).values
    logits = values["loss/logits"]
    samples, classes = logits.shape
    plan = Plan(
        (Field("x", (samples,), "float32"), LABEL), (), lambda name: ParamGroup(1.0, 0.0), backend.FP32_MODES[0]
    )
    arch = SimpleNamespace(inputs=samples, embedding=classes)
    trainer = backend.Trainer(backend.Linear, arch, config.task, plan, backend.WORLD)
    trainer.load_state_dict({"fc.weight": logits.T.copy(), "fc.bias": np.zeros(classes, np.float32)})
    batch = {
        "x": np.eye(samples, dtype=np.float32),
        "label": values["loss/labels"],
        "valid": np.ones(samples, np.uint8),
    }
    output = trainer.read(trainer.step([trainer.to_device(batch)], 0.0, 0))
    check(f"{name}, loss", output["loss"], values["loss/value"], TOLERANCE)
    check(
        f"{name}, gradient", trainer.state_dict()["optimizer/momentum/fc.weight"].T, values["loss/gradient"], TOLERANCE
    )


def check_margin(backend, settings, values, case):
    """Compare the mean loss and its gradients by embeddings and class weights."""
    inputs = (values["loss/embeddings"], values["loss/weight"], values["loss/labels"])
    loss, *gradients = backend.margin_loss(*inputs, settings, backend.FP32_MODES[0])
    check(f"{case}, loss", loss / len(inputs[0]), values[f"loss/{case}/value"], TOLERANCE)
    for gradient, key in zip(gradients, ("embeddings", "weight")):
        check(f"{case}, gradient of the {key}", gradient / len(inputs[0]), values[f"loss/{case}/{key}"], TOLERANCE)
