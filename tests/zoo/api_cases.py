"""The Python API in every framework; test_api.py runs the cases."""

import os
import signal
import tempfile

import numpy as np
import safetensors.numpy

import zoo
from tests.helpers.paths import ROOT
from zoo.config import loader
from zoo.frameworks import CHANNELS_LAST
from zoo.models import load_model_class, named
from zoo.run.checkpoint import save_checkpoint
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.trainer import load_backend

SMALL = {  # of each model: options, and an input
    "resnet18": ({"width": 8}, (2, 3, 32, 32)),
    "tsm_r50": ({"width": 8, "segments": 2}, (1, 2, 3, 32, 32)),
    "deeplabv3plus_r18": ({"width": 16, "head_width": 16, "low_width": 8, "aux_width": 8}, (1, 3, 32, 48)),
    "iresnet18": ({"width": 8, "size": 32, "embedding": 16}, (2, 3, 32, 32)),
}
RUN = {  # a run of seconds
    "data.train_images": 64,
    "data.val_images": 16,
    "data.size": 32,
    "data.resample": "exact",
    "model.width": 8,
    "train.epochs": None,
    "train.steps": 6,
    "train.batch": 16,
    "train.eval_every": 6,
    "optim.warmup": "0 steps",
    "optim.lr": 0.05,
    "device": "cpu",
}
RUN_LOSS = 2.1159  # of its last evaluation in PyTorch, recorded with AVX-512; the other frameworks differ by 1e-6
PAIRS = ["model.depth=18", "model.width=8", "data.size=32", "data.workers=0"]
CLASSES = ["circle", "square", "star"]


def reference(backend, name, arch, tensors):
    """Return the model with weights that the tests' own code has copied."""
    model = load_model_class(named.find(name).model, backend.FRAMEWORK)(arch)
    backend.load_tensors(model, tensors)
    return backend.set_train(model, False)


def write_checkpoint(folder, seed=3):
    """Write a checkpoint of a ResNet-18 for three classes; return its folder and tensors."""
    tensors = zoo.numpy_weights("resnet18", width=8, num_classes=3, seed=seed)
    return save(folder, "resnet50_demo", PAIRS, tensors, CLASSES), tensors


def write_other_checkpoints(folder):
    """Write checkpoints of a DeepLabV3+ for three classes and of an IResNet; return their folders."""
    options = {"width": 16, "head_width": 16, "low_width": 8, "aux_width": 8, "output_stride": 16, "rates": (2, 4, 6)}
    scenes = zoo.numpy_weights("deeplabv3plus_r18", num_classes=3, **options)
    pairs = [f"model.{key}={list(value) if key == 'rates' else value}" for key, value in options.items()]
    faces = zoo.numpy_weights("iresnet18", width=8, size=32, embedding=16)
    faces["head.weight"] = np.zeros((3, 16), np.float32)
    return (
        save(os.path.join(folder, "scenes"), "deeplabv3plus_demo", pairs, scenes, ["road", "sky", "person"]),
        save(
            os.path.join(folder, "faces"),
            "arcface_demo",
            ["model.width=8", "data.size=32", "model.embedding=16"],
            faces,
            ["0", "1", "2"],
        ),
    )


def save(folder, recipe, pairs, tensors, classes):
    """Write a checkpoint by a recipe with changes; return its folder."""
    request, run = resolve_recipe(Options(str(ROOT / f"configs/{recipe}.yaml"), pairs)), os.path.join(folder, "run")
    save_checkpoint(run, 4, tensors, {"classes": classes, "recipe": loader.render(request.resolved)}, 1)
    return os.path.join(run, "checkpoints/last")


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


def case_features_are_what_the_classifier_gets(backend):
    """Weights x features + bias are the logits; the mean of a class activation map is the logit of its class."""
    rng, results = np.random.default_rng(5), []
    with tempfile.TemporaryDirectory() as folder:
        images = rng.integers(0, 256, (2, 3, 36, 44, 3), np.uint8)
        clips = rng.integers(0, 256, (2, 4, 40, 36, 3), np.uint8)
        tsm = zoo.numpy_weights("tsm_r18", num_classes=3, width=8, segments=4)
        pairs = ["model.width=8", "data.size=32", "data.segments=4"]
        sets = (
            (write_checkpoint(folder)[0], list(images[0])),
            (save(os.path.join(folder, "clips"), "tsm_demo", pairs, tsm, CLASSES), list(clips)),
        )
        for path, inputs in sets:
            loaded, head = zoo.load(path, backend.FRAMEWORK), safetensors.numpy.load_file(f"{path}/model.safetensors")
            found = loaded.features(inputs)
            logits = found.astype(np.float64) @ head["fc.weight"].T + head["fc.bias"]
            shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            for row, result in zip(shares, loaded.predict(inputs), strict=True):
                assert np.allclose(
                    [row[CLASSES.index(name)] for name in result.labels], result.probabilities, atol=1e-5
                )
            assert np.allclose(loaded.features(inputs[0]), found[0], atol=1e-5)
            assert found.shape == (len(inputs), head["fc.weight"].shape[1])
            results.append(found)
        scenes, faces = (zoo.load(path, backend.FRAMEWORK) for path in write_other_checkpoints(folder))
        results += [scenes.features([images[0, 0]]), faces.features(list(images[1, :2, :32, :32]))]
    assert results[2].shape == (1, 128) and results[3].shape == (2, 16)
    assert np.allclose(np.linalg.norm(results[3], axis=1), 1)


def case_a_classifier_for_other_classes(backend):
    for name, (options, shape) in SMALL.items():
        if name == "iresnet18":
            continue
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        model = backend.set_train(zoo.create_model(name, backend.FRAMEWORK, num_classes=5, **options), False)
        before = backend.run(model.forward_features, x)
        model.reset_classifier(7)
        assert backend.run(backend.set_train(model, False), x).shape[1] == 7
        assert np.array_equal(backend.run(model.forward_features, x), before) and before.ndim == 4
        fresh = zoo.numpy_weights(name, num_classes=7, **options)
        assert backend.shapes(model) == {key: array.shape for key, array in fresh.items()}, name


def case_a_run_trains_in_this_process_again_and_again(backend):
    with tempfile.TemporaryDirectory() as folder:
        settings = {**RUN, "data.root": os.path.join(folder, "shapes")}
        recipe, framework = ROOT / "configs/resnet50_demo.yaml", backend.FRAMEWORK
        handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        first = zoo.Run(recipe, settings, framework=framework, out=os.path.join(folder, "a")).train()
        averaged = {**settings, "train.ema": 0.9}  # which changes nothing else
        again = zoo.Run(recipe, averaged, framework=framework, out=os.path.join(folder, "b")).train()
        other = zoo.Run(
            recipe, settings, framework=framework, out=os.path.join(folder, "c"), seed=2, max_steps=1
        ).train()
        assert handlers == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        assert first.folder == os.path.join(folder, "a") and first.metrics["samples"] == 16
        tensors = [
            safetensors.numpy.load_file(f"{run.folder}/checkpoints/last/model.safetensors")
            for run in (first, again, other)
        ]
        assert all(np.array_equal(tensors[0][name], tensors[1][name]) for name in tensors[0])
        assert not np.array_equal(tensors[0]["fc.weight"], tensors[2]["fc.weight"])
        assert abs(first.metrics["loss"] - RUN_LOSS) < 1e-4, first.metrics
        assert zoo.load(first.checkpoint, framework).recipe["train.steps"] == 6
        assert again.metrics["loss"] == first.metrics["loss"] != again.metrics["ema"]["loss"]
        assert again.metrics["accuracy"] == again.metrics["ema"]["top1"] and "ema" not in first.metrics
        for run in (first, again):
            metrics = zoo.Run(recipe, settings, weights=run.checkpoint, framework=framework).evaluate()
            assert {**metrics, "seconds": 0} == {**run.metrics, "seconds": 0}
        finished = zoo.Run(None, resume=first.folder).train()
        assert finished.metrics["loss"] == first.metrics["loss"] and finished.folder == first.folder


def case_batches_are_those_of_a_run(backend):
    """Bytes that the trainer of a run gets; tensors as models take them."""
    settings = {
        "data.name": "synthetic",
        "data.kind": "clip",
        "data.size": 32,
        "data.segments": 2,
        "data.num_classes": 4,
        "data.train_samples": 14,
        "data.val_samples": 8,
        "data.workers": 0,
        "data.mixup": 0.5,
        "data.cutmix": 1.0,
        "model.width": 8,
        "train.epochs": None,
        "train.steps": 3,
        "train.batch": 4,
        "train.accumulate": 2,
        "optim.warmup": "0 steps",
        "device": "cpu",
        "seed": 5,
    }
    trainer, given = load_backend(backend.FRAMEWORK).Trainer, []
    to_device = trainer.to_device

    def record(self, batch, *images):
        if "valid" in batch:
            given.append(batch)
        return to_device(self, batch, *images)

    trainer.to_device = record
    try:
        with tempfile.TemporaryDirectory() as folder:
            zoo.Run("tsm_demo", settings, framework=backend.FRAMEWORK, out=f"{folder}/run").train()
    finally:
        trainer.to_device = to_device
    arrays = list(zoo.batches("tsm_demo", settings, dropout_masks=True))
    assert len(arrays) == len(given) == 6 and {"soft_label", "dropout"} < arrays[0].keys()
    for expected, batch in zip(given, arrays):
        assert batch.keys() == expected.keys()
        assert all(np.array_equal(batch[name], expected[name]) for name in batch)
    batches = zoo.batches("tsm_demo", settings, framework=backend.FRAMEWORK)
    for number, tensors in enumerate(batches):
        assert tensors.keys() == arrays[number].keys() - {"dropout"}
        found = {name: backend.to_array(tensor) for name, tensor in tensors.items()}
        clip = (arrays[number]["video"] / 255 - batches.fields[0].mean) / batches.fields[0].std
        clip = clip if backend.FRAMEWORK in CHANNELS_LAST else np.moveaxis(clip, -1, -3)
        assert found["video"].dtype == np.float32 and np.abs(found["video"] - clip).max() < 1e-6
        assert all(np.array_equal(found[name], arrays[number][name]) for name in found if name != "video")
