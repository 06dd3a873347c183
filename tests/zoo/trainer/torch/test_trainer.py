"""PyTorch alone: updates against PyTorch's own optimizer and clipping, autocast, and compiled models."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.helpers.frameworks import adapter
from tests.zoo.trainer import margin_cases, trainer_setup
from tests.zoo.trainer.trainer_setup import make_tsm, random_clips, update
from zoo.data.errors import UserError
from zoo.trainer.plan import Mode
from zoo.trainer.torch import ops
from zoo.trainer.torch.world import World, _check_build


def test_a_batch_is_not_copied_on_a_cpu():
    trainer, _ = make_tsm(adapter("torch"), Mode("fp32", None, True, False))
    batch = random_clips()
    copies = trainer.to_device(batch)
    assert all(np.shares_memory(copies[name].numpy(), array) for name, array in batch.items())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_batches_are_complete_on_a_gpu_when_another_thread_has_copied_them():
    trainer, _ = make_tsm(adapter("torch"), Mode("fp32", None, True, False))
    trainer.device, trainer.copy_stream = torch.device("cuda:0"), torch.cuda.Stream("cuda:0")
    batches = [random_clips(seed=seed) for seed in range(20)]
    with ThreadPoolExecutor(1) as thread:
        for batch, copies in zip(batches, thread.map(trainer.to_device, batches)):
            assert all(copy.device.type == "cuda" for copy in copies.values())
            assert all(np.array_equal(copies[name].cpu().numpy(), array) for name, array in batch.items())


@pytest.mark.parametrize("channels_last", [False, True])
def test_weights_and_images_have_the_memory_format_of_the_plan(channels_last):
    trainer, _ = make_tsm(adapter("torch"), Mode("fp32", None, channels_last, False))
    images = []
    trainer.model.conv1.register_forward_pre_hook(lambda module, inputs: images.extend(inputs))
    update(trainer, random_clips())
    wanted = torch.channels_last if channels_last else torch.contiguous_format
    assert all(tensor.is_contiguous(memory_format=wanted) for tensor in (trainer.model.conv1.weight, *images)), images


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_model_is_compiled_where_the_plan_says_so(compile):
    trainer, _ = make_tsm(adapter("torch"), Mode("fp32", None, True, compile))
    is_compiled = [hasattr(forward, "_orig_mod") for forward in (trainer.train_forward, trainer.eval_forward)]
    assert is_compiled == [compile, compile]


@pytest.mark.parametrize("eval_mixed", [False, True])
@pytest.mark.parametrize("compute, dtype", [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)])
def test_mixed_precision_is_of_evaluation_only_when_asked_for(compute, dtype, eval_mixed):
    trainer, _ = make_tsm(adapter("torch"), Mode(compute, None, True, False), eval_mixed=eval_mixed)
    dtypes = []
    trainer.model.layer1[0].conv1.register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
    update(trainer, random_clips())
    predictions = trainer.predict(trainer.to_device({"video": random_clips()["video"]}))
    assert dtypes == [dtype, dtype if eval_mixed else torch.float32] and predictions.dtype == np.float32
    assert all(tensor.dtype == torch.float32 for tensor in trainer.tensors.values())


@pytest.mark.parametrize("fp32_modules, dtype", [((), torch.bfloat16), (("fc",), torch.float32)])
def test_fp32_modules_keep_32_bits(fp32_modules, dtype):
    backend = adapter("torch")
    trainer = margin_cases.make(backend, Mode("bf16", "O1", True, False), fp32_modules=fp32_modules)
    x = torch.from_numpy(margin_cases.random_batch()["x"])
    with torch.autocast("cpu", torch.bfloat16):
        assert trainer.model(x).dtype == dtype


@pytest.mark.slow
def test_compiled_updates_follow_the_formulas():
    compiled = Mode("fp32", None, True, True)
    trainer_setup.check_updates(adapter("torch"), compiled, clip_norm=0.2, smoothing=0.1)


def test_what_is_compiled_needs_a_compiler(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="train.compile: PyTorch needs g"):
        World(0, 1, torch.device("cpu")).resolve_mode(Mode("fp32", None, None, True))


def test_a_card_is_described(monkeypatch):
    """Without a GPU: what PyTorch tells of it is replaced."""
    world = World(0, 1, torch.device("cuda:1"))
    properties = SimpleNamespace(name="NVIDIA H100", total_memory=80 << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: {"cuda:1": properties}[str(device)])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: {"cuda:1": 123}[str(device)])
    assert world.accelerator() == {"name": "NVIDIA H100", "memory_bytes": 80 << 30}
    assert world.peak_memory() == 123


def test_versions_of_a_build_with_cuda(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 90501)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 26, 2))
    monkeypatch.setattr(torch, "__version__", "2.13.0+cu126")
    world = World(0, 1, torch.device("cpu"))
    assert world.libraries() == {"cuda": "12.6", "cudnn": "9.5.1", "nccl": "2.26.2", "cann": None}
    assert world.version == "2.13.0"


@pytest.mark.parametrize(
    "capability, architectures",
    [((7, 5), ["sm_75", "sm_80"]), ((8, 9), ["sm_80", "sm_86"]), ((9, 0), ["sm_90a"]), ((12, 1), ["compute_100"])],
)
def test_a_gpu_that_the_build_knows(capability, architectures):
    _check_build(capability, architectures)


@pytest.mark.parametrize(
    "capability, architectures, remedy",
    [((7, 0), ["sm_75", "compute_90"], "cu126"), ((8, 0), ["sm_75", "sm_86"], "newer"), ((12, 0), ["sm_90"], "newer")],
)
def test_a_gpu_that_the_build_does_not_know(capability, architectures, remedy):
    with pytest.raises(UserError, match=f"sm_.*{capability[0]}.{capability[1]}.*{remedy}"):
        _check_build(capability, architectures)


def test_the_square_root_of_a_number_in_64_bits():
    assert ops.sqrt(torch.tensor(2.0, dtype=torch.float64)).item() == 2**0.5
