"""The peak memory of a forward and backward pass in PyTorch, found on tensors that have shapes and no content."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from zoo.data.batch import DropoutMask, Field
from zoo.models import load_model_class
from zoo.tasks import Task, face


class Passes(NamedTuple):
    """What is simulated.

    Attributes:
        model: name of the model.
        arch: its complete architecture.
        dropout_masks: its further inputs in training.
        fields: of a sample; the model's input, and the label.
        batch: number of samples.
        is_half: whether convolutions and products compute in 16 bits.
        checkpointed: names of modules whose activations the backward pass computes again.
        task: of the model.
        settings: of the task.
    """

    model: str
    arch: Any
    dropout_masks: Sequence[DropoutMask]
    fields: Sequence[Field]
    batch: int
    is_half: bool
    checkpointed: Sequence[str]
    task: Task
    settings: Any


def peak(passes: Passes) -> int | None:
    """Simulate a forward and backward pass.

    Returns:
        The largest number of bytes that live at once beside the weights: activations, temporary tensors and the
        gradients so far. None if PyTorch is not installed.
    """
    try:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
    except ModuleNotFoundError:
        return None
    from zoo.bench.estimate.live import Live
    from zoo.trainer.objectives import OBJECTIVES
    from zoo.trainer.torch import ops
    from zoo.trainer.torch.checkpointing import checkpoint_modules

    Model = load_model_class(passes.model, "torch")
    with FakeTensorMode():
        module = Model(passes.arch).train()
        checkpoint_modules(module, passes.checkpointed)
        inputs = [torch.empty(passes.batch, *shape) for shape in _input_shapes(passes)]
        labels = _labels(passes)
        with Live([*module.parameters(), *module.buffers()]) as live:
            images = inputs[0].clone()  # normalized pixels
            with torch.autocast("cpu", torch.bfloat16, enabled=passes.is_half):
                output = module(images, *inputs[1:])
                if passes.task is face:
                    loss = output.float().sum()
                else:
                    settings = passes.settings
                    objective = OBJECTIVES[settings.task](ops, settings, None, torch.float32, torch.float64)
                    loss = objective.total(output, labels)
            loss.backward()
    return live.peak


def _input_shapes(passes: Passes) -> list[tuple[int, ...]]:
    """Return the shapes of a sample's inputs, images with their channels first."""
    field = passes.fields[0]
    shape = field.shape if field.mean is None else (*field.shape[:-3], field.shape[-1], *field.shape[-3:-1])
    return [shape, *(mask.shape for mask in passes.dropout_masks)]


def _labels(passes: Passes) -> Any:
    import torch

    shape = {field.name: field.shape for field in passes.fields}["label"]
    return torch.zeros(passes.batch, *shape, dtype=torch.uint8 if shape else torch.int64)
