"""Dynamic loss scale that lives on the device, so that an overflow is noticed and answered without waiting for it."""

import torch

GROWTH, BACKOFF, PATIENCE = 2.0, 0.5, 2000  # as torch.amp.GradScaler: doubled after 2000 good steps, halved after a bad


class LossScaler:
    """scale: 0-d fp32, 1 and constant unless dynamic. skipped, consecutive_skips: updates skipped so far, and in a row."""

    def __init__(self, device: torch.device, dynamic: bool, initial: float):
        self.dynamic = dynamic
        self.scale = torch.full((), initial if dynamic else 1.0, device=device)
        self.good_steps = torch.zeros((), device=device)
        self.skipped = torch.zeros((), device=device)
        self.consecutive_skips = torch.zeros((), device=device)

    def update(self, finite: torch.Tensor) -> None:
        """Take note of one step; finite: 0-d bool."""
        bad = (~finite).float()
        self.skipped = self.skipped + bad
        self.consecutive_skips = (self.consecutive_skips + 1) * bad
        if self.dynamic:
            self.good_steps = (self.good_steps + 1) * (1 - bad)
            grown = torch.where(self.good_steps >= PATIENCE, self.scale * GROWTH, self.scale)
            self.good_steps = torch.where(self.good_steps >= PATIENCE, torch.zeros_like(self.good_steps), self.good_steps)
            self.scale = torch.where(finite, grown, self.scale * BACKOFF)

    def state(self) -> dict[str, torch.Tensor]:
        return {"scaler/scale": self.scale, "scaler/good": self.good_steps, "scaler/skipped": self.skipped}

    def load(self, name: str, value: torch.Tensor) -> None:
        setattr(self, {"good": "good_steps"}.get(name, name), value.to(self.scale.device))
