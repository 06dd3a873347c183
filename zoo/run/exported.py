"""Exported models (.onnx) in place of the weights of a framework: they can only predict, and all is in their graph."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from zoo import tasks
from zoo.config.loader import Entry
from zoo.config.schema import Config
from zoo.data.batch import Field
from zoo.data.convert import plain
from zoo.data.errors import Option, UserError
from zoo.models import load_spec
from zoo.trainer import load_onnx_backend
from zoo.trainer.plan import Mode, ParamGroup, Plan
from zoo.trainer.world import Launch, World
from zoo.weights import files, recorded
from zoo.weights.recorded import MODEL_TRAINING_KEYS

if TYPE_CHECKING:
    from zoo.weights.onnx_file import OnnxFile

ONNX = "onnx"  # of the back end, where that of a framework stands in records and messages
FIXED_BY_EXPORT = {  # key -> its flags
    "framework": (Option("--framework"),),
    "train.precision": (Option("--amp", True), Option("--exact", True)),
    "train.eval_precision": (),
    "train.ema": (),
}


def check_use(path: str, evaluates: bool, resume: str | None) -> None:
    """Raise UserError unless a run only evaluates an exported model."""
    if not evaluates:
        raise UserError(
            f"weights: {path} is an exported model, which can only predict: evaluate it with --eval-only, or train "
            "from the checkpoint that it was exported from"
        )
    if resume:
        raise UserError(
            Option("--resume"),
            f": evaluates the last checkpoint of {resume}, and ",
            Option("--weights", path),
            "; leave one out",
        )


def check_settings(path: str, resolved: Mapping[str, Entry]) -> None:
    """Raise UserError if the command line asks for what the export of a model has settled."""
    for key, flags in FIXED_BY_EXPORT.items():
        origin = resolved[key].origin
        if origin in (Option(key), *flags):
            raise UserError(
                origin,
                f": {path} is computed by ONNX Runtime, in the precision and with the weights that it was "
                "exported with; leave it out",
            )


def start(launch: Launch, device: str) -> World:
    """Return the device of ONNX Runtime. Raises UserError if it is missing."""
    return load_onnx_backend().start(launch, device)


def build(
    path: str, cfg: Config, model: str, arch: Any, fields: Sequence[Field], world: World
) -> tuple[Plan, Any, "OnnxFile"]:
    """Load an exported model, to predict.

    Args:
        fields: of a training sample of the data set; the model's input comes first.
        world: as `start` returns it.

    Returns:
        The plan, an OnnxModel, and the file.
    """
    from zoo.weights import onnx_file  # which most runs do without

    file = onnx_file.read(path)
    _check_graph(file, model, arch)
    plan = Plan(
        fields=tuple(fields),
        dropout_masks=(),
        param_group=lambda name: ParamGroup(0.0, 0.0),  # nothing is trained
        mode=Mode(file.metadata.precision, None, False, False),
        output=tasks.load_task(cfg.task.task).output(cfg.task),
        seed=cfg.seed,
        eval_mixed=True,  # in the precision of the export
    )
    return plan, load_onnx_backend().OnnxModel(file, arch, plan, world), file


def origin(path: str, cfg: Config, classes: Sequence[str], print_line: Callable[[str], None]) -> str:
    """Return the origin of the weights, in words; warn as for other weights."""
    record = recorded.read(path)
    recorded.warn_of_other_preprocessing(record.data, cfg, path, print_line)
    recorded.warn_of_other_classes(record.classes, classes, path, print_line)
    return f"{path}, sha256 {files.sha256(path)}"


def _check_graph(file: "OnnxFile", model: str, arch: Any) -> None:
    """Refuse a recipe for another model than that of the graph, in which every option is fixed."""
    metadata = file.metadata
    if metadata.model != model:
        raise UserError(f"{file.path} holds a {metadata.model}, this recipe has a {model}; leave out -c and model.name")
    skipped = (*MODEL_TRAINING_KEYS, *(("num_classes",) if load_spec(model).SHARDED_PARAMETERS else ()))
    for key, value in asdict(arch).items():
        fixed = metadata.arch.get(key, plain(value))
        if key not in skipped and plain(value) != fixed:
            raise UserError(
                f"{file.path} is for model.{key}={str(fixed)[:100]}, and these settings give {plain(value)}; give the "
                "settings that it was exported with, or export the checkpoint with others"
            )
