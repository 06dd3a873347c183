"""What upstream projects computed (tests/golden/augment.npz, described in README.txt there), and their draws."""

from functools import cache

import numpy as np

from tests.helpers.paths import GOLDEN


@cache
def load() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "augment.npz") as file:
        return {name: file[name] for name in file.files}


class Scripted:
    """A random generator whose methods return the given values in turn, whatever their arguments."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def _next(self, *_, **__):
        return self.draws.pop(0)

    random = uniform = integers = permutation = beta = standard_normal = _next
