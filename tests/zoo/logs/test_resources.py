"""Memory of a process and its descendants; energy, clocks and throttling, from a fake NVML and made-up counters."""

import sys
from types import SimpleNamespace

import pytest

from zoo.logs import resources
from zoo.logs.resources import PowerMeter, physical_device
from zoo.logs.resources import combine_power as combine


class NVMLError(Exception):
    pass


def fake_nvml(**device):
    """Return a module like pynvml with devices 0 and 1 and GPU-abc; fields of the state: joules, clocks and so on."""
    state = SimpleNamespace(**{"joules": 1000, "sm": 1980, "memory": 2619, "celsius": 60, "reasons": 0x1, **device})

    def ask(name):
        def answer(handle, *arguments):
            value = getattr(state, name)
            if value is None:
                raise NVMLError("not supported")
            return value[arguments[0]] if isinstance(value, dict) else value

        return answer

    def open_device(device):
        if device not in (0, 1, "GPU-abc"):
            raise NVMLError(f"no device {device}")
        return f"handle {device}"

    state.clocks = {"sm": state.sm, "memory": state.memory}
    return SimpleNamespace(
        state=state,
        NVMLError=NVMLError,
        NVML_CLOCK_SM="sm",
        NVML_CLOCK_MEM="memory",
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=open_device,
        nvmlDeviceGetHandleByUUID=open_device,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: 1000 * ask("joules")(handle),
        nvmlDeviceGetClockInfo=ask("clocks"),
        nvmlDeviceGetTemperature=lambda handle, sensor: ask("celsius")(handle),
        nvmlDeviceGetCurrentClocksThrottleReasons=ask("reasons"),
    )


@pytest.fixture
def now(monkeypatch):
    """Time in seconds that the test sets."""
    clock = [5.0]
    monkeypatch.setattr(resources.time, "monotonic", lambda: clock[0])
    return clock


def install(monkeypatch, module):
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_gpu(monkeypatch, now):
    module = fake_nvml()
    install(monkeypatch, module)
    meter = PowerMeter(1, False)
    module.state.joules, now[0] = 2400, 7.0
    module.state.reasons = 0x1 | 0x4 | 0x40
    assert meter.read() == {
        "energy_j": pytest.approx(1400),
        "watts": pytest.approx(700),
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 2619,
        "temperature_c": 60,
        "throttled": ["power cap", "hardware thermal slowdown"],
    }
    module.state.joules, now[0], module.state.reasons = 2500, 8.0, 0
    read = meter.read()
    assert (read["energy_j"], read["watts"], read["throttled"]) == (pytest.approx(100), pytest.approx(100), [])


@pytest.mark.parametrize(
    "visible, index, device",
    [("", 1, "1"), ("3,5", 1, "5"), ("GPU-abc, GPU-def", 1, "GPU-def"), ("3", 0, "3"), ("NoDevFiles", 2, "2")],
)
def test_devices_that_the_environment_renumbers(visible, index, device):
    assert physical_device(index, {"CUDA_VISIBLE_DEVICES": visible}) == device


def package(root, number, microjoules, name=None, limit=1_000_000_000):
    folder = root / f"intel-rapl:{number}"
    folder.mkdir(exist_ok=True)
    (folder / "name").write_text(f"{name or f'package-{number}'}\n")
    (folder / "max_energy_range_uj").write_text(f"{limit}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")


def test_processors(monkeypatch, tmp_path, now):
    """Counters of packages; those of their parts and of the whole platform would count twice."""
    monkeypatch.setattr(resources, "POWERCAP", tmp_path)
    package(tmp_path, 0, 5_000_000)
    package(tmp_path, 1, 990_000_000)
    package(tmp_path, "0:0", 1_000_000, "core")
    package(tmp_path, 2, 1_000_000, "psys")
    meter = PowerMeter(None, True)
    package(tmp_path, 0, 45_000_000)
    package(tmp_path, 1, 50_000_000)  # began again at 0
    package(tmp_path, "0:0", 900_000_000, "core")
    now[0] = 7.0
    assert meter.read() == {"energy_j": pytest.approx(40 + 60), "watts": pytest.approx(50)}
    now[0] = 8.0
    assert meter.read() == {"energy_j": pytest.approx(0), "watts": pytest.approx(0)}
    assert PowerMeter(None, False).read() is None  # the first rank of the host measures for all


def test_devices_together():
    first = {"energy_j": 100.0, "watts": 50.0, "sm_clock_mhz": 1980, "memory_clock_mhz": 2619, "temperature_c": 60}
    second = {**first, "sm_clock_mhz": 1500, "temperature_c": 80, "throttled": ["power cap"]}
    assert combine([{**first, "throttled": []}, None, second]) == {
        "energy_j": 200.0,
        "watts": 100.0,
        "sm_clock_mhz": 1500,
        "memory_clock_mhz": 2619,
        "temperature_c": 80,
        "throttled": ["power cap"],
        "devices": 2,
    }
    assert combine([first, {**second, "watts": None}])["watts"] is None
    assert combine([None, None]) is None
    assert combine([{"energy_j": 1.0, "watts": 2.0}])["sm_clock_mhz"] is None
