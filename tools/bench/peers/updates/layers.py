"""The convolutions and matrix products of a model, as numbers that any framework can build them from."""

import math
from typing import Any, NamedTuple

from zoo import data
from zoo.bench.peers.updates.tasks import Task
from zoo.models import load_model_class, load_spec, resolve_arch
from zoo.run import cli


class Layer(NamedTuple):
    """A convolution, or with kernel (0, 0) a fully connected layer, and the shape of its input.

    Attributes:
        shape: (N, C, H, W) of the input, or (N, C).
        outputs: channels.
        kernel, stride, padding, dilation: in height and width; padding on both sides.
        groups: of channels.
        needs_input_gradient: whether the backward pass computes it: not for the first layer.
    """

    shape: tuple[int, ...]
    outputs: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    needs_input_gradient: bool = True


def of_task(task: Task) -> list[Layer]:
    """Return the layers of a task's model, and its class matrix, in order. Needs PyTorch, and computes nothing."""
    import torch

    request = cli.request(f"configs/{task.recipe}.yaml", task.overrides, framework="torch", device="cpu")
    name = request.resolved["model.name"].value
    train_set, _ = data.find("synthetic").load(request.config.data)
    spec, batch = load_spec(name), request.config.train.batch
    arch = resolve_arch(spec, request.config.model, train_set.fields, len(train_set.classes))
    *frames, height, width, channels = train_set.fields[0].shape
    with torch.device("meta"):
        model = load_model_class(name, "torch")(arch)
        images = torch.empty(batch, *frames, channels, height, width)
        found = _record(model, images)
    for parameter in spec.SHARDED_PARAMETERS:
        classes, features = spec.shapes(arch)[parameter]
        found.append(Layer((batch, features), classes, (0, 0)))
    return found


def _record(model: Any, images: Any) -> list[Layer]:
    from torch import nn

    found: list[Layer] = []

    def record(module: Any, inputs: Any, output: Any) -> None:
        shape = tuple(inputs[0].shape)
        if isinstance(module, nn.Linear):
            found.append(Layer((math.prod(shape[:-1]), shape[-1]), module.out_features, (0, 0)))
            return
        window = module.kernel_size, module.stride, module.padding, module.dilation
        found.append(Layer(shape, module.out_channels, *window, module.groups, bool(found)))

    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(record)
    model(images)
    return found
