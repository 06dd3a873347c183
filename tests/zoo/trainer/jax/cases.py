"""Cases of JAX alone (test_trainer.py)."""

import re
from collections import deque
from importlib import metadata
from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.zoo.trainer import rank_cases
from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import make, update
from zoo.losses.face import arcface
from zoo.optim.ema import Ema
from zoo.trainer.jax import ops, parallel
from zoo.trainer.jax.layers import Fp64Conv, normalized
from zoo.trainer.jax.partial_fc import RankedSoftmax
from zoo.trainer.plan import Arithmetic
from zoo.trainer.world import Launch


def case_updates_are_compiled_once(backend):
    """Whatever the learning rate, the number of the update and the loss scale are."""
    trainer = make(backend, backend.SIXTEEN_BIT_MODES[1])
    for step, lr in enumerate((0.1, 0.05, 0.0)):
        update(trainer, random_batch(seed=step), lr=lr, step=step)
    trainer.load_state_dict({"scaler/scale": np.float32(8)})
    update(trainer, random_batch(), lr=0.01, step=9)
    assert trainer._step._cache_size() == 1


def lowered(trainer):
    """Return an update before its compilation."""
    names = {field.name for field in trainer.plan.fields}
    batch = {name: array for name, array in trainer.to_device(random_batch()).items() if name in names}
    rates = {scale: np.asarray(0.1 * scale, trainer.dtype) for scale in trainer.lr_scales}
    return trainer._step.lower(trainer.state, rates, np.float32(1), [batch], None)


def case_an_update_takes_over_the_memory_of_the_state(backend):
    trainer = make(backend, ema=Ema(0.9))
    before = trainer.state
    update(trainer, random_batch())
    for part in (before.weights, before.slots, before.averages):
        assert all(array.is_deleted() for array in jax.tree.leaves(part))


def case_only_fp64_has_numbers_of_64_bits(backend):
    for mode, expected in ((backend.FP32_MODES[0], False), (backend.FP64_MODES[0], True)):
        text = lowered(make(backend, mode)).as_text()
        assert bool(re.search(r"\bf64>|xf64|tensor<f64", text)) == expected


def case_updates_round_to_the_16_bits_of_their_mode(backend):
    for mode, dtype in zip(backend.SIXTEEN_BIT_MODES, ("bf16", "f16")):
        text = lowered(make(backend, mode)).as_text()
        products = re.findall(
            r"stablehlo\.(?:convolution|dot_general)(?!.*batching_dims).*", text
        )  # no sums of samples
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


def case_the_gradient_of_a_normalization_is_the_one_that_jax_derives(backend):
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(0)
    x, of_y = rng.standard_normal((2, 4, 3, 5, 6)) + 1
    scale, bias = rng.standard_normal((2, 6))

    def plain(x, scale, bias):
        return (x - x.mean((0, 1, 2))) * (scale / jnp.sqrt(x.var((0, 1, 2)) + 1e-3)) + bias

    (y, mean, variance), of_inputs = jax.vjp(lambda *inputs: normalized(*inputs, 1e-3, 1), x, scale, bias)
    expected, of_plain = jax.vjp(plain, x, scale, bias)
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(mean, x.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(variance, x.var((0, 1, 2), ddof=1), rtol=1e-12)
    for found, derived in zip(of_inputs((of_y, mean, variance)), of_plain(jnp.asarray(of_y))):
        np.testing.assert_allclose(found, derived, rtol=1e-11, atol=1e-12)


def case_a_card_is_described(backend):
    """Without a GPU: what JAX and pip tell of one is replaced."""
    stats = {"bytes_limit": 60 << 30, "peak_bytes_in_use": 123}
    card = SimpleNamespace(platform="gpu", device_kind="NVIDIA H100", memory_stats=lambda: stats)
    versions = {"jax-cuda12-plugin": "0.6.2", "nvidia-cuda-runtime-cu12": "12.9.79", "nvidia-cudnn-cu12": "9.10.2"}

    def version(name):
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    world = type(backend.WORLD)(0, 1, backend.WORLD.mesh)
    with mock.patch.object(type(world), "jax_device", card), mock.patch.object(metadata, "version", version):
        assert world.libraries() == {"cuda": "12.9.79", "cudnn": "9.10.2", "nccl": None, "cann": None}
        assert world.accelerator() == {"name": "NVIDIA H100", "memory_bytes": 80 << 30}
        assert world.peak_memory() == 123
        for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
            with mock.patch.dict("os.environ", {name: "0.5"}):
                assert world.accelerator()["memory_bytes"] == 120 << 30


def case_the_arithmetic_of_a_gpu(backend):
    world = type(backend.WORLD)(0, 1, backend.WORLD.mesh)
    for arithmetic, expected in (
        (Arithmetic(), {"jax_default_matmul_precision": "float32"}),
        (Arithmetic(tf32=True), {"jax_default_matmul_precision": "tensorfloat32"}),
        (
            Arithmetic(deterministic=True),
            {"jax_default_matmul_precision": "float32", "xla_gpu_deterministic_ops": True},
        ),
    ):
        world.set_arithmetic(arithmetic)
        assert world.arithmetic() == expected
    several = type(backend.WORLD)(0, 2, backend.WORLD.mesh)
    with mock.patch.object(type(world), "jax_device", SimpleNamespace(platform="gpu")):
        several.set_arithmetic(Arithmetic())
    options = several.compiler_options
    assert options == {"xla_gpu_enable_latency_hiding_scheduler": True}
    assert jax.jit(jnp.sin, compiler_options=options)(0.0) == 0  # XLA knows it


def case_a_process_of_several_takes_the_gpu_that_it_sees(backend):
    """Also of SLURM, by whose number of the process JAX would choose among the GPUs of the host."""
    for visible, expected in (("", [0]), ("3", [0]), ("GPU-8f2", [0]), ("0,1,2,3", [1])):
        with (
            mock.patch.dict("os.environ", CUDA_VISIBLE_DEVICES=visible, SLURM_LOCALID="1"),
            mock.patch.object(jax.distributed, "initialize", side_effect=ConnectionError) as joined,
            pytest.raises(ConnectionError),
        ):
            backend.start(Launch(rank=1, size=2, local_rank=1), "cpu", 1)
        assert joined.call_args.kwargs == {"local_device_ids": expected}
    assert jax.config.jax_platforms == "cpu"  # no GPU is opened beside it


def case_images_of_dali_are_kept_until_they_are_copied(backend):
    class Copy:
        done = False

        def is_ready(self):
            return self.done

    first, second = Copy(), Copy()
    trainer = SimpleNamespace(decoded=deque())
    backend.Trainer._keep(trainer, [first], {"image": "first"})
    backend.Trainer._keep(trainer, [second], {"image": "second"})
    assert len(trainer.decoded) == 2
    first.done = True
    backend.Trainer._keep(trainer, [], {})
    assert [images for _, images in trainer.decoded] == [{"image": "second"}]


def case_labels_of_all_ranks_are_gathered_by_one_program(backend):
    assert parallel._gathering(backend.WORLD.mesh) is parallel._gathering(backend.WORLD.mesh)


def case_a_row_that_fills_up_a_part_is_no_class(backend):
    rng = np.random.default_rng(0)
    units, weight = (jnp.asarray(rng.standard_normal((4, 3)), jnp.float32) for _ in range(2))
    softmax = RankedSoftmax(ops, arcface.Loss(), 1, 2)
    logits, *_ = softmax.logits(units, weight.at[3].set(0), jnp.array([0, 1, -1, -1]), None)
    assert np.isneginf(logits[:, 3]).all() and np.isfinite(logits[:, :3]).all()


def case_gradients_travel_as_fp16(backend):
    rank_cases.check_gradients_travel_as_fp16(backend)
