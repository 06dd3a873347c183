"""The device of exported models: threads from the environment, GPUs only where this ONNX Runtime uses them."""

import onnxruntime
import pytest

from zoo.data.errors import UserError
from zoo.trainer.onnx import world
from zoo.trainer.world import Launch


def test_threads_are_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    started = world.start(Launch(), "auto")
    assert (started.device, started.threads, started.providers) == ("cpu (3 threads)", 3, ["CPUExecutionProvider"])
    assert started.cuda_index is None and started.version == onnxruntime.__version__
    monkeypatch.setattr(world.host, "cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(world.host, "cpu_quota", lambda: 2.0)
    for value in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert world.start(Launch(), "cpu").threads == 2


def test_gpus_that_there_are(monkeypatch):
    monkeypatch.setattr(world, "_device_count", lambda kind: {"cuda": 2, "tensorrt": 2}[kind])
    assert world.start(Launch(), "auto").providers[0] == ("CUDAExecutionProvider", {"device_id": "0"})
    started = world.start(Launch(), "tensorrt:1")
    assert started.providers == [("TensorrtExecutionProvider", {"device_id": "1"}), "CPUExecutionProvider"]
    assert started.device == "tensorrt:1"
    assert world.start(Launch(1, 2, 1), "cuda").device == "cuda:1"
    with pytest.raises(UserError, match="there is no cuda:2 here"):
        world.start(Launch(), "cuda:2")


def test_gpus_that_this_onnx_runtime_does_not_use():
    for device in ("cuda", "tensorrt"):
        with pytest.raises(UserError, match=f"there is no {device}:0 here .* that ONNX Runtime finds: 0"):
            world.start(Launch(), device)
