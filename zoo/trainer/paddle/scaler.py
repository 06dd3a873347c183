"""Dynamic loss scale. It lives on the host, where the decision to skip an update is taken."""

import numpy as np

GROWTH, BACKOFF, PATIENCE = 2.0, 0.5, 2000  # doubled after 2000 good steps, halved after a bad one


class LossScaler:
    """scale: 1 and constant unless dynamic. skipped, consecutive_skips: updates skipped so far, and in a row."""

    def __init__(self, dynamic: bool, initial: float):
        self.dynamic = dynamic
        self.scale = initial if dynamic else 1.0
        self.good_steps = self.skipped = self.consecutive_skips = 0.0

    def update(self, finite: bool) -> None:
        """Take note of one step."""
        self.skipped += not finite
        self.consecutive_skips = 0.0 if finite else self.consecutive_skips + 1
        if not self.dynamic:
            return
        self.good_steps = self.good_steps + 1 if finite else 0.0
        if not finite:
            self.scale *= BACKOFF
        elif self.good_steps >= PATIENCE:
            self.scale, self.good_steps = self.scale * GROWTH, 0.0

    def state(self) -> dict[str, np.ndarray]:
        return {f"scaler/{name}": np.array(getattr(self, {"good": "good_steps"}.get(name, name)), np.float32) for name in ("scale", "good", "skipped")}

    def load(self, name: str, value: np.ndarray) -> None:
        setattr(self, {"good": "good_steps"}.get(name, name), float(value))
