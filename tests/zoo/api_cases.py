"""The Python API in every framework; test_api.py runs the cases."""

import os
import tempfile

import numpy as np

import zoo
from tests.helpers.paths import ROOT
from zoo.config import loader
from zoo.models import load_model_class, named
from zoo.run import cli
from zoo.run.checkpoint import save_checkpoint

SMALL = {  # of each model: options, and an input
    "resnet18": ({"width": 8}, (2, 3, 32, 32)),
    "tsm_r50": ({"width": 8, "segments": 2}, (1, 2, 3, 32, 32)),
    "deeplabv3plus_r18": ({"width": 16, "head_width": 16, "low_width": 8, "aux_width": 8}, (1, 3, 32, 48)),
    "iresnet18": ({"width": 8, "size": 32, "embedding": 16}, (2, 3, 32, 32)),
}
PAIRS = ["model.depth=18", "model.width=8", "data.size=32", "data.workers=0"]
CLASSES = ["circle", "square", "star"]


def reference(backend, name, arch, tensors):
    """Return the model with weights that the tests' own code has copied."""
    model = load_model_class(named.find(name).model, backend.FRAMEWORK)(arch)
    backend.load_tensors(model, tensors)
    return backend.set_train(model, False)


def write_checkpoint(folder, seed=3):
    """Write a checkpoint of a ResNet-18 for three classes; return its folder and tensors."""
    request = cli.request(str(ROOT / "configs/resnet50_demo.yaml"), PAIRS)
    tensors = zoo.numpy_weights("resnet18", width=8, num_classes=3, seed=seed)
    run = os.path.join(folder, "run")
    save_checkpoint(run, 4, tensors, {"classes": CLASSES, "recipe": loader.render(request.resolved)}, 1)
    return os.path.join(run, "checkpoints/last"), tensors


def case_models_by_name_have_the_numpy_weights(backend):
    for name, (options, shape) in SMALL.items():
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        outputs = []
        for seed in (3, 4):
            classes = {} if name == "iresnet18" else {"num_classes": 5}
            model = zoo.create_model(name, backend.FRAMEWORK, seed=seed, **classes, **options)
            arch = named.build_arch(named.find(name), options, 5)
            tensors = zoo.numpy_weights(name, seed=seed, **classes, **options)
            outputs.append(backend.run(backend.set_train(model, False), x))
            expected = backend.run(reference(backend, name, arch, tensors), x)
            assert np.array_equal(outputs[-1], expected), name
        assert outputs[0].shape[1] in (5, 16) and not np.array_equal(*outputs)


def case_a_checkpoint_is_loaded_with_its_classes_and_recipe(backend):
    with tempfile.TemporaryDirectory() as folder:
        path, tensors = write_checkpoint(folder)
        loaded = zoo.load(path, backend.FRAMEWORK)
        fresh = zoo.create_model("resnet18", backend.FRAMEWORK, pretrained=path, num_classes=2, width=8)
    x = np.random.default_rng(1).standard_normal((2, 3, 32, 32)).astype(np.float32)
    expected = backend.run(reference(backend, "resnet18", loaded.arch, tensors), x)
    assert np.array_equal(backend.run(backend.set_train(loaded.model, False), x), expected)
    assert loaded.class_names == tuple(CLASSES) and loaded.recipe["model.depth"] == 18
    assert loaded.mean == (0.485, 0.456, 0.406) and loaded.std == (0.229, 0.224, 0.225)
    assert backend.run(backend.set_train(fresh, False), x).shape == (2, 2)
