"""Weights of other projects give the outputs that were recorded from their own models, in every framework.

Those of mit-han-lab, mindcv and mindspore-ai are among tests/zoo/models/model_cases.py.
"""

import numpy as np

from tests.helpers.paths import GOLDEN
from tests.zoo.models.arcface import golden as faces
from tests.zoo.models.deeplabv3plus import golden as scenes
from tests.zoo.models.model_cases import make
from tests.zoo.models.tsm.golden import relative
from tests.zoo.weights.state_dicts import drawn_state_dict
from zoo.models import load_spec
from zoo.weights import conversion, layouts

CLASSES, TOLERANCE = 7, 1e-5


def outputs(backend, name, options, tensors, x):
    """Return the outputs of a model with canonical tensors, or with those that a function of name and shape draws."""
    given = tensors if callable(tensors) else lambda key, shape: tensors[key].reshape(shape)
    model = make(backend, name, load_spec(name).Arch(**options), given)
    return backend.run(backend.set_train(model, False), x)


def images(*shape):
    return np.random.default_rng(2015).standard_normal((*shape, 3, 64, 64), np.float32)


def resnets(key):
    with np.load(GOLDEN / "resnets.npz") as arrays:
        return arrays[key]


def case_resnets_of_torchvision_and_paddleclas(backend):
    for file, origin, depth in (("torchvision_resnet18", "torchvision", 18), ("paddleclas_resnet50", "paddleclas", 50)):
        tensors = layouts.to_canonical(drawn_state_dict(f"names_{file}"), origin)
        logits = outputs(backend, "resnet", dict(depth=depth, num_classes=CLASSES), tensors, images(2))
        assert relative(logits, resnets(file)) <= TOLERANCE, file


def case_a_tsm_of_paddlevideo(backend):
    tensors = layouts.to_canonical(drawn_state_dict("names_paddlevideo_resnet50"), "paddlevideo")
    tensors, _ = conversion.reverse_shift(tensors, 50, None, False)
    logits = outputs(backend, "tsm", dict(num_classes=CLASSES, segments=8), tensors, images(2, 8))
    assert relative(logits, resnets("paddlevideo_8_frames")) <= TOLERANCE


def case_deeplabs_of_mmsegmentation_and_paddleseg(backend):
    for origin, file, case in (("mmseg", "mmseg_r18", "r18"), ("paddleseg", "paddleseg_r50vd", "vd50")):
        tensors = layouts.to_canonical(drawn_state_dict(f"names_{file}"), origin)
        options = dict(num_classes=scenes.CLASSES, **scenes.CASES[case].options)
        logits = outputs(backend, "deeplabv3plus", options, tensors, scenes.input_images(case))
        assert relative(scenes.thinned("resized", logits), scenes.recorded()[f"names/{file}"]) <= TOLERANCE, file


def case_iresnets_of_insightface_and_plsc(backend):
    for case in ("r18", "plsc50"):
        embeddings = outputs(backend, "arcface", faces.CASES[case], faces.drawn, faces.input_images()[:2])
        assert relative(embeddings, faces.recorded()[f"{case}/eval"]) <= TOLERANCE, case
