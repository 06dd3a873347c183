"""The common trainer interface in JAX, for models of flax.nnx."""

from zoo.trainer.jax.model import create, to_tensors
from zoo.trainer.jax.trainer import Trainer, record_forward
from zoo.trainer.jax.world import start

__all__ = ["Trainer", "create", "record_forward", "start", "to_tensors"]
