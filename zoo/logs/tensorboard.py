"""TensorBoard scalars of a run, written by the tensorboard package alone, without any framework."""

import os
from collections.abc import Mapping
from typing import Any


class Scalars:
    """Journal listener that writes train/* and eval/* scalars to <run>/tensorboard."""

    def __init__(self, run: str):
        from tensorboard.summary import Writer  # takes half a second to import

        self._writer = Writer(os.path.join(run, "tensorboard"))

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["event"] not in ("train", "eval"):
            return
        for name, value in event.items():
            if name not in ("event", "time", "step") and isinstance(value, (int, float)):
                self._writer.add_scalar(f"{event['event']}/{name}", value, event["step"], wall_time=event["time"])
        if event["event"] == "eval":
            self._writer.flush()

    def close(self) -> None:
        self._writer.close()
