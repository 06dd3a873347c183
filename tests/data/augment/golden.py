"""What upstream projects computed: tests/golden/augment.npz, described in README.txt there."""

from functools import cache

import numpy as np

from tests.helpers.paths import GOLDEN


@cache
def load() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "augment.npz") as file:
        return {name: file[name] for name in file.files}
