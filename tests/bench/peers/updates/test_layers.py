"""The layers of the tasks' models, against the operations that the specs count."""

import math

import pytest

from zoo import data
from zoo.bench.peers.updates import layers, tasks
from zoo.models import load_spec, resolve_arch
from zoo.run import cli

pytest.importorskip("torch")


def flops(layer):
    """Operations of a forward pass of a batch."""
    if layer.kernel == (0, 0):
        return 2 * math.prod(layer.shape) * layer.outputs
    pixels = math.prod(
        (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        for size, padding, dilation, kernel, stride in zip(
            layer.shape[2:], layer.padding, layer.dilation, layer.kernel, layer.stride, strict=True
        )
    )
    return 2 * layer.shape[0] * pixels * layer.outputs * layer.shape[1] // layer.groups * math.prod(layer.kernel)


@pytest.mark.parametrize("name", tasks.TASKS)
def test_they_have_the_operations_of_the_model(name):
    task = tasks.TASKS[name]
    found = layers.of_task(task)
    request = cli.request(f"configs/{task.recipe}.yaml", task.overrides)
    spec, (train_set, _) = (
        load_spec(request.resolved["model.name"].value),
        data.find("synthetic").load(request.config.data),
    )
    arch = resolve_arch(spec, request.config.model, train_set.fields, len(train_set.classes))
    expected = spec.flops(arch, train_set.fields[0].shape) * request.config.train.batch
    assert sum(map(flops, found)) == expected
    assert [layer.needs_input_gradient for layer in found].count(False) == 1 and not found[0].needs_input_gradient
