"""Cases of a process of JAX with two devices (test_trainer.py), which also runs common ones."""

from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import make


def case_a_batch_is_divided_among_devices_and_the_state_is_not(backend):
    trainer = make(backend)
    batch = trainer.to_device(random_batch())
    assert {len(shard.data) * 2 for shard in batch["image"].addressable_shards} == {len(batch["image"])}
    for array in trainer.state.weights.values():
        assert {shard.data.shape for shard in array.addressable_shards} == {array.shape}


def case_a_batch_that_cannot_be_divided_is_on_each_device(backend):
    batch = {name: array[:3] for name, array in random_batch().items()}
    assert {len(shard.data) for shard in make(backend).to_device(batch)["image"].addressable_shards} == {3}
