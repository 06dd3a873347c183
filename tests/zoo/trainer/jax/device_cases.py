"""Cases of a process of JAX with two devices (test_trainer.py), which also runs common ones."""

import re
from unittest import mock

import jax
import numpy as np
from jax.sharding import Mesh

from tests.zoo.trainer import tiny_reference as tiny
from tests.zoo.trainer.jax.cases import lowered
from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import make
from zoo.trainer.jax.parallel import AXIS, DEVICES, OWN, REPLICATED
from zoo.trainer.jax.world import World


def case_a_batch_is_divided_among_devices_and_the_state_is_not(backend):
    trainer = make(backend)
    batch = trainer.to_device(random_batch())
    assert {len(shard.data) * 2 for shard in batch["image"].addressable_shards} == {len(batch["image"])}
    for array in trainer.state.weights.values():
        assert {shard.data.shape for shard in array.addressable_shards} == {array.shape}


def case_a_batch_that_cannot_be_divided_is_on_each_device(backend):
    batch = {name: array[:3] for name, array in random_batch().items()}
    assert {len(shard.data) for shard in make(backend).to_device(batch)["image"].addressable_shards} == {3}


def case_gradients_of_ranks_are_summed_while_others_are_computed(backend):
    """Within the compiled update, by the order in which XLA runs it. The two devices stand for the ranks."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 1), (AXIS, DEVICES))
    with mock.patch.object(backend, "WORLD", World(0, 2, mesh)):
        trainer = make(backend)

    def of_both(spec, tree):
        shapes = {OWN: lambda array: (2 * array.shape[0], *array.shape[1:]), REPLICATED: lambda array: array.shape}
        return jax.tree.map(lambda array: jax.ShapeDtypeStruct(shapes[spec](array), array.dtype), tree)

    trainer.state = jax.tree.map(
        of_both, trainer.state_specs, trainer.state, is_leaf=lambda each: isinstance(each, type(OWN))
    )
    text = lowered(trainer).compile().as_text()
    assert "is_scheduled=true" in text
    sums = re.findall(r"f32\[([\d,]*)\]\S* all-reduce\(", text)
    sizes = [int(np.prod([int(length) for length in shape.split(",") if length])) for shape in sums]
    assert sum(sizes) == 1 + sum(np.prod(shape) for name, shape in tiny.SHAPES.items() if ".running_" not in name)
    assert text.index(" all-reduce(") < text.rindex(" convolution(") < text.rindex(" all-reduce(")
