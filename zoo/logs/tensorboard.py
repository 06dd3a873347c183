"""TensorBoard scalars of a run, written by the tensorboard package alone, without any framework."""

import os
from collections.abc import Iterator, Mapping
from typing import Any


class Scalars:
    """Journal listener that writes the numbers of `train` and `eval` to <run>/tensorboard, as train/loss, say.

    Those in a dictionary have the names of both: train/step_ms/p50.
    """

    def __init__(self, run: str):
        from tensorboard.summary import Writer  # takes half a second to import

        self._writer = Writer(os.path.join(run, "tensorboard"))

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["event"] not in ("train", "eval"):
            return
        values = {name: value for name, value in event.items() if name not in ("event", "time", "step")}
        for name, value in _numbers(event["event"], values):
            self._writer.add_scalar(name, value, event["step"], wall_time=event["time"])
        if event["event"] == "eval":
            self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _numbers(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _numbers(f"{prefix}/{key}", value)
        elif isinstance(value, (int, float)):
            yield f"{prefix}/{key}", value
