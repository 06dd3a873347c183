"""Cases of MindSpore alone: levels of precision, its compiler and its cluster (test_trainer.py)."""

import os
import re
import socket
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from tests.zoo.trainer import (
    checkpointing_cases,
    head_cases,
    margin_cases,
    optimizer_cases,
    rank_cases,
    state_cases,
    update_cases,
)
from tests.zoo.trainer.mindspore.ranks import two_ranks
from tests.zoo.trainer.mindspore.tiny import Double, PrecisionProbe, Tower
from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import IMAGE, LABEL, frozen_norm, make, make_tsm, random_clips, update
from zoo.data.errors import UserError
from zoo.models.tsm_mobilenet_v2 import mindspore as mobilenet
from zoo.models.tsm_mobilenet_v2 import spec as mobilenet_spec
from zoo.tasks import classify
from zoo.trainer.mindspore import layers, optimizer, partial_fc, world
from zoo.trainer.mindspore import ops as trainer_ops
from zoo.trainer.mindspore import trainer as trainer_module
from zoo.trainer.mindspore import update as update_cells
from zoo.trainer.mindspore.parallel import AllReduceMean, split_into_buckets
from zoo.trainer.mindspore.world import World, _await_scheduler
from zoo.trainer.plan import Arithmetic, Mode, ParamGroup, Plan
from zoo.trainer.world import Launch

EAGER, COMPILED = Mode("fp32", None, False, False), Mode("fp32", None, False, True)


def case_a_batch_on_the_device_is_a_copy(backend):
    """With labels as int32, since MindSpore's operators have no int64."""
    trainer, batch = make(backend), random_batch()
    device_batch = trainer.to_device(batch)
    before = {name: array.copy() for name, array in batch.items()}
    for array in batch.values():
        array[:] = 0
    for name, array in before.items():
        np.testing.assert_array_equal(device_batch[name].asnumpy(), array)
    assert before["label"].dtype == np.int64 and device_batch["label"].dtype == mindspore.int32


def case_eager_and_compiled_fp16_agree(backend):
    losses = [
        update(make(backend, Mode("fp16", "O1", False, compile), loss_scale=8.0), random_batch(), lr=0.0)["loss"]
        for compile in (False, True)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def case_levels_round_what_the_protocol_says(backend):
    """O1 the convolutions, O2 and O3 the softmax and what the normalization returns too."""
    batch = random_batch()
    for compute, level, code in (("fp32", None, 0), ("fp16", "O1", 1), ("fp16", "O2", 7), ("fp16", "O3", 7)):
        for compile in (False, True):
            plan = Plan((IMAGE, LABEL), (), lambda name: ParamGroup(1.0, 0.0), Mode(compute, level, False, compile))
            trainer = backend.Trainer(PrecisionProbe, None, classify.Settings(), plan, backend.WORLD)
            codes = trainer.train_forward(trainer.preprocess(trainer.to_device(batch)["image"])).asnumpy()
            assert codes.flatten().tolist() == [code] * 8, level


def case_the_default_level_is_o3_on_a_gpu(backend):
    """Which need not be there."""
    world = World(0, 1, "cuda", 0)
    assert world.resolve_mode(Mode("amp")) == Mode("fp16", "O3", False, True)
    assert world.resolve_mode(Mode("amp", "O1")) == Mode("fp16", "O1", False, True)
    assert world.resolve_mode(Mode("fp32")) == COMPILED


def case_arithmetic_of_a_gpu(backend):
    """Without a GPU: what MindSpore says of the device is replaced, and its check of it in set_context."""
    get_context, context = mindspore.get_context, mindspore.context._context()

    def gpu_context(name):
        return "GPU" if name == "device_target" else get_context(name)

    def set_context(gpu_config):
        context.set_gpu_config(gpu_config)

    state = {"calls": 0}
    parameter = world._parameter

    def set_deterministic(value):  # the real one cannot be taken back in this process
        assert value
        state["calls"] += 1

    def parameter_in_force(name):
        return ("ON" if state["calls"] else "OFF") if name == "deterministic" else parameter(name)

    fakes = {"get_context": gpu_context, "set_context": set_context, "set_deterministic": set_deterministic}
    with mock.patch.multiple(mindspore, **fakes), mock.patch.object(world, "_parameter", parameter_in_force):
        assert parameter("deterministic") == "OFF"  # the name that is read exists
        settings = ((True, True, "performance", "OFF"), (False, False, "normal", "ON"), (True, False, "normal", "ON"))
        for tf32, benchmark, kernels, deterministic in settings:
            backend.WORLD.set_arithmetic(Arithmetic(tf32, benchmark, deterministic == "ON"))
            assert backend.WORLD.arithmetic() == {
                "conv_allow_tf32": tf32,
                "matmul_allow_tf32": tf32,
                "conv_fprop_algo": kernels,
                "conv_dgrad_algo": kernels,
                "conv_wgrad_algo": kernels,
                "deterministic": deterministic,
            }
            assert state["calls"] == (deterministic == "ON")  # MindSpore refuses a second call


def case_fp32_modules_keep_32_bits_at_every_level(backend):
    for level, compile in (("O1", True), ("O1", False), ("O3", True)):
        errors = []
        for fp32_modules in ((), ("fc", "features")):
            mode = Mode("fp16", level, False, compile)
            trainer = margin_cases.make(backend, mode, model=Tower, fp32_modules=fp32_modules)
            state = trainer.state_dict()
            neutral = {"running_var": 1, "features.weight": 1, "running_mean": 0, "bias": 0}
            trainer.load_state_dict(
                {
                    name: np.full_like(array, value)
                    for name, array in state.items()
                    for end, value in neutral.items()
                    if name.endswith(end) and "/" not in name
                }
            )
            model, x = trainer.train_forward, trainer.to_device(margin_cases.random_batch(64))["x"]
            model.set_train(False)  # the output is that of fc, but for epsilon
            first, fc = (state[f"{name}.weight"] / 2 for name in ("first", "fc"))
            trainer.load_state_dict({"first.weight": first, "fc.weight": fc})
            half = mindspore.float16
            rounded = ops.MatMul(transpose_b=True)(x.astype(half), Tensor(first).astype(half)).asnumpy()
            exact = rounded.astype(np.float64) @ fc.astype(np.float64).T / np.sqrt(1 + 1e-5)
            errors.append(np.abs(model(x).asnumpy() - exact).max())
        assert errors[0] > 1e-4 and errors[1] < 5e-6, (level, compile, errors)


def case_a_model_of_152_layers_compiles(backend):
    """Its update goes over 467 tensors, and the compiler nests no more than 1000 calls."""
    numbers = update(make_tsm(backend, COMPILED, depth=152)[0], random_clips())
    assert np.isfinite(numbers["loss"]) and numbers["skipped"] == 0


def case_checkpointed_activations_need_graph_mode(backend):
    with pytest.raises(UserError, match=r"train\.checkpoint_activations: .*graph mode"):
        make(backend, EAGER, checkpointed_modules=("conv",))


def case_the_backward_pass_computes_convolutions_again(backend):
    """All 20 but the last, whose result a normalization in the same block turns into the block's kept output."""
    counts = []
    for names in ((), checkpointing_cases.BLOCKS):
        trainer, _ = make_tsm(backend, COMPILED, checkpointed_modules=names)
        graph = compiled_graph(lambda trainer=trainer: update(trainer, random_clips()))
        counts.append([len(re.findall(rf"= (?:PrimFunc_)?{name}\(", graph)) for name in ("Conv2D", "BatchNorm")])
    assert counts == [[20, 20], [39, 20]]


def case_compiled_chunks_of_logits_are_computed_twice(backend):
    """Two products of a chunk for the logits, two for the gradients; and the result is that of pynative mode."""
    x, weight, labels = head_cases.random_head()
    settings, results = margin_cases.objective(), []
    with head_cases.chunks_of(backend, 4 * len(x)):
        graph = compiled_graph(lambda: results.append(backend.margin_loss(x, weight, labels, settings, COMPILED)))
        expected = backend.margin_loss(x, weight, labels, settings, EAGER)
    assert len(re.findall(r"= (?:PrimFunc_)?MatMul\w*\(", graph)) == 4 * 3
    assert max(head_cases.relative_errors(results[0], expected)) <= 1e-6


def compiled_graph(function) -> str:
    """Return what MindSpore's compiler makes of the largest graph that it compiles while the function runs."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, MS_DEV_DUMP_IR_PASSES="validate"):
        mindspore.set_context(save_graphs=1, save_graphs_path=folder)
        try:
            function()
        finally:
            mindspore.set_context(save_graphs=0)
        return max((path.read_text() for path in Path(folder).glob("*validate*.ir")), key=len)


def case_the_gradient_of_prelu_is_the_same_in_every_run(backend):
    """MindSpore's kernel gives other bits in most of these runs, since its threads add their sums as they end."""
    rng = np.random.default_rng(0)
    x, of_output = (rng.standard_normal((32, 16, 56, 56)).astype(np.float32) for _ in range(2))
    model = nn.SequentialCell(nn.PReLU(16))
    layers.convert_prelu(model)
    loss = mindspore.value_and_grad(lambda x: (model(x) * Tensor(of_output)).sum(), 0, model.trainable_params())
    found = [loss(Tensor(x))[1] for _ in range(10)]
    assert len({(to_x.asnumpy().tobytes(), slopes.asnumpy().tobytes()) for to_x, (slopes,) in found}) == 1
    to_x, (slopes,) = found[0]
    np.testing.assert_array_equal(to_x.asnumpy(), np.where(x > 0, 1, np.float32(0.25)) * of_output)
    exact = np.where(x > 0, 0, x.astype(np.float64) * of_output).sum((0, 2, 3))
    np.testing.assert_allclose(slopes.asnumpy(), exact, atol=1e-3)  # of sums of 50,000 products


def case_the_norm_of_a_long_vector_rounds_alike_in_every_update(backend):
    """MindSpore's own sum gives another number from the sixth launch on for a third of these vectors."""
    for seed, length in enumerate([300_001] * 7 + [300 * trainer_ops.ROW]):
        x = np.random.default_rng(seed).standard_normal(length).astype(np.float32)
        total, tensor = mindspore.jit(trainer_ops.sum_of_squares), Tensor(x)
        found = {total(tensor).asnumpy().item() for _ in range(12)}
        assert len(found) == 1 and found.pop() == pytest.approx(np.square(x.astype(np.float64)).sum(), rel=1e-6)


def case_relu6_in_fp64(backend):
    """Which MindSpore's own does not compute on CPUs."""
    x = Tensor(np.array([-1.0, 0.0, 1 + 2.0**-40, 6.0, 7.0]))
    y, gradient = mindspore.value_and_grad(lambda x: layers.relu6(x).sum())(x)
    assert layers.relu6(x).asnumpy().tolist() == [0, 0, 1 + 2.0**-40, 6, 6] and float(y) == 13 + 2.0**-40
    assert gradient.asnumpy()[[0, 1, 2, 4]].tolist() == [0, 0, 1, 0]
    model = layers.convert_to_fp64(mobilenet.Model(mobilenet_spec.Arch(num_classes=3, segments=2, width=4)))
    video = Tensor(np.random.default_rng(0).standard_normal((1, 2, 3, 32, 32)))
    assert model(video).dtype == mindspore.float64


def case_buckets_of_gradients(backend):
    """From the last gradient to the first; a bucket is complete when it has the elements asked for."""
    assert split_into_buckets((1, 2, 3, 4, 5), 4) == ((4, 5), (3, 4), (1, 3), (0, 1))
    assert split_into_buckets((1, 2, 3), 100) == ((0, 3),)
    assert split_into_buckets((5, 1, 1), 1) == ((2, 3), (1, 2), (0, 1))


def case_means_of_buckets_are_those_of_their_gradients(backend):
    """Compiled, with buckets of equal shapes, which MindSpore's compiler has confused."""
    backend.set_compile(True)
    shapes = 3 * ((8, 4), (4,), (4,)) + ((2, 2, 2),)
    rng = np.random.default_rng(0)
    gradients = tuple(Tensor(rng.standard_normal(shape, np.float32)) for shape in shapes)
    for bucket_bytes, count in ((1 << 20, 1), (160, 3), (4, 10)):
        with two_ranks(np.array):
            means = AllReduceMean(2, shapes, False, bucket_bytes)
        means.all_reduce = Double()
        assert len(means.buckets) == count
        for mean, gradient in zip(means(gradients), gradients, strict=True):
            np.testing.assert_array_equal(mean.asnumpy(), gradient.asnumpy())


def case_an_accumulated_update_compiles_once(backend):
    trainer = margin_cases.make(backend, COMPILED, 60, {"sample_rate": 0.3}, accumulate=2)
    for step in range(3):
        margin_cases.update(trainer, *(margin_cases.random_batch(8, seed, 60) for seed in (step, 10 + step)), step=step)
    cells = trainer.loss_and_gradients, trainer.accumulate, trainer.update
    assert [len(cell.compile_cache) for cell in cells] == [1, 1, 1]


def case_eager_updates_do_not_slow_down(backend):
    (trainer, _), seconds = make_tsm(backend, EAGER), []
    for seed in range(12):
        start = time.process_time()  # of this process alone, whatever else the machine does
        update(trainer, random_clips(seed=seed), lr=0.01 / (seed + 1))
        seconds.append(time.process_time() - start)
    assert min(seconds[-4:]) < 2 * min(seconds[1:5]), seconds


def case_a_worker_waits_until_the_scheduler_listens(backend):
    with socket.socket() as scheduler:
        scheduler.bind(("127.0.0.1", 0))
        start = time.monotonic()
        threading.Timer(0.3, scheduler.listen).start()
        _await_scheduler(*scheduler.getsockname())
        assert 0.3 <= time.monotonic() - start < 30


def case_an_npu_is_described(backend):
    """Without an NPU: what MindSpore tells of it is replaced."""
    world = World(0, 1, "npu", 1)
    originals = mindspore.hal.get_device_properties, mindspore.runtime.max_memory_allocated
    properties = {(1, "Ascend"): SimpleNamespace(name="Ascend910B", total_memory=1 << 35)}
    mindspore.hal.get_device_properties = lambda index, target: properties[index, target]
    mindspore.runtime.max_memory_allocated = lambda: 123
    try:
        assert world.accelerator() == {"name": "Ascend910B", "memory_bytes": 1 << 35}
        assert world.peak_memory() == 123
    finally:
        mindspore.hal.get_device_properties, mindspore.runtime.max_memory_allocated = originals


def case_the_reason_why_there_is_no_gpu_is_told(backend):
    """No other device is tried, and MindSpore is not asked."""
    with (
        mock.patch.object(world.cuda_libraries, "problem", lambda: "no NVIDIA driver is installed"),
        pytest.raises(UserError, match="there is no cuda:1 here: no NVIDIA driver is installed; use --device cpu"),
    ):
        world.start(Launch(), "cuda:1")


def case_a_gpu_back_end_without_a_gpu_leaves_the_cpu(backend):
    """The back end is available where its libraries are; the number of GPUs fails without a driver that works."""
    count = mock.Mock(side_effect=RuntimeError("no CUDA-capable device is detected"))
    with (
        mock.patch.object(mindspore.hal, "is_available", lambda target: target == "GPU"),
        mock.patch.object(mindspore.hal, "device_count", count),
    ):
        assert world.start(Launch(), "auto").device_type == "cpu"
    count.assert_called_once_with("GPU")


@contextmanager
def skipping_on_a_device():
    """As on a GPU, where the host does not wait for the decision; the shards, and moving averages, too."""
    replaced = {
        "Update": lambda *args, skips_on_host: update_cells.Update(*args, skips_on_host=False),
        "MovingAverage": lambda *args: optimizer.MovingAverage(*args[:-1], False),
    }

    def of_rows(plan, skips_on_host, ranks):
        return optimizer.ParameterUpdate(plan, False, ranks)

    with mock.patch.multiple(trainer_module, **replaced), mock.patch.object(partial_fc, "ParameterUpdate", of_rows):
        yield


def case_updates_that_skip_themselves_on_a_device_follow_the_formulas(backend):
    with skipping_on_a_device():
        for name, compile in (("sgd", False), ("adamw", True)):
            mode, settings = Mode("fp32", None, False, compile), optimizer_cases.settings(name)
            trainer = make(backend, mode, group=frozen_norm, optimizer=settings, clip_norm=optimizer_cases.CLIP_NORM)
            assert not trainer.update.skips_on_host
            batches = [random_batch(seed=seed) for seed in range(4)]
            optimizer_cases.check(trainer, batches, frozen_norm, True, 1e-5)


def case_updates_that_are_skipped_on_a_device_change_nothing(backend):
    eager = SimpleNamespace(**{**vars(backend), "FP32_MODES": (EAGER, EAGER)})
    with skipping_on_a_device():
        update_cases.case_an_update_without_finite_gradient_is_skipped(eager)
        state_cases.case_the_average_of_every_update(eager)
        margin_cases.case_a_skipped_update_changes_nothing(eager)
        margin_cases.case_partial_fc_updates_the_drawn_rows_alone(eager)


def case_gradients_travel_as_fp16(backend):
    rank_cases.check_gradients_travel_as_fp16(backend)
