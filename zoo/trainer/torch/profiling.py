"""PyTorch's profiler."""

import os
from typing import Any

from torch.profiler import ProfilerActivity, profile

from zoo.trainer.world import TRACE, Operator


class Profiler:
    """See Profiler in zoo/trainer/world.py: on a GPU its kernels and copies, else operators by their own time."""

    def __init__(self, on_device: bool):
        self._on_device = on_device
        self._profile = profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_device)

    def start(self, folder: str) -> None:
        self._path = os.path.join(folder, TRACE)
        self._profile.start()

    def stop(self) -> list[Operator]:
        self._profile.stop()
        self._profile.export_chrome_trace(self._path)
        own_time = "self_device_time_total" if self._on_device else "self_cpu_time_total"
        return [
            Operator(event.key, getattr(event, own_time) / 1000, event.count)
            for event in self._profile.key_averages()
            if is_work(event, self._on_device)
        ]


def is_work(event: Any, on_device: bool) -> bool:
    """Return whether an entry counts: on a GPU its kernels and copies, not the operators that have launched them."""
    return not event.is_user_annotation and (event.device_type.name != "CPU" or not on_device)
