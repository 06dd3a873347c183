"""Cases of Paddle alone: layouts, memory, sums, 16 bits and synchronized batch normalization (test_trainer.py)."""

import gc
import os
from contextlib import contextmanager
from functools import partial
from itertools import product
from types import SimpleNamespace
from unittest import mock

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.base import core
from paddle.jit.dy2static.program_translator import StaticFunction

from tests.zoo.trainer import margin_cases
from tests.zoo.trainer.paddle.ranks import two_ranks
from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import assert_close, copied_state, make, make_tsm, random_clips, update
from zoo.compare.reference.margin import loss_and_gradients
from zoo.data.errors import UserError
from zoo.models.tsm import paddle as tsm
from zoo.trainer.paddle import batchnorm, fp64, optimizer, parallel, profiling
from zoo.trainer.paddle import model as model_file
from zoo.trainer.paddle.optimizer import total_norm
from zoo.trainer.paddle.world import World
from zoo.trainer.plan import Arithmetic, Mode

NORM_SHAPES = [(4, 3, 5, 6), (2, 3, 1, 1), (3, 3, 2, 4, 5)]


def case_the_weight_of_a_linear_layer_is_transposed(backend):
    trainer = make(backend)
    weight = np.random.default_rng(3).standard_normal((5, 4), np.float32)
    trainer.load_state_dict({"fc.weight": weight, "optimizer/momentum/fc.weight": -weight})
    np.testing.assert_array_equal(trainer.model.fc.weight.numpy(), weight.T)
    state = trainer.state_dict()
    np.testing.assert_array_equal(state["fc.weight"], weight)
    np.testing.assert_array_equal(state["optimizer/momentum/fc.weight"], -weight)


def case_a_batch_normalization_of_one_value_stays_finite(backend):
    """One value has no unbiased variance."""
    model = backend.converted(nn.Sequential(nn.BatchNorm2D(2)))
    assert np.isfinite(model(paddle.ones((1, 2, 1, 1))).numpy()).all()
    assert np.isfinite(model[0]._variance.numpy()).all()


def case_16_bits_follow_the_compute_capability(backend):
    """Without a GPU: its compute capability is replaced."""
    world, cuda = World(0, 1, "gpu:0", None), paddle.device.cuda
    originals = cuda.get_device_capability, cuda.get_device_name
    cuda.get_device_name = lambda index: "a card"
    try:
        cuda.get_device_capability = lambda index: (8, 0)
        assert world.device == "cuda:0 (a card)"
        assert world.resolve_mode(Mode("amp")) == Mode("fp16", "O1", False, False)
        assert world.resolve_mode(Mode("bf16", "O1", False, True)) == Mode("bf16", "O1", False, True)
        for level in ("O2", "O3"):
            with pytest.raises(UserError, match=f"its {level} would round nothing more; leave it out"):
                world.resolve_mode(Mode("amp", level))
        cuda.get_device_capability = lambda index: (7, 0)
        with pytest.raises(UserError, match="no bf16; use fp16"):
            world.resolve_mode(Mode("bf16"))
        cuda.get_device_capability = lambda index: (6, 0)
        with pytest.raises(UserError, match="no fp16; use fp32"):
            world.resolve_mode(Mode("amp"))
    finally:
        cuda.get_device_capability, cuda.get_device_name = originals


def case_memory_of_an_update_with_a_class_matrix(backend):
    """Beside weights and momentum: the gradient and one matrix of logits. state_dict copies neither."""
    gc.collect()  # trainers of other cases
    classes, width = 1 << 17, 64
    trainer, unit = margin_cases.make(backend, classes=classes, width=width), 4 * classes * width
    core.host_memory_stat_reset_peak_value("Allocated", 0)
    for step in range(2):
        margin_cases.update(trainer, margin_cases.random_batch(128, classes=classes), step=step)
    assert 3 * unit <= core.host_memory_stat_current_value("Allocated", 0) < 3.2 * unit
    trainer.state_dict()
    assert 5 * unit <= core.host_memory_stat_peak_value("Allocated", 0) < 5.2 * unit  # the logits are two units
    weight = trainer.state_dict()["head.weight"]
    trainer.load_state_dict({"head.weight": np.zeros_like(weight)})
    assert not weight.any()


def case_sums_over_millions_are_exact(backend):
    """Paddle's own sums lose much of them."""
    values = np.random.default_rng(0).random((2, 1 << 22), np.float32)
    tensor, expected = paddle.to_tensor(values), np.sqrt(2 * (values.astype(np.float64) ** 2).sum())
    assert float(total_norm([tensor, tensor])) == pytest.approx(expected, rel=1e-6)
    weight = np.stack([np.cos(values[0, ::2]), np.sin(values[0, ::2])], 1)
    x, labels, settings = np.ones((1, 2), np.float32), np.array([5]), margin_cases.objective(scale=4.0)
    loss, *_ = backend.margin_loss(x, weight, labels, settings, backend.FP32_MODES[0])
    assert loss == pytest.approx(loss_and_gradients(x, weight, labels, settings)[0], rel=1e-6)


class Mixed(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.fc, self.features = nn.Linear(4, 4), nn.Linear(4, 6), nn.BatchNorm2D(6)

    def forward(self, x):
        return self.features(self.fc(self.first(x)).unsqueeze([2, 3]))


def dtypes_under_autocast(level, fp32_modules):
    """Return the operators of Mixed and their dtypes, from the compiled program: casts that a CPU has too."""
    model, x = Mixed(), paddle.rand((3, 4))
    model_file.convert_to_fp32(model, fp32_modules)

    def cast(x):
        with paddle.amp.auto_cast(level=level, dtype="bfloat16"):
            return model(x)

    program = paddle.jit.to_static(cast, full_graph=True).get_concrete_program(x)[0].main_program
    return [
        (op.name(), str(op.results()[0].dtype).rpartition(".")[2])
        for op in program.global_block().ops
        if op.name() in ("pd_op.matmul", "pd_op.batch_norm_")
    ]


def case_fp32_modules_keep_32_bits(backend):
    for level in ("O1", "O2"):
        assert [dtype for _, dtype in dtypes_under_autocast(level, ())][:2] == ["bfloat16", "bfloat16"]
        assert dtypes_under_autocast(level, ("fc", "features")) == [
            ("pd_op.matmul", "bfloat16"),
            ("pd_op.matmul", "float32"),
            ("pd_op.batch_norm_", "float32"),
        ]
    plain, converted, x = Mixed(), Mixed(), paddle.rand((3, 4))
    converted.set_state_dict(plain.state_dict())
    model_file.convert_to_fp32(converted, ("fc", "features"))
    np.testing.assert_array_equal(converted(x).numpy(), plain(x).numpy())
    assert isinstance(converted.fc, nn.Linear) and converted.fc(x.astype("bfloat16")).dtype == paddle.float32
    with pytest.raises(KeyError):
        model_file.convert_to_fp32(plain, ("fd",))


def random_norm(shape):
    """Return a synchronized batch normalization with random weights, an input, and the gradient of its output."""
    rng = np.random.default_rng(0)
    weight, bias = rng.uniform(0.5, 1.5, shape[1]), rng.uniform(-1, 1, shape[1])
    layer = (nn.BatchNorm2D if len(shape) == 4 else nn.BatchNorm3D)(shape[1])
    layer.weight.set_value(weight.astype(np.float32))
    layer.bias.set_value(bias.astype(np.float32))
    x, gradient = 3 + 2 * rng.standard_normal(shape), rng.standard_normal(shape)
    batchnorm.convert_sync_batchnorm(nn.Sequential(layer), True)
    return layer, x.astype(np.float32), gradient.astype(np.float32)


def expected_norm(layer, x, gradient):
    """Return output, gradients, mean, unbiased and biased variance in float64, by the formulas of arXiv:1502.03167."""
    x, gradient, weight, bias = (np.asarray(array, np.float64) for array in (x, gradient, layer.weight, layer.bias))
    axes, column = (0, *range(2, x.ndim)), [1, -1] + [1] * (x.ndim - 2)
    count = x.size // x.shape[1]
    mean, variance = x.mean(axes), x.var(axes)
    scale = (1 / np.sqrt(variance + layer._epsilon)).reshape(column)
    normalized = (x - mean.reshape(column)) * scale
    to_bias, to_weight = gradient.sum(axes), (gradient * normalized).sum(axes)
    weight = weight.reshape(column)
    shift, tilt = to_bias.reshape(column), to_weight.reshape(column)
    to_x = weight * scale * (gradient - (shift + normalized * tilt) / count)
    y = normalized * weight + bias.reshape(column)
    return y, to_x, to_weight, to_bias, mean, variance * count / (count - 1), variance


def case_synchronized_normalization_follows_the_formulas(backend):
    """For a mean far from 0 too; a block at once or row by row."""
    for shape in NORM_SHAPES:
        for chunk_size in (1, 1 << 18):
            original, batchnorm.BLOCK_SIZE = batchnorm.BLOCK_SIZE, chunk_size
            try:
                layer, x, gradient = random_norm(shape)
                *expected, mean, unbiased, variance = expected_norm(layer, x, gradient)
                x = paddle.to_tensor(x, stop_gradient=False)
                y = layer(x)
                (y * paddle.to_tensor(gradient)).sum().backward()
            finally:
                batchnorm.BLOCK_SIZE = original
            amplification = 1 + float(1 / np.sqrt(variance.min()))  # of rounding, by the division
            expected += [0.1 * mean, 0.9 + 0.1 * unbiased]
            results = y, x.grad, layer.weight.grad, layer.bias.grad, layer._mean, layer._variance
            for result, value in zip(results, expected):
                np.testing.assert_allclose(
                    result.numpy(), value, rtol=1e-5, atol=2e-6 * amplification, err_msg=f"{shape}"
                )


def case_frozen_weights_of_synchronized_normalization_get_no_gradient(backend):
    layer, x, gradient = random_norm(NORM_SHAPES[0])
    expected = expected_norm(layer, x, gradient)[1]
    layer.weight.stop_gradient = layer.bias.stop_gradient = True
    x = paddle.to_tensor(x, stop_gradient=False)
    (layer(x) * paddle.to_tensor(gradient)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5, atol=1e-5)
    assert layer.weight.grad is None and layer.bias.grad is None


def case_synchronized_normalization_evaluates_with_running_statistics(backend):
    layer, x, _ = random_norm(NORM_SHAPES[0])
    layer.eval()
    y = layer(paddle.to_tensor(x)).numpy()
    weight, bias = (tensor.numpy().reshape(1, -1, 1, 1) for tensor in (layer.weight, layer.bias))
    np.testing.assert_allclose(y, x / np.sqrt(1 + layer._epsilon) * weight + bias, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(layer._mean.numpy(), np.zeros(3, np.float32))


def kernel_of_a_device(layer, x):
    """Do to the running statistics what Paddle's kernel does with one rank."""
    if layer.training:
        for running, new in ((layer._mean, x.mean([0, 2, 3])), (layer._variance, x.var([0, 2, 3], unbiased=False))):
            paddle.assign(layer._momentum * running + (1 - layer._momentum) * new, running)
    return x


def case_normalization_of_a_device_keeps_its_mode_and_the_unbiased_variance(backend):
    x = np.random.default_rng(0).standard_normal((2, 3, 2, 2)).astype(np.float32)
    model = nn.Sequential(nn.BatchNorm2D(3))
    model.eval()
    with mock.patch.object(nn.SyncBatchNorm, "forward", kernel_of_a_device):
        batchnorm.convert_sync_batchnorm(model, False)
        model(paddle.to_tensor(x))
        np.testing.assert_array_equal(model[0]._variance.numpy(), np.ones(3))  # as an average is evaluated
        model.train()
        model(paddle.to_tensor(x))
    np.testing.assert_allclose(model[0]._mean.numpy(), 0.1 * x.mean((0, 2, 3)), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(model[0]._variance.numpy(), 0.9 + 0.1 * x.var((0, 2, 3), ddof=1), rtol=1e-6)


def case_a_kernel_that_leaves_out_other_ranks_is_refused(backend):
    ranks = mock.patch.multiple(batchnorm.dist, get_world_size=lambda: 2, get_rank=lambda: 1)
    kernel = mock.patch.object(nn.SyncBatchNorm, "forward", kernel_of_a_device)
    with ranks, kernel, pytest.raises(UserError, match="train.sync_bn: Paddle's kernel does not sum over ranks"):
        batchnorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm2D(3)), False)


def case_interpolation_by_matrices(backend):
    """As of deterministic runs on a GPU, whose kernel has no order of sums."""
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 7)).astype(np.float32)
    for align_corners in (False, True):
        options = {"size": (9, 4), "mode": "bilinear", "align_corners": align_corners}
        found = fp64.interpolate((paddle.float32,), paddle.to_tensor(x), **options)
        expected = fp64.interpolate_in_fp32(paddle.to_tensor(x), **options)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def case_a_model_is_compiled_where_the_plan_says_so(backend):
    for compile in (False, True):
        trainer = make(backend, Mode("fp32", None, False, compile))
        forwards = trainer.train_forward, trainer.eval_forward
        assert [isinstance(each.forward, StaticFunction) for each in forwards] == [compile, compile]


def case_synchronized_normalization_is_not_compiled(backend):
    with pytest.raises(UserError, match="train.sync_bn: to_static cannot compile it on a CPU"):
        make(backend, Mode("fp32", None, False, True), sync_bn=True)
    make(backend, sync_bn=True)


def case_what_paddle_cannot_sum_is_refused(backend):
    with two_ranks(np.array) as world, pytest.raises(UserError, match="train.fp16_allreduce: Paddle sums fp16 to"):
        make(SimpleNamespace(**{**vars(backend), "WORLD": world}), fp16_allreduce=True)


def case_gradients_travel_as_fp16(backend):
    def all_reduce(x):
        assert x.dtype == paddle.float16
        x.set_value(x.numpy() + np.float16(2.0))

    gradients = [paddle.to_tensor([[1 + 2.0**-12], [2.0]]), paddle.to_tensor([3.0])]
    with mock.patch.multiple(paddle.distributed, all_reduce=all_reduce, get_world_size=lambda: 2):
        parallel.all_reduce_mean_fp16(gradients)
    assert [gradient.tolist() for gradient in gradients] == [[[2.5], [3.0]], [3.5]]  # half of its own, and 2


def case_a_card_is_described(backend):
    """Without a GPU: what Paddle tells of it is replaced."""
    world, cuda = World(0, 1, "gpu:1", None), paddle.device.cuda
    originals = cuda.get_device_properties, cuda.max_memory_allocated
    cuda.get_device_properties = lambda name: SimpleNamespace(name=f"card {name}", total_memory=1 << 34)
    cuda.max_memory_allocated = lambda name: {"gpu:1": 123}[name]
    try:
        assert world.accelerator() == {"name": "card gpu:1", "memory_bytes": 1 << 34}
        assert world.peak_memory() == 123
    finally:
        cuda.get_device_properties, cuda.max_memory_allocated = originals


def case_versions_of_a_build_with_cuda(backend):
    originals = paddle.is_compiled_with_cuda, paddle.version
    paddle.is_compiled_with_cuda = lambda: True
    paddle.version = SimpleNamespace(cuda=lambda: "12.6", cudnn=lambda: "9.5.1", nccl=lambda: "22602")
    try:
        expected = {"cuda": "12.6", "cudnn": "9.5.1", "nccl": "2.26.2", "cann": None}
        assert World(0, 1, "gpu:0", None).libraries() == expected
    finally:
        paddle.is_compiled_with_cuda, paddle.version = originals


def accumulations(tensor) -> int:
    """Return the number of parameters that gradients of a tensor are added to."""
    nodes, seen = [tensor.grad_fn], {}
    while nodes:
        node = nodes.pop()
        if node is not None and node.node_ptr() not in seen:
            seen[node.node_ptr()] = node.name()
            nodes += node.next_functions
    return list(seen.values()).count("GradNodeAccumulation")


def case_gradients_flow_through_checkpointed_modules(backend):
    """To the parameters too, where DataParallel looks for them; and to these alone, behind a frozen stem."""
    x = paddle.to_tensor(random_clips()["video"].astype(np.float32)).transpose((0, 1, 4, 2, 3))
    found = []
    for names in ((), ("layer1.0", "layer2.0")):
        trainer, _ = make_tsm(backend, checkpointed_modules=names)
        trainer.train_mode()
        found.append(accumulations(trainer.train_forward([x])))
        for tensor in (trainer.model.conv1.weight, trainer.model.bn1.weight, trainer.model.bn1.bias):
            tensor.stop_gradient = True
        trainer.train_forward([x]).sum().backward()
        found.append(trainer.model.layer1[0].conv1.weight.grad.numpy())
    assert found[0] == found[2] == len(trainer.trainable)
    np.testing.assert_array_equal(found[1], found[3])


def case_checkpointed_modules_are_not_compiled(backend):
    with pytest.raises(UserError, match="train.checkpoint_activations: to_static"):
        make_tsm(backend, backend.FP32_MODES[1], checkpointed_modules=("layer1.0",))
    with pytest.raises(KeyError):
        make_tsm(backend, checkpointed_modules=("layer5.0",))


def case_an_update_on_the_device_is_that_on_the_host(backend):
    """With and without clipping, weight decay, loss scale and a class matrix; skipped or not; whole or in blocks.

    To the last bit, unless MKL rounds a product and a sum at once. Blocks of a row, and of three of four rows.
    """
    whole = optimizer.BLOCK_SIZE
    for clip_norm, block_sizes in ((None, (whole,)), (0.2, (whole, 20, 81))):
        states = []
        for block_size, on_host in product(block_sizes, (True, False)):
            on_device = (
                {}
                if on_host
                else {"sgd": lambda spec, tensors, finite: optimizer.update_on_device(tensors, 0.9, finite)}
            )
            with (
                mock.patch.object(optimizer, "BLOCK_SIZE", block_size),
                mock.patch.dict(optimizer.CPU_KERNELS, on_device),
            ):
                trainers = make(backend, clip_norm=clip_norm), margin_cases.make(backend, clip_norm=clip_norm)
                for scale, trainer in product((1, 1024, np.inf, 1), trainers):
                    trainer.load_state_dict({"scaler/scale": np.array(scale, np.float32)})
                    batch = random_batch() if trainer is trainers[0] else margin_cases.random_batch(8)
                    numbers = trainer.read(trainer.step([trainer.to_device(batch)], 0.05, 0))
                    assert numbers["consecutive_skips"] == (scale == np.inf)
            states.append({**copied_state(trainers[0]), **copied_state(trainers[1])})
        for state in states[1:]:
            assert_close(state, states[0], 1e-6, 1e-7)


def case_batches_are_kept_until_a_gpu_has_used_them(backend):
    """Without a GPU: its events and its copy are replaced."""
    events, tensors = [], []

    class Event:
        reached = False

        def record(self):
            events.append(self)

        def query(self):
            return self.reached

    def to_tensor(array, place):
        assert isinstance(place, str)
        tensors.append(SimpleNamespace(cuda=lambda device, blocking: SimpleNamespace(device=device, blocking=blocking)))
        return tensors[-1]

    place = SimpleNamespace(get_device_id=lambda: 3)
    fakes = mock.patch.object(parallel.paddle, "CUDAPinnedPlace", lambda: "pinned", create=True)
    selected = mock.patch.object(parallel.paddle, "set_device")
    with fakes, selected as set_device, mock.patch.object(parallel.paddle, "to_tensor", to_tensor):
        gpu = parallel.Copies(place, True)
        tensor = gpu.copy(np.zeros(2))
    set_device.assert_called_once_with("gpu:3")
    assert (tensor.device, tensor.blocking, tensor.source) == (3, False, tensors[0])
    with mock.patch.object(paddle.device.cuda, "Event", Event):
        first, second, third = ([{"image": tensor}] for _ in range(3))
        gpu.keep(first)
        gpu.keep(second)
        assert [batches for _, batches in gpu.kept] == [first, second]
        events[0].reached = events[1].reached = True
        gpu.keep(third)
        assert [event for event, _ in gpu.kept] == events[2:]


def case_evaluation_in_16_bits_casts_automatically(backend):
    """On a CPU, which has no 16 bits: the context is replaced. What follows the model is computed outside of it."""
    for eval_mixed in (False, True):
        trainer, inside = make(backend, Mode("fp16", "O1", False, False), eval_mixed=eval_mixed), []

        @contextmanager
        def autocast(inside=inside):
            inside.append(True)
            yield
            inside.append(False)

        trainer.autocast = autocast
        trainer.model.register_forward_post_hook(lambda *_, inside=inside: inside.append("model"))
        trainer.predict(trainer.to_device({"image": random_batch()["image"]}))
        assert inside == ([True, "model", False] if eval_mixed else ["model"])


def case_updates_cast_to_the_16_bits_of_their_mode(backend):
    """On a CPU, which has none: the context is replaced. The loss is computed outside of it."""
    for compute, dtype in (("fp16", "float16"), ("bf16", "bfloat16")):
        trainer, inside = make(backend, Mode(compute, "O1", False, False)), []

        @contextmanager
        def auto_cast(dtype, inside=inside, **settings):
            inside.append(dtype)
            yield
            inside.append("outside")

        trainer.model.register_forward_post_hook(lambda *_, inside=inside: inside.append("model"))
        with mock.patch.object(paddle.amp, "auto_cast", auto_cast):
            update(trainer, random_batch())
        assert inside == [dtype, "model", "outside"]


def case_arithmetic_of_a_gpu(backend):
    """Without a GPU: Paddle's switches are replaced, and its flags are those of 3.3 or of 2.6."""
    assert backend.WORLD.arithmetic() == {}
    switches, flags = {"cublas": True, "cudnn": True}, {}
    fakes = {
        "globals": lambda: SimpleNamespace(is_public=lambda name: name in flags),
        "set_cublas_switch": lambda value: switches.update(cublas=value),
        "set_cudnn_switch": lambda value: switches.update(cudnn=value),
        "get_cublas_switch": lambda: switches["cublas"],
        "get_cudnn_switch": lambda: switches["cudnn"],
    }
    of_paddle = {
        "is_compiled_with_cuda": lambda: True,
        "set_flags": lambda values: flags.update({name: values[name] for name in flags if name in values}),
        "get_flags": lambda names: {name: flags[name] for name in names},
    }
    deterministic_flags = ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic")
    common = dict.fromkeys(("FLAGS_cudnn_exhaustive_search", *deterministic_flags), False)
    tf32_flags = {"FLAGS_cudnn_allow_tf32": True, "FLAGS_cublas_allow_tf32": False}
    environment = mock.patch.dict(os.environ, {"NVIDIA_TF32_OVERRIDE": "0"})
    with mock.patch.multiple(core, create=True, **fakes), mock.patch.multiple(paddle, **of_paddle), environment:
        for own, (tf32, benchmark, fixed) in product(({}, tf32_flags), product((False, True), repeat=3)):
            flags.clear()
            flags.update({**common, **own})
            backend.WORLD.set_arithmetic(Arithmetic(tf32, benchmark, fixed))
            assert backend.WORLD.arithmetic() == {
                "cublas_switch": tf32,
                "cudnn_switch": tf32,
                **dict.fromkeys(own, tf32),
                "FLAGS_cudnn_exhaustive_search": benchmark,
                **dict.fromkeys(deterministic_flags, fixed),
                "NVIDIA_TF32_OVERRIDE": "0",
            }


def case_the_fused_shift_is_the_shift(backend):
    """Values and gradients to the last bit; with it on a CPU, in all numbers of channels and of frames."""
    rng = np.random.default_rng(0)
    for channels, div, segments, direction in product((3, 7, 8, 24, 100), (2, 3, 4, 8), (1, 2, 5), ("future", "past")):
        x, weight = rng.standard_normal((2, 2 * segments, channels, 2, 3), np.float32)
        results = []
        for is_fused in (False, True):
            with mock.patch.object(tsm, "has_fused_shift", lambda is_fused=is_fused: is_fused):
                shift = partial(tsm.temporal_shift, segments=segments, div=div, direction=direction)
                results.append(backend.gradient(shift, x, weight))
        for own, fused in zip(*results):
            np.testing.assert_array_equal(fused, own, err_msg=f"{channels} {div} {segments} {direction}")


def case_own_times_of_nested_events(backend):
    def event(name, start, duration, thread=1, category="Operator"):
        return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "tid": thread}

    events = [
        event("conv2d dygraph[9.0 us]", 0.0, 1000.0),
        event("pad dygraph[1.0 us]", 100.0, 300.0),
        event("pad dygraph[1.0 us]", 150.0, 100.0),
        event("scale[1.0 us]", 500.0, 200.0),
        event("relu dygraph[1.0 us]", 1000.0, 50.0),
        event("relu dygraph[1.0 us]", 10.0, 50.0, thread=2),
        event("launch[5.0 us]", 10.0, 500.0, category="OperatorInner"),
        {"ph": "M", "name": "thread_name"},
    ]
    found = {name: (round(ms, 6), calls) for name, ms, calls in profiling.operators(events, ("Operator",))}
    assert found == {"conv2d": (0.5, 1), "pad": (0.3, 2), "scale": (0.2, 1), "relu": (0.1, 2)}
