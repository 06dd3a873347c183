"""The tensors that a new run starts from: of weights, of a pretrained backbone, or drawn from the seed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.config.schema import Config
from zoo.data.convert import plain
from zoo.data.errors import Option, UserError
from zoo.models import Spec, initializers, load_spec
from zoo.trainer.protocol import Param
from zoo.weights import files, recorded
from zoo.weights.match import merge
from zoo.weights.recorded import has_averages, model_file

Print = Callable[[str], None]
Tensors = dict[str, np.ndarray]
# Options of converted weights that a run may change, with a warning.
CHANGEABLE = ("padding", "bn_eps", "dilate", "shift_place", "temporal_pool")
WITHOUT_OPTION = {"padding": "symmetric", "bn_eps": 1e-5}  # what models compute that lack the option


def initial(
    cfg: Config, spec: Spec, arch: Any, params: Sequence[Param], classes: Sequence[str], print_line: Print
) -> tuple[dict[str, np.ndarray], str]:
    """Return the tensors that a new run starts from.

    Args:
        cfg: `weights`, `fresh_head`, `seed` and the model's `pretrained` select them.
        params: the trainer's parameters and running statistics; of a sharded one, only its rows are returned.

    Returns:
        Every parameter and running statistic by canonical name, and the origin of the weights, in words.
    """
    initialized = {
        param.name: initializers.initialize(
            spec.initializer(arch, param.name, param.shape), cfg.seed, param.name, param.shape, param.rows
        )
        for param in params
    }
    if cfg.weights:
        path = model_file(cfg.weights)
        if has_averages(cfg.weights):
            print_line(averages_note(cfg.weights))
        sharded = {param.name: (param.shape[0], *param.rows) for param in params if param.rows}
        tensors, metadata = files.read(path, sharded)
        record = recorded.read(path)
        _check_arch(recorded.entry(path, metadata, "arch", dict) or _shown_by_tensors(record), cfg.model, path)
        _check_model(tensors, initialized, spec, record, path)
        _warn_of_other_arch(record.arch, cfg.model, path, print_line)
        recorded.warn_of_other_preprocessing(record.data, cfg, path, print_line)
        if "classes" in metadata and not cfg.fresh_head:
            recorded.warn_of_other_classes(
                [*map(str, recorded.entry(path, metadata, "classes", list))], classes, path, print_line
            )
        merged = _merge(initialized, tensors, lambda name: cfg.fresh_head and spec.is_head(name), path, print_line)
        return merged, f"{path}, sha256 {files.sha256(path)}"
    if getattr(cfg.model, "pretrained", None) == "imagenet":
        depth = getattr(cfg.model, "depth", None)
        from zoo.weights import imagenet  # which most runs do without

        try:
            path, origin = imagenet.find_weights(depth, cfg.weights_dir, imagenet.variant_of(cfg.model))
        except UserError as error:
            raise UserError(error, "; or start from random weights with ", Option("model.pretrained", None)) from None
        tensors = imagenet.add_backbone_prefix(files.read(path)[0], initialized)
        merged = _merge(initialized, tensors, spec.not_pretrained, path, print_line)
        return merged, f"{origin}, sha256 {files.sha256(path)}"
    return initialized, f"initialized from seed {cfg.seed}"


def averages_note(path: str) -> str:
    """Return a line for those who load the weights of a checkpoint that has moving averages."""
    return f"weights: the moving average (EMA) in {path}; those of its last update: {model_file(path, raw=True)}"


def _shown_by_tensors(record: recorded.Recorded) -> dict[str, Any]:
    """Return the options of a checkpoint's model that decide its tensors."""
    from zoo.weights.architectures import NOT_IN_TENSORS, OPTIONS

    keys = set(OPTIONS.get(record.model or "", ())) - set(NOT_IN_TENSORS.get(record.model or "", ()))
    return {key: value for key, value in record.arch.items() if key in keys}


def _check_model(
    tensors: Mapping[str, np.ndarray],
    initialized: Mapping[str, np.ndarray],
    spec: Spec,
    record: recorded.Recorded,
    path: str,
) -> None:
    """Refuse the tensors of another model in one line; single differences are listed later."""
    from zoo.weights.architectures import default_model
    from zoo.weights.names import COUNTER

    foreign = [name for name in tensors if name not in initialized]
    if not record.model and (len(foreign) == len(tensors) or any(name.endswith(COUNTER) for name in foreign)):
        raise UserError(
            f"{path} has the names of another project, such as {foreign[0]}; convert it first: "
            f"zoo convert {path} --out NAME.safetensors"
        )
    found = record.model or default_model("canonical", tensors)
    names = [name for name in tensors if not spec.is_head(name)]
    equal = sum(name in initialized and tensors[name].shape == initialized[name].shape for name in names)
    if 2 * equal < len(names) or load_spec(found).TASK != spec.TASK:
        raise UserError(
            f"{path} holds a model of the kind {found} that is not this recipe's: {equal} of its {len(names)} tensors "
            "fit; give its own recipe with -c, or other weights"
        )


def _check_arch(options: Mapping[str, Any], arch: Any, path: str) -> None:
    """Refuse weights for an option which a run cannot change, such as the depth or a shift's direction."""
    for key, value in options.items():
        current = plain(getattr(arch, key, value))
        if key != "num_classes" and key not in CHANGEABLE and current != value:
            option = Option(f"model.{key}", value)
            raise UserError(f"{path} is for {option.name}={value}, the recipe has {current}; give ", option)


def _warn_of_other_arch(options: Mapping[str, Any], arch: Any, path: str, print_line: Print) -> None:
    """Warn when the model does not compute exactly what that of the weights does."""
    for key, value in options.items():
        current = plain(getattr(arch, key, WITHOUT_OPTION.get(key, value)))
        if key != "num_classes" and value is not None and current != value:
            option = f"model.{key}={str(value).replace(' ', '')}"
            remedy = f"give -o {option}" if hasattr(arch, key) else "there is no such option for this model"
            print_line(f"warning: {path} is for {option}, the recipe has {current}; {remedy}")


def _merge(
    initialized: dict[str, np.ndarray],
    tensors: Mapping[str, np.ndarray],
    is_fresh: Callable[[str], bool],
    path: str,
    print_line: Print,
) -> dict[str, np.ndarray]:
    question, option = "\n  no classifier, or another number of classes? ", Option("fresh_head", True)
    merged = merge(initialized, tensors, is_fresh, path, question, option, " starts with a new classifier")
    fresh = sum(map(is_fresh, initialized))
    print_line(f"weights: {len(initialized) - fresh} tensors from {path}, {fresh} newly initialized")
    return merged
