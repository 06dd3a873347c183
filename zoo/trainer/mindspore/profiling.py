"""MindSpore's profiler."""

import csv
import shutil
from pathlib import Path

from mindspore import profiler
from mindspore.profiler import ProfilerActivity

from zoo.trainer.world import TRACE, Operator

ACTIVITIES = {"cpu": (), "cuda": (ProfilerActivity.GPU,), "npu": (ProfilerActivity.NPU,)}  # by type of the device
TYPES = "**/*op_type_info_*.csv"  # operators by type, which MindSpore writes for a CPU and for a GPU


class Profiler:
    """See Profiler in zoo/trainer/world.py. An NPU's files are kept, but not read: there is no table."""

    def __init__(self, device_type: str):
        self._activities = [ProfilerActivity.CPU, *ACTIVITIES[device_type]]

    def start(self, folder: str) -> None:
        self._folder = Path(folder)
        handler = profiler.tensorboard_trace_handler(dir_name=folder)
        self._profiler = profiler.profile(activities=self._activities, on_trace_ready=handler, start_profile=False)
        self._profiler.start()

    def stop(self) -> list[Operator]:
        self._profiler.stop()
        for path in self._folder.glob("**/trace_view.json"):
            shutil.copy(path, self._folder / TRACE)
        return [operator for path in self._folder.glob(TYPES) for operator in operators(path)]


def operators(path: Path) -> list[Operator]:
    """Return the operators of a table that MindSpore has written, with times in milliseconds."""
    with open(path, encoding="utf-8", newline="") as file:
        return [
            Operator(row["op_type"], float(row["total_compute_time"]), int(row["type_occurrences"]))
            for row in csv.DictReader(file)
        ]
