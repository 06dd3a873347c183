"""A random generator whose draws a test knows."""

import numpy as np


class GivenDraws:
    """It returns the draws in turn, and fails where one is out of the range that is asked for."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def random(self):
        return self.draws.pop(0)

    def uniform(self, low, high):
        value = self.draws.pop(0)
        assert low - 1e-6 <= value <= high + 1e-6
        return value

    def integers(self, low, high=None, size=None):
        low, high = (0, low) if high is None else (low, high)
        value = self.draws.pop(0) if size is None else np.array([self.draws.pop(0) for _ in range(size)])
        assert np.all(np.asarray(value) >= low) and np.all(np.asarray(value) < high)
        return value
