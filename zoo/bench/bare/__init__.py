"""Minimal training loop in each framework with the same update as the zoo's trainer, as a baseline.

Each module offers `loop(job, device_batch)`, which returns a function that runs one update and waits for its loss,
and `OPTIMIZERS`, the names of those it can do by the framework's own class.
"""

LR = 1e-3
MAX_COSINE = 0.999  # keeps the gradient of acos finite
