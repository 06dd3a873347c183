"""Names of complete models: tsm_r50 is the model tsm with depth 50, on clips of 8 frames of 224 x 224."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from zoo.data.batch import Field
from zoo.data.errors import UserError, known_names
from zoo.models import Spec, is_own, list_models, load_spec, resolve_arch
from zoo.models.arcface import spec as arcface
from zoo.models.resnet import spec as resnet


class NamedModel(NamedTuple):
    """A model by name.

    Attributes:
        model: name of its folder in zoo/models.
        options: of its Arch.
        num_classes: of the data set that it was published for; None without one.
        input_shape: of a sample in training, channels last.
    """

    model: str
    options: dict[str, Any]
    num_classes: int | None
    input_shape: tuple[int, ...]


NAMED_MODELS = {
    **{f"resnet{depth}": NamedModel("resnet", {"depth": depth}, 1000, (224, 224, 3)) for depth in resnet.BLOCKS},
    **{f"tsm_r{depth}": NamedModel("tsm", {"depth": depth}, 400, (8, 224, 224, 3)) for depth in resnet.BLOCKS},
    "tsm_mobilenet_v2": NamedModel("tsm_mobilenet_v2", {}, 400, (8, 224, 224, 3)),
    **{
        f"deeplabv3plus_r{depth}": NamedModel("deeplabv3plus", {"depth": depth}, 19, (512, 1024, 3))
        for depth in (18, 50, 101)
    },
    **{f"iresnet{depth}": NamedModel("arcface", {"depth": depth}, 1, (112, 112, 3)) for depth in arcface.BLOCKS},
}


def names() -> list[str]:
    """Return all names; a model of an installed package has that of a recipe's model.name."""
    return [*NAMED_MODELS, *(model for model in list_models() if not is_own(model))]


def find(name: str) -> NamedModel:
    """Return the model of a name.

    Raises:
        UserError: there is none.
    """
    if name not in names():
        raise UserError(f"there is no model {name!r}{known_names(name, names())}")
    return NAMED_MODELS.get(name) or NamedModel(name, {}, load_spec(name).Arch.num_classes, (224, 224, 3))


def build_arch(named: NamedModel, options: Mapping[str, Any], num_classes: int | None) -> Any:
    """Return the complete architecture of a model.

    Args:
        named: the model.
        options: of its Arch, which precede its own; of the declared types.
        num_classes: outputs of the classifier.

    Raises:
        UserError: the value of an option is impossible, or the number of classes is not known.
    """
    spec = load_spec(named.model)
    if num_classes is None:
        raise UserError(f"num_classes: {named.model} was published for no data set; give the number of classes")
    try:
        arch = spec.Arch(**{**named.options, **options, "num_classes": num_classes})
    except ValueError as error:
        raise UserError(str(error)) from None
    return resolve_arch(spec, arch, (_input(named, arch),), num_classes)


def model_shapes(spec: Spec, arch: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of the model itself, without those of its objective."""
    return {name: shape for name, shape in spec.shapes(arch).items() if name not in spec.SHARDED_PARAMETERS}


def _input(named: NamedModel, arch: Any) -> Field:
    """Return the model's input, whose size follows the options that name it: frames of a clip, side of a face."""
    shape = named.input_shape
    if len(shape) == 4:
        shape = (getattr(arch, "segments", None) or shape[0], *shape[1:])
    side = getattr(arch, "size", None)
    return Field("input", (side, side, 3) if side else shape, "uint8")
