"""Cases of JAX alone (test_trainer.py)."""

import re

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import make, update
from zoo.trainer.jax.layers import Fp64Conv


def case_updates_are_compiled_once(backend):
    """Whatever the learning rate, the number of the update and the loss scale are."""
    trainer = make(backend, backend.SIXTEEN_BIT_MODES[1])
    for step, lr in enumerate((0.1, 0.05, 0.0)):
        update(trainer, random_batch(seed=step), lr=lr, step=step)
    trainer.load_state_dict({"scaler/scale": np.float32(8)})
    update(trainer, random_batch(), lr=0.01, step=9)
    assert trainer._step._cache_size() == 1


def lowered(trainer) -> str:
    """Return an update as StableHLO."""
    names = {field.name for field in trainer.plan.fields}
    batch = {name: array for name, array in trainer.to_device(random_batch()).items() if name in names}
    rates = {scale: np.asarray(0.1 * scale, trainer.dtype) for scale in trainer.lr_scales}
    return trainer._step.lower(trainer.state, rates, np.float32(1), [batch], None).as_text()


def case_only_fp64_has_numbers_of_64_bits(backend):
    for mode, expected in ((backend.FP32_MODES[0], False), (backend.FP64_MODES[0], True)):
        text = lowered(make(backend, mode))
        assert bool(re.search(r"\bf64>|xf64|tensor<f64", text)) == expected


def case_updates_round_to_the_16_bits_of_their_mode(backend):
    for mode, dtype in zip(backend.SIXTEEN_BIT_MODES, ("bf16", "f16")):
        products = re.findall(r"stablehlo\.(?:convolution|dot_general).*", lowered(make(backend, mode)))
        assert len(products) > 3 and all(f"x{dtype}>" in product for product in products)


def case_products_with_patches_are_convolutions(backend):
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    for options in (
        dict(padding=1),
        dict(strides=2, padding="SAME"),
        dict(kernel_dilation=2, padding=((1, 3), (2, 0))),
        dict(strides=(1, 2), padding=0, feature_group_count=2),
    ):
        layer = nnx.Conv(4, 6, (3, 2), param_dtype=jnp.float64, rngs=nnx.Rngs(0), **options)
        layer.bias.value = jnp.asarray(rng.standard_normal(6))
        x = jnp.asarray(rng.standard_normal((2, 9, 10, 4)))
        expected = layer(x)
        layer.__class__ = Fp64Conv
        np.testing.assert_allclose(layer(x), expected, rtol=0, atol=1e-13)
