"""Names of complete models, VARIANTS of the specs: tsm_r50 is the model tsm with depth 50."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from zoo.data.batch import Field
from zoo.data.errors import UserError, known_names
from zoo.models import OWN, Spec, list_models, load_spec, resolve_arch


class NamedModel(NamedTuple):
    """A model by name, with keys of its Arch, and the number of classes that it was published for."""

    model: str
    options: Mapping[str, Any]
    num_classes: int | None


def names() -> list[str]:
    return [name for model in list_models() for name in variants(model)]


def variants(model: str) -> dict[str, NamedModel]:
    """Return the variants of a model by name; one without any has that of a recipe's model.name."""
    spec = load_spec(model)
    classes = spec.Arch.num_classes if spec.NUM_CLASSES is None else spec.NUM_CLASSES
    return {name: NamedModel(model, keys, classes) for name, keys in (spec.VARIANTS or {model: {}}).items()}


def find(name: str) -> NamedModel:
    """Return the model of a name; those of installed packages come last."""
    for model in sorted(list_models(), key=lambda model: model not in OWN):
        if name in (found := variants(model)):
            return found[name]
    raise UserError(f"there is no model {name!r}{known_names(name, names())}")


def build_arch(named: NamedModel, options: Mapping[str, Any], num_classes: int | None) -> Any:
    """Return the complete architecture of a model.

    Args:
        options: of its Arch, which precede its own; of the declared types.
    """
    spec = load_spec(named.model)
    if num_classes is None:
        raise UserError(f"num_classes: {named.model} was published for no data set; give the number of classes")
    try:
        arch = spec.Arch(**{**named.options, **options, "num_classes": num_classes})
    except ValueError as error:
        raise UserError(str(error)) from None
    return resolve_arch(spec, arch, (_input(spec, arch),), num_classes)


def model_shapes(spec: Spec, arch: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of the model itself, without those of its objective."""
    return {name: shape for name, shape in spec.shapes(arch).items() if name not in spec.SHARDED_PARAMETERS}


def _input(spec: Spec, arch: Any) -> Field:
    """Return the model's input, whose size follows the options that name it: frames of a clip, side of a face."""
    shape = spec.INPUT_SHAPE
    if len(shape) == 4:
        shape = (getattr(arch, "segments", None) or shape[0], *shape[1:])
    side = getattr(arch, "size", None)
    return Field("input", (side, side, 3) if side else shape, "uint8")
