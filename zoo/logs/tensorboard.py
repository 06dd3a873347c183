"""Events as TensorBoard scalars, by the tensorboard package alone (no framework)."""

import os
from collections.abc import Mapping
from typing import Any


class Scalars:
    """Listens to a journal and writes train/* and eval/* to <run>/tensorboard."""

    def __init__(self, run: str):
        from tensorboard.summary import Writer  # half a second of imports

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
