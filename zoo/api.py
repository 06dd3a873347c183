"""The Python API: models by name in any framework, with initial, published or trained weights."""

import fnmatch
import os
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import numpy as np

from zoo.data.convert import convert
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import images
from zoo.frameworks import FRAMEWORKS
from zoo.models import Spec, initializers, load_model_class, load_spec, named, require_features
from zoo.models.named import NamedModel
from zoo.notebook import Result as Result
from zoo.notebook import Run as Run
from zoo.notebook import argument_names, override_pairs
from zoo.predict.batches import Options, predict
from zoo.predict.classify import Classification as Classification
from zoo.predict.classify import Labels as Labels
from zoo.predict.faces import Face as Face
from zoo.predict.predictors import Predictor
from zoo.predict.results import Source, TrainedModel, count_frames, walk_inputs
from zoo.predict.segment import Segmentation as Segmentation
from zoo.predict.urls import is_url, shown_name
from zoo.run import trained
from zoo.run.hub import resolve
from zoo.run.weights import averages_note
from zoo.stream import Batches as Batches
from zoo.stream import batches as batches
from zoo.trainer import load_backend
from zoo.weights import files, imagenet, recorded, registry
from zoo.weights.match import merge
from zoo.weights.recorded import has_averages, model_file

Arrays = dict[str, np.ndarray]
Weights = str | os.PathLike[str] | bool | None
Input = Any  # str | os.PathLike[str] | PIL.Image.Image | np.ndarray


@dataclass(frozen=True)
class Loaded:
    """A trained model.

    Attributes:
        model: nn.Module, nn.Layer, nn.Cell or nnx.Module, which takes normalized pixels, channels first, in JAX last;
            of an exported model the onnxruntime.InferenceSession.
        class_names: of its outputs, in order; empty for faces.
        mean, std: of the normalization, of pixels from 0 to 1 in RGB: (pixel / 255 - mean) / std.
        _predictor: how the model is applied to files and arrays.
        _load: returns the model as zoo predict builds it, which is built for the first prediction.
    """

    model: Any
    class_names: tuple[str, ...]
    arch: Any
    recipe: dict[str, Any]
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    _predictor: Predictor = field(repr=False)
    _load: Callable[[], TrainedModel] = field(repr=False)

    @argument_names()
    def predict(self, inputs: Input | Sequence[Input], *, batch: int | str = "auto", workers: int = 0) -> Any:
        """Predict files, images or arrays, with the numbers of zoo predict.

        Args:
            inputs: one, or a list or tuple of them: paths or http addresses of images or videos, folders of numbered
                frames; folders of such, which stand for all files in them by name; images of Pillow; arrays uint8 RGB,
                (H, W, 3) for an image, (n, H, W, 3) for the frames of a video. They are scaled and cropped as in an
                evaluation.
            batch: samples that are computed at once; auto: 64, at most 2 million pixels. Results differ by rounding.
            workers: processes that read files; 0: two threads.

        Returns:
            A Classification, Labels, a Segmentation or a Face, or a list of them for a list or a folder.

        Raises:
            UserError: a file cannot be read, or an array is none of these.
        """
        return self._results(inputs, Options.parse(batch, workers))

    @argument_names()
    def features(self, inputs: Input | Sequence[Input], *, batch: int | str = "auto", workers: int = 0) -> np.ndarray:
        """Compute the pooled features of files, images or arrays: what the classifier gets.

        Of an image it is the mean of the maps of the model's `forward_features` over all places, of a clip over all
        frames, too. Of a face it is the embedding, of length 1.

        Args:
            inputs, batch, workers: as for `predict`; no videos of scenes.

        Returns:
            (d,), or (N, d) for a list or a folder, float32.

        Raises:
            UserError: as `predict`; an exported model gives features of faces alone.
        """
        facts = self._load().metadata
        if facts["framework"] in FRAMEWORKS and facts["task"] != "face":
            require_features(facts["model"], facts["framework"], "features")
        if facts["task"] == "face":
            found = self.predict(inputs, batch=batch, workers=workers)
            return np.asarray([each.embedding for each in found] if isinstance(found, list) else found.embedding, "f4")
        return np.asarray(self._results(inputs, Options.parse(batch, workers), finish=_pool, features=True))

    def _results(self, inputs: Any, options: Options, **keywords: Any) -> Any:
        """Return the result of an input, or those of several. keywords: of zoo.predict.batches.predict."""
        several = isinstance(inputs, list | tuple)
        checked = [self._check(each) for each in (inputs if several else [inputs])]
        sources: list[Any] = [source for each in checked for source in (each if isinstance(each, list) else [each])]
        found = list(predict(self._predictor, self._load(), sources, options, **keywords))
        for index, result in enumerate(found):
            if isinstance(result, BadSample):
                name = shown_name(sources[index]) if isinstance(sources[index], str) else f"array {index}"
                raise UserError(f"{name}: {result}")
        return found if several or isinstance(checked[0], list) else found[0]

    def _check(self, source: Any) -> Source | list[Source]:
        """Return a path as text, an array, or the paths in a folder. Raises UserError for anything else."""
        if isinstance(source, str | os.PathLike):
            path = os.fsdecode(source)
            if not path:
                raise UserError("predict: expected a path, got an empty one")
            template = self._predictor.frame_template(self._load().cfg.data)
            if is_url(path) or not os.path.isdir(path) or count_frames(path, template):
                return path
            if not (inside := list(walk_inputs(path, self._predictor.extensions, template))):
                raise UserError(f"{path}: nothing in this folder ends in {', '.join(self._predictor.extensions)}")
            return [*inside]
        if hasattr(source, "getexif"):  # an image of Pillow; faces and scenes are read as they are stored
            try:
                facts = self._load()
                upright = facts.metadata["task"] in ("classify", "multilabel")
                source = images.from_pillow(source, upright, getattr(facts.cfg.data, "levels", None))
            except BadSample as error:
                raise UserError(f"predict: an image of Pillow {error}") from None
        names = {3: "(H, W, 3)", 4: "(n, H, W, 3)"}
        wanted = " or ".join(names[count] for count in self._predictor.dimensions)
        if not isinstance(source, np.ndarray):
            raise UserError(
                f"predict: expected paths, images of Pillow or arrays uint8 {wanted}, got {type(source).__name__}"
            )
        dimensions, is_rgb = source.ndim, source.shape[-1:] == (3,)
        if source.dtype != np.uint8 or dimensions not in self._predictor.dimensions or not is_rgb or not source.size:
            raise UserError(
                f"predict: expected an array uint8 {wanted}, RGB, got {source.dtype} {source.shape}"
                f"{images.explain_array(source)}"
            )
        return np.ascontiguousarray(source)


def _pool(_index: int, _sample: Any, maps: np.ndarray | None) -> np.ndarray:
    """Return the mean of feature maps (n, C, h, w) over all but the channels."""
    if maps is None:
        raise BadSample("is a video of scenes, which has no features; give frames")
    return maps.astype(np.float64).mean((0, 2, 3)).astype(np.float32)


def list_models(pattern: str = "*", pretrained: bool = False) -> list[str]:
    """Return the names of all models, or of published weights, that match a pattern of the shell, such as `tsm_*`."""
    weights = [name for name, entry in registry.table().items() if entry.recipe] if pretrained else []
    return fnmatch.filter(weights if pretrained else named.names(), pattern)


def create_model(
    name: str,
    framework: str = "torch",
    *,
    num_classes: int | None = None,
    pretrained: Weights = None,
    seed: int = 0,
    **options: Any,
) -> Any:
    """Build a model with weights.

    Args:
        name: one of list_models(), or of published weights, such as resnet50.tv_in1k_v1.
        framework: torch, paddle, mindspore or jax. A process can use one of them.
        num_classes: outputs of the classifier, which a face model has not; default: those of the weights, or of the
            data set that the model was published for. Where the weights have another number, the classifier is
            initialized.
        pretrained: checkpoint folder of a run, of which the moving average (train.ema) counts if it has one; one of its
            files, such as model.safetensors; file of zoo convert; a name of published weights, which are
            downloaded, or True for those that `name` names; "imagenet", for the ResNet in the model; None: initial
            values.
        seed: of the initial values, which are equal in all frameworks.
        options: of the architecture, such as segments=16 or width=32; the keys of section `model` in docs/keys.md.

    Returns:
        nn.Module, nn.Layer, nn.Cell or nnx.Module, on the framework's default device and in its default mode. It takes
        normalized pixels, channels first, in JAX last, and a clip's frames before them.

    Raises:
        UserError: the name, an option or the weights are wrong, or the framework is not installed.
    """
    arch, tensors = _arch_and_weights(name, num_classes, pretrained, seed, options)
    return _build(named.find(name.partition(".")[0]).model, arch, framework, tensors)


def numpy_weights(
    name: str,
    *,
    num_classes: int | None = None,
    pretrained: Weights = None,
    seed: int = 0,
    **options: Any,
) -> Arrays:
    """Return the parameters and running statistics that create_model gives a model; loads no framework.

    Returns:
        float32, by canonical name and in canonical layout, which are PyTorch's.
    """
    return _arch_and_weights(name, num_classes, pretrained, seed, options)[1]


@argument_names()
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
            file of zoo export, which ONNX Runtime computes; or a name of published weights.
        framework: of FRAMEWORKS, default torch; none for an .onnx file. A process can use one of them.
        overrides: values that change the recipe in the checkpoint, by dotted key.
        raw: take the weights of the last update, also where the checkpoint has their moving average (train.ema), which
            is the model otherwise.
        device: that `predict` uses, as for train.py.

    Raises:
        UserError: there is no checkpoint, what computes it is not installed, or a value of `overrides` is wrong.
    """
    path, changes = os.fspath(weights), override_pairs(overrides)
    found = trained.read(path, framework, device, changes, raw)
    load_trained = cache(found.load)
    if files.is_onnx(path):
        model = cast(Any, load_trained().trainer).session.runtime
    else:
        if found.is_averaged:
            print(averages_note(found.path), file=sys.stderr)
        model = _build(found.model, found.arch, found.cfg.framework, found.tensors)
    return Loaded(
        model=model,
        class_names=found.class_names,
        arch=found.arch,
        recipe={key: entry.value for key, entry in found.resolved.items()},
        mean=found.fields[0].mean,
        std=found.fields[0].std,
        _predictor=found.predictor,
        _load=load_trained,
    )


def _arch_and_weights(
    name: str, num_classes: int | None, pretrained: Weights, seed: int, options: dict[str, Any]
) -> tuple[Any, Arrays]:
    if "." in name or pretrained is True:
        weights = registry.find(name).name
        name, pretrained = name.partition(".")[0], weights if pretrained is True else pretrained
    found = named.find(name)
    spec = load_spec(found.model)
    if num_classes is not None and spec.SHARDED_PARAMETERS:
        raise UserError(f"num_classes: {name} gives embeddings; the class matrix belongs to its loss. Leave it out")
    num_classes, seed = _converted("num_classes", num_classes, int | None), _converted("seed", seed, int)
    options = _convert_options(found, options)
    wanted = found.num_classes if num_classes is None else num_classes
    if not pretrained:
        arch = named.build_arch(found, options, wanted)
        return arch, _initialize(spec, arch, seed)
    if pretrained == "imagenet":
        return _from_imagenet(found, spec, wanted, seed, options)
    pretrained = recorded.resolve_pointer(resolve(os.fspath(pretrained)))
    if has_averages(pretrained):
        print(averages_note(pretrained), file=sys.stderr)
    record = recorded.read(pretrained)
    if record.model not in (None, found.model):
        raise UserError(f"{pretrained} is a {record.model}, but {name} is a {found.model}; choose another name or file")
    tensors = {
        key: array for key, array in files.read(model_file(pretrained))[0].items() if key not in spec.SHARDED_PARAMETERS
    }
    outputs = _outputs(spec, tensors)
    of_weights = {key: value for key, value in record.arch.items() if key != "num_classes" and hasattr(spec.Arch, key)}
    arch = named.build_arch(
        found, {**of_weights, **found.options, **options}, outputs if outputs and num_classes is None else wanted
    )
    is_fresh = spec.is_head if num_classes not in (None, outputs) else lambda _: False
    hint = "" if outputs else "\n  no classifier: num_classes=N adds one of N classes"
    return arch, merge(_initialize(spec, arch, seed), tensors, is_fresh, pretrained, hint)


def _from_imagenet(
    found: NamedModel, spec: Spec, num_classes: int | None, seed: int, options: dict[str, Any]
) -> tuple[Any, Arrays]:
    """Return the architecture of a model and its tensors: published ones of its ResNet, and initial values."""
    arch = named.build_arch(found, options, num_classes)
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


def _build(model: str, arch: Any, framework: str, tensors: Arrays) -> Any:
    return load_backend(framework).create(load_model_class(model, framework), arch, tensors)


def _convert_options(found: NamedModel, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of an architecture with the declared types.

    Raises:
        UserError: an option is unknown, part of the model's name, or has a value of another type.
    """
    hints = typing.get_type_hints(load_spec(found.model).Arch)
    converted = {}
    for key, value in options.items():
        if key not in hints:
            raise UserError(f"{key}: {found.model} has no such option; there are: {', '.join(hints)}")
        if key in found.options and value != found.options[key]:
            names = ", ".join(named.variants(found.model))
            raise UserError(f"{key}: is part of the model's name; choose one of: {names}")
        converted[key] = _converted(key, value, hints[key])
    return converted


def _converted(name: str, value: Any, hint: Any) -> Any:
    """Return a value of the declared type. Raises UserError for one of another type or range."""
    try:
        return convert(value, hint)
    except ValueError as error:
        raise UserError(f"{name}: {error}") from None
