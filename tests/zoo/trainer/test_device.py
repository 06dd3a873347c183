"""The device of a process."""

import pytest

from zoo.data.errors import UserError
from zoo.trainer.device import Device, cann_version, dotted_cudnn, select_device
from zoo.trainer.world import Launch


def select(setting, launch=None, **counts):
    return select_device(setting, launch or Launch(), ("cuda", "npu"), lambda kind: counts.get(kind, 0), "Framework")


def test_auto_takes_the_first_accelerator_that_is_present():
    assert select("auto", cuda=2, npu=1) == Device("cuda", 0)
    assert select("auto", npu=1) == Device("npu", 0)
    assert select("auto") == select("cpu", cuda=1) == Device("cpu")


def test_the_index_of_the_setting():
    assert select("cuda", cuda=2) == Device("cuda", 0)
    assert select("cuda:1", cuda=2) == Device("cuda", 1)
    assert (str(Device("cuda", 1)), str(Device("cpu"))) == ("cuda:1", "cpu")


def test_several_processes_take_the_device_of_their_local_rank():
    """But the only one that a launcher shows them."""
    launch = Launch(rank=5, size=8, local_rank=1)
    assert select("cuda", launch, cuda=4) == select("cuda:3", launch, cuda=4) == Device("cuda", 1)
    assert select("cuda", launch, cuda=1) == Device("cuda", 0)
    assert select("cpu", launch, cuda=4) == Device("cpu")


@pytest.mark.parametrize("setting", ("gpu", "tpu:0", "cpu:0", "cuda:x", "cuda:-1", "cuda:0:0", ""))
def test_malformed_settings_are_refused(setting):
    with pytest.raises(UserError, match="expected auto, cpu, cuda, cuda:N, npu or npu:N, got"):
        select(setting, cuda=1)


@pytest.mark.parametrize("setting, counts", [("cuda", {}), ("cuda:2", {"cuda": 2}), ("npu:0", {"cuda": 2})])
def test_devices_that_are_not_there_are_refused(setting, counts):
    with pytest.raises(UserError, match="there is no .* here .* that Framework finds: .*; use --device cpu"):
        select(setting, **counts)


def test_a_device_beyond_those_of_this_machine_is_refused():
    with pytest.raises(UserError, match="there is no cuda:5"):
        select("cuda", Launch(rank=5, size=8, local_rank=5), cuda=4)


@pytest.mark.parametrize(
    "number, text", [(90501, "9.5.1"), (91002, "9.10.2"), (8902, "8.9.2"), (0, None), (None, None)]
)
def test_versions_of_cudnn(number, text):
    assert dotted_cudnn(number) == text


@pytest.mark.parametrize(
    "file, content",
    [
        ("version.cfg", "# version: 1.0\nruntime_running_version=[8.0.RC3:x]\ncompiler_running_version=[7.0.0:x]\n"),
        (
            "aarch64-linux/ascend_toolkit_install.info",
            "package_name=Ascend-cann-toolkit\nversion=8.0.RC3\narch=aarch64\n",
        ),
    ],
)
def test_the_version_of_cann(file, content, tmp_path, monkeypatch):
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    assert cann_version() is None
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(content)
    assert cann_version() == "8.0.RC3"
