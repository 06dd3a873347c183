"""The common trainer interface in JAX, for models of flax.nnx."""

from zoo.trainer.jax.model import load_arrays, to_tensors
from zoo.trainer.jax.trainer import Trainer, record_forward
from zoo.trainer.jax.world import start

__all__ = ["Trainer", "load_arrays", "record_forward", "start", "to_tensors"]
