"""The Python API: models by name in any framework, with initial, published or trained weights."""

import fnmatch
import os
import sys
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, cast

import numpy as np

from zoo import arguments
from zoo.data.errors import UserError
from zoo.frameworks import FRAMEWORKS
from zoo.loaded import Loaded
from zoo.models import Spec, initializers, load_model_class, load_spec, named
from zoo.models.named import NAMED_MODELS
from zoo.notebook import Result, Run
from zoo.predict.classify import Classification
from zoo.predict.faces import Face
from zoo.predict.predictors import find_predictor
from zoo.predict.segment import Segmentation
from zoo.run import trained
from zoo.run.checkpoint import has_averages, model_file
from zoo.run.weights import averages_note
from zoo.trainer import load_backend
from zoo.weights import files, imagenet, onnx_file, recorded
from zoo.weights.match import merge, require_match

__all__ = [
    "FRAMEWORKS",
    "Classification",
    "Face",
    "Loaded",
    "Result",
    "Run",
    "Segmentation",
    "UserError",
    "create_model",
    "list_models",
    "load",
    "numpy_weights",
]
Arrays = dict[str, np.ndarray]


def list_models(pattern: str = "*") -> list[str]:
    """Return the names of all models that match a pattern of the shell, such as `tsm_*`."""
    return fnmatch.filter(NAMED_MODELS, pattern)


def create_model(
    name: str,
    framework: str = "torch",
    *,
    num_classes: int | None = None,
    pretrained: str | os.PathLike[str] | None = None,
    seed: int = 0,
    **options: Any,
) -> Any:
    """Build a model with weights.

    Args:
        name: one of list_models().
        framework: torch, paddle or mindspore. A process can use one of them.
        num_classes: outputs of the classifier, which a face model has not; default: those of the weights, or of the
            data set that the model was published for. Where the weights have another number, the classifier is
            initialized.
        pretrained: checkpoint folder of a run, of which the moving average (train.ema) counts if it has one; one of its
            files, such as model.safetensors; file of tools/convert.py, or "imagenet", which downloads published
            weights of the ResNet; None: initial values.
        seed: of the initial values, which are equal in all frameworks.
        options: of the architecture, such as segments=16 or width=32; the fields of Arch in zoo/models/<model>/spec.py.

    Returns:
        nn.Module, nn.Layer or nn.Cell, on the framework's default device and in its default mode. It takes normalized
        pixels, channels first, and a clip's frames before the channels.

    Raises:
        UserError: the name, an option or the weights are wrong, or the framework is not installed.
    """
    arch, tensors = _arch_and_weights(name, num_classes, pretrained, seed, options)
    return _build(named.find(name).model, arch, framework, tensors)


def numpy_weights(
    name: str,
    *,
    num_classes: int | None = None,
    pretrained: str | os.PathLike[str] | None = None,
    seed: int = 0,
    **options: Any,
) -> Arrays:
    """Return the parameters and running statistics that create_model gives a model; loads no framework.

    Args:
        name, num_classes, pretrained, seed, options: as for create_model.

    Returns:
        float32, by canonical name and in canonical layout, which are PyTorch's.
    """
    return _arch_and_weights(name, num_classes, pretrained, seed, options)[1]


def load(
    weights: str | os.PathLike[str],
    framework: str | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    raw: bool = False,
    device: str = "auto",
) -> Loaded:
    """Load a trained model with its class names and recipe.

    Args:
        weights: folder of a checkpoint, such as runs/tsm_demo/checkpoints/best, of a run in any framework; or an .onnx
            file of tools/export.py, which ONNX Runtime computes.
        framework: torch, paddle or mindspore, default torch; none for an .onnx file. A process can use one of them.
        overrides: values that change the recipe in the checkpoint, by dotted key: what a message calls -o KEY=VALUE.
        raw: take the weights of the last update, also where the checkpoint has their moving average (train.ema), which
            is the model otherwise.
        device: that `predict` uses, as for train.py.

    Raises:
        UserError: there is no checkpoint, what computes it is not installed, or a value of `overrides` is wrong.
    """
    path, changes = arguments.check_weights(weights, framework), arguments.override_pairs(overrides)
    record, cfg, resolved = trained.read_checkpoint(path, framework, device, changes)
    name, data = resolved["model.name"].value, resolved["data.name"].value
    spec = load_spec(name)
    predictor = find_predictor(spec.TASK, data)
    fields = predictor.fields(cfg.data)
    arch = trained.resolve(spec, cfg.model, fields, len(record["classes"]))
    load_trained = cache(partial(trained.load, path, record, cfg, name, fields, raw))
    if onnx_file.is_onnx(path):
        model = cast(Any, load_trained().trainer).session.runtime
    else:
        tensors = trained.read_tensors(path, spec, raw)
        _tell_of_averages(path, raw)
        require_match(tensors, spec.shapes(arch), path)
        model = _build(name, arch, cfg.framework, tensors)
    return Loaded(
        model=model,
        class_names=() if spec.SHARDED_PARAMETERS else record["classes"],
        arch=arch,
        recipe={key: entry.value for key, entry in resolved.items()},
        mean=fields[0].mean,
        std=fields[0].std,
        _predictor=predictor,
        _load=load_trained,
    )


def _tell_of_averages(path: str, raw: bool = False) -> None:
    """Say in one line which of two kinds of weights a checkpoint gives."""
    if has_averages(path) and not raw:
        print(averages_note(path), file=sys.stderr)


def _arch_and_weights(
    name: str, num_classes: int | None, pretrained: str | os.PathLike[str] | None, seed: int, options: dict[str, Any]
) -> tuple[Any, Arrays]:
    """Return the architecture of a model and its tensors."""
    found = named.find(name)
    spec = load_spec(found.model)
    arguments.check(name, spec, num_classes, pretrained, seed)
    options = arguments.convert_options(found, options)
    if pretrained is None:
        arch = named.build_arch(found, options, num_classes or found.num_classes)
        return arch, _initialize(spec, arch, seed)
    if pretrained == "imagenet":
        return _from_imagenet(found, spec, num_classes, seed, options)
    pretrained = os.fspath(pretrained)
    _tell_of_averages(pretrained)
    record = recorded.read(pretrained)
    if record.model not in (None, found.model):
        raise UserError(f"{pretrained} is a {record.model}, but {name} is a {found.model}; choose another name or file")
    tensors = {
        key: array for key, array in files.read(model_file(pretrained))[0].items() if key not in spec.SHARDED_PARAMETERS
    }
    outputs = _outputs(spec, tensors)
    recorded_options = {key: value for key, value in record.arch.items() if key != "num_classes"}
    arch = named.build_arch(
        found, {**recorded_options, **found.options, **options}, num_classes or outputs or found.num_classes
    )
    is_fresh = spec.is_head if num_classes not in (None, outputs) else _never
    return arch, merge(_initialize(spec, arch, seed), tensors, is_fresh, pretrained)


def _from_imagenet(
    found: named.NamedModel, spec: Spec, num_classes: int | None, seed: int, options: dict[str, Any]
) -> tuple[Any, Arrays]:
    """Return the architecture of a model and its tensors: published ones of its ResNet, and initial values."""
    arch = named.build_arch(found, options, num_classes or found.num_classes)
    if not hasattr(arch, "pretrained"):
        raise UserError(f"pretrained: there are no ImageNet weights for {found.model}; give a file or a checkpoint")
    path, _ = imagenet.find_weights(getattr(arch, "depth", None), variant=imagenet.variant_of(arch))
    fresh = _initialize(spec, arch, seed)
    tensors = imagenet.add_backbone_prefix(files.read(path)[0], fresh)
    keeps_classifier = found.num_classes == arch.num_classes == len(tensors["fc.bias"])  # made for ImageNet itself

    def is_fresh(name: str) -> bool:
        return spec.not_pretrained(name) and not (keeps_classifier and spec.is_head(name))

    return arch, merge(fresh, tensors, is_fresh, path)


def _initialize(spec: Spec, arch: Any, seed: int) -> Arrays:
    return {
        name: initializers.initialize(spec.initializer(arch, name, shape), seed, name, shape)
        for name, shape in named.model_shapes(spec, arch).items()
    }


def _outputs(spec: Spec, tensors: Arrays) -> int | None:
    """Return the number of outputs of a classifier that is part of the model."""
    heads = [name for name in tensors if spec.is_head(name)]
    return len(tensors[heads[0]]) if heads else None


def _never(_: str) -> bool:
    return False


def _build(model: str, arch: Any, framework: str, tensors: Arrays) -> Any:
    module = load_model_class(model, framework)(arch)
    load_backend(framework).load_arrays(module, tensors)
    return module
