"""Memory and power of a run, for its event `train`.

Energy, clocks, temperature and throttling are those of NVIDIA GPUs by NVML, or of processors by RAPL where readable.
"""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from zoo.trainer.world import World

POWERCAP, PROC = Path("/sys/class/powercap"), Path("/proc")
THROTTLING = {  # reason -> bit of NVML; idling and the user's own limits of the clocks are none
    "power cap": 0x4,
    "hardware slowdown": 0x8,
    "sync boost": 0x10,
    "software thermal slowdown": 0x20,
    "hardware thermal slowdown": 0x40,
    "power brake": 0x80,
}
RULES: Mapping[str, Callable[[Sequence[float]], float]] = {  # that combine the readings of several devices
    "energy_j": sum,
    "watts": sum,
    "sm_clock_mhz": min,
    "memory_clock_mhz": min,
    "temperature_c": max,
}


class Resources:
    """Use of memory and power. is_first_of_host: this rank measures what all ranks of its host share."""

    def __init__(self, world: World, is_first_of_host: bool):
        self._world, self._host_peak = world, 0
        self._power = PowerMeter(world.cuda_index, is_first_of_host)

    def read(self) -> dict[str, Any]:
        """Return this rank's peaks of memory so far, and its power since the last call.

        The host's is that of the sum over this process and its descendants. One that has ended counts as long as it was
        seen, and pages that they share count in each of them.
        """
        me = psutil.Process()
        family = [me, *me.children(recursive=True)]
        self._host_peak = max(self._host_peak, sum(_peak_of(process.pid) for process in family))
        return {"host": self._host_peak, "device": self._world.peak_memory(), "power": self._power.read()}


def combine(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of the event `train`. ranks: what `Resources.read` returns on each."""
    return {
        "host_memory_bytes": sum(rank["host"] for rank in ranks),
        "device_memory_bytes": max((rank["device"] for rank in ranks if rank["device"] is not None), default=None),
        "power": combine_power([rank["power"] for rank in ranks]),
    }


class Nvml:
    """Meter of one NVIDIA GPU.

    Raises:
        Exception: of NVML: there is no such GPU.
    """

    def __init__(self, nvml: ModuleType, device: str):
        """Open the device. device: its number among all GPUs of the host, or its UUID."""
        nvml.nvmlInit()
        self._nvml = nvml
        open_device = nvml.nvmlDeviceGetHandleByIndex if device.isdigit() else nvml.nvmlDeviceGetHandleByUUID
        self._handle = open_device(int(device) if device.isdigit() else device)

    def read(self) -> dict[str, Any]:
        """Return the state now: `joules` since the driver was loaded, and None for what the GPU does not report."""
        nvml = self._nvml
        millijoules = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        return {
            "joules": None if millijoules is None else 1e-3 * millijoules,
            "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": self._ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            "temperature_c": self._ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            "throttled": [name for name, bit in THROTTLING.items() if reasons & bit],
        }

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except (AttributeError, self._nvml.NVMLError):  # an old NVML, or a device without such a sensor
            return None


class Rapl:
    """Meter of the processors of this host, through the counters that the kernel shows (Intel and AMD)."""

    def __init__(self) -> None:
        self._packages = [
            (folder, _read_number(folder / "max_energy_range_uj"))
            for folder in sorted(POWERCAP.glob("intel-rapl:*"))
            if _read_text(folder / "name").startswith("package")  # not its parts, nor the whole platform
        ]
        self._last = [self._microjoules(folder) for folder, _ in self._packages]
        self._total = 0.0

    @property
    def is_readable(self) -> bool:
        """True if there are counters; most systems show them to root alone."""
        return bool(self._last) and None not in self._last

    def read(self) -> dict[str, Any]:
        """Return the state now: `joules` since this meter was made."""
        now = [self._microjoules(folder) for folder, _ in self._packages]
        for (_, limit), last, current in zip(self._packages, self._last, now):
            if current is not None and last is not None:
                wrapped = (limit or 0) if current < last else 0  # the counter starts again at 0
                self._total += 1e-6 * (current + wrapped - last)
        self._last = now
        return {"joules": self._total}

    def _microjoules(self, folder: Path) -> int | None:
        return _read_number(folder / "energy_uj")


class PowerMeter:
    """Meter of the energy of a GPU that this process sees or, without its number, of the host's processors."""

    def __init__(self, cuda_index: int | None, is_first_of_host: bool):
        self._device = _open(cuda_index, is_first_of_host)
        self._time = time.monotonic()
        self._joules = self._device.read()["joules"] if self._device else None

    def read(self) -> dict[str, Any] | None:
        """Return the fields of `power` in the event `train` for this rank's device; None without a meter."""
        if self._device is None:
            return None
        state, now = self._device.read(), time.monotonic()
        joules, seconds = state.pop("joules"), max(now - self._time, 1e-9)
        known = joules is not None and self._joules is not None
        energy = joules - self._joules if known else None
        self._joules, self._time = joules, now
        return {"energy_j": energy, "watts": None if energy is None else energy / seconds, **state}


def combine_power(devices: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Return energy and power of all devices together, their lowest clocks and highest temperature, all reasons.

    A value that one of them lacks is None; `devices` is the number of those that could be measured at all.
    """
    measured = [device for device in devices if device is not None]
    if not measured:
        return None
    combined: dict[str, Any] = {}
    for name, rule in RULES.items():
        known = [device[name] for device in measured if device.get(name) is not None]
        combined[name] = rule(known) if len(known) == len(measured) else None
    reasons = {reason for device in measured for reason in device.get("throttled", ())}
    return {**combined, "throttled": sorted(reasons), "devices": len(measured)}


def _open(cuda_index: int | None, is_first_of_host: bool) -> Nvml | Rapl | None:
    if cuda_index is None:
        meter = Rapl() if is_first_of_host else None
        return meter if meter and meter.is_readable else None
    try:
        import pynvml  # of the package nvidia-ml-py, which is optional

        return Nvml(pynvml, physical_device(cuda_index, os.environ))
    except Exception:  # not installed, no driver, or a device that NVML does not know (MIG): power is not recorded
        return None


def physical_device(cuda_index: int, variables: Mapping[str, str]) -> str:
    """Return number or UUID, for NVML, of a GPU that CUDA_VISIBLE_DEVICES may have renumbered.

    Numbers of NVML and of CUDA are the same where all GPUs of the host are of the same model.
    """
    visible = [entry.strip() for entry in variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    return visible[cuda_index] if cuda_index < len(visible) else str(cuda_index)


def _read_number(path: Path) -> int | None:
    text = _read_text(path)
    return int(text) if text.isdigit() else None


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _peak_of(pid: int) -> int:
    """Return the peak resident memory of a process in bytes, 0 if it has ended."""
    match = re.search(r"^VmHWM:\s*(\d+) kB$", _read_text(PROC / str(pid) / "status"), re.MULTILINE)
    return 1024 * int(match[1]) if match else 0
