"""Models: a folder zoo/models/<name>/ each, with a framework-neutral spec.py and one implementation per framework.

spec.py has Arch and shapes, and those names of the protocol `Spec` whose default in zoo/models/defaults.py does not
suit. torch.py, paddle.py, mindspore.py and jax.py each define a class
`Model(arch)`, a module of that framework. The attribute names of its submodules are the canonical tensor names, so they
are the same in these files and in all checkpoints. Another file, onnx.py, is optional: its build(graph, arch, x)
adds the same layers, for inference, to the graph of an exported model (zoo/models/onnx_graph.py). docs/extending.md
describes how to add a model.

Other packages add models by entry points of the group `zoo.models` (zoo/data/plugins.py).
"""

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Protocol, cast

from zoo.data import extras, plugins
from zoo.data.batch import DropoutMask, Field
from zoo.data.errors import UserError
from zoo.frameworks import FRAMEWORKS, import_for
from zoo.models import defaults
from zoo.models.initializers import Initializer

FOLDER = Path(__file__).parent


class Spec(Protocol):
    """Framework-neutral specification of a model: a module zoo/models/<name>/spec.py, completed by the defaults.

    `arch` is always an instance of the module's own Arch. Tensors go by their canonical names; a parameter is trained,
    a running statistic is not.

    Attributes:
        Arch: frozen dataclass of the architecture. Its fields are the keys of a recipe's `model:` section;
            __post_init__ raises a ValueError that begins with the name of the offending key.
        SHARDED_PARAMETERS: parameters whose rows are split over the ranks. They belong to the objective and are not
            part of the Model.
        FP32_MODULES: names of modules that compute in fp32 in every precision mode.
        VARIANTS: keys of Arch by name, for zoo.create_model: {"resnet50": {"depth": 50}}; none: the model's own name.
        NUM_CLASSES: of the data set that the variants were published for; None without one.
        INPUT_SHAPE: of a sample in training, channels last, for the variants.
    """

    TASK: str
    Arch: type[Any]
    SHARDED_PARAMETERS: tuple[str, ...]
    FP32_MODULES: tuple[str, ...]
    VARIANTS: Mapping[str, Mapping[str, Any]]
    NUM_CLASSES: int | None
    INPUT_SHAPE: tuple[int, ...]

    def shapes(self, arch: Any) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter and running statistic by canonical name, for a resolved arch."""

    def resolve(self, arch: Any, fields: Sequence[Field], num_classes: int) -> Any:
        """Return the arch with every field that is None set to the value that the data implies.

        Args:
            fields: the fields of a batch; the first one is the model's input.

        Raises:
            ValueError: the architecture contradicts the data; the message begins with the name of the key.
        """

    def min_batch_size(self, arch: Any) -> int:
        """Return how many samples the batch statistics of one update need at least."""

    def flops(self, arch: Any, shape: Sequence[int]) -> int:
        """Return the floating-point operations of a forward pass of one training sample, 2 per multiply-add.

        Those of convolutions and matrix products, with the auxiliary heads of training and with the classifier, also
        where it belongs to the objective (zoo.models.flops).

        Args:
            shape: of the model's input in a sample, as zoo.data.batch.Field has it: channels last.
        """

    def checkpointed_modules(self, arch: Any) -> tuple[str, ...]:
        """Return the names of the modules whose activations train.checkpoint_activations does not keep.

        The modules have the same names in every framework; none of them contains another.
        """

    def dropout_masks(self, arch: Any) -> tuple[DropoutMask, ...]:
        """Return the dropout masks that the model takes in training, in the order of its arguments."""

    def initializer(self, arch: Any, name: str, shape: Sequence[int]) -> Initializer:
        """Return the distribution of the initial values of a parameter or running statistic."""

    def lr_and_decay_scale(self, arch: Any, name: str) -> tuple[float, float]:
        """Return (learning-rate factor, weight-decay factor) of a parameter.

        They multiply the learning rate and the weight decay of the recipe. A learning-rate factor of 0 freezes the
        parameter.
        """

    def is_head(self, name: str) -> bool:
        """Return whether the shape of a tensor depends on the number of classes; fine-tuning may draw it anew."""

    def not_pretrained(self, name: str) -> bool:
        """Return whether published pretrained weights lack a tensor, so that it keeps its initial values."""


SPEC_NAMES = tuple(name for name in (*Spec.__annotations__, *vars(Spec)) if not name.startswith("_"))


OWN = {path.parent.name: f"{__name__}.{path.parent.name}" for path in sorted(FOLDER.glob("*/spec.py"))}


def list_models() -> list[str]:
    return plugins.names(__name__, OWN)


def folder(model: str) -> str:
    """Return the folder of a model's files, for messages: zoo/models/resnet."""
    return _package(model).replace(".", "/")


@cache
def load_spec(model: str) -> Spec:
    """Import and return the spec of a model, with the defaults for what it leaves out."""
    package = _package(model)
    with _importing(model):
        names = {**vars(defaults), **vars(importlib.import_module(f"{package}.spec"))}
    names.setdefault("not_pretrained", names["is_head"])
    missing = [name for name in SPEC_NAMES if name not in names]
    if not missing and not hasattr(names["Arch"], "num_classes"):
        missing = ["the field num_classes of Arch, with a default"]
    if missing:
        raise UserError(
            f"{folder(model)}/spec.py lacks {', '.join(missing)}; define the names of zoo.models.Spec, see "
            "docs/extending.md"
        )
    names["shapes"] = _importing(model)(names["shapes"])  # may be those of the framework's own module
    return cast(Spec, SimpleNamespace(**names))


def _package(model: str) -> str:
    return plugins.locate("model", __name__, OWN, model)


def _importing(model: str) -> Any:
    return plugins.importing(f"the model {model}", _package(model))


def resolve_arch(spec: Spec, arch: Any, fields: Sequence[Field], num_classes: int) -> Any:
    """Complete an architecture with what the data implies: the number of classes or frames, the image size.

    Args:
        fields: the fields of a batch of the data set; the first one is the model's input.
    """
    if arch.num_classes is not None and arch.num_classes < num_classes:
        raise UserError(
            f"model.num_classes: the model has {arch.num_classes} outputs, but the data has {num_classes} classes; "
            "leave it out to follow the data"
        )
    try:
        return spec.resolve(arch, fields, num_classes)
    except ValueError as error:
        raise UserError(f"model.{error}") from None


def load_model_class(model: str, framework: str) -> type[Any]:
    """Return the class Model(arch) of a model; imports the framework."""
    available = [name for name in FRAMEWORKS if has_file(model, name)]
    with _importing(model):
        module = import_for(framework, f"{_package(model)}.{framework}", available, f"the model {model}")
    if not hasattr(module, "Model"):
        raise UserError(f"{folder(model)}/{framework}.py has no class Model")
    return module.Model


def require_features(model: str, framework: str, use: str) -> None:
    """Raise UserError if a model has no method forward_features. use: what needs it, which begins the message."""
    if not hasattr(load_model_class(model, framework), "forward_features"):
        raise UserError(
            f"{use}: needs the maps in front of the pooling, and Model in {folder(model)}/{framework}.py has no "
            "forward_features(input), which returns them; see docs/extending.md"
        )


def has_file(model: str, name: str) -> bool:
    """Return whether the package of a model has a file, such as torch for torch.py."""
    return importlib.util.find_spec(f"{_package(model)}.{name}") is not None


def require_graph(model: str) -> None:
    """Check that a model can be exported, without importing onnx, which must come after MindSpore."""
    if not has_file(model, "onnx"):
        raise UserError(
            f"the model {model} cannot be exported: there is no {folder(model)}/onnx.py, which would describe its "
            "graph; docs/extending.md describes how to write it"
        )
    extras.require("onnx")


def load_graph(model: str) -> ModuleType:
    """Return the onnx.py of a model; imports onnx.

    Its build(graph, arch, input) adds the model to a zoo.models.onnx_graph.Graph, and returns the output. If the spec
    has state_shapes, build_frame(graph, arch, frame, state) adds the next frame of a stream, and returns the output
    and the next state.
    """
    require_graph(model)
    return importlib.import_module(f"{_package(model)}.onnx")
