"""A trainer of the tiny model with one layer more, for tests of what the trainer makes of a layer."""

from types import SimpleNamespace

from tests.helpers.frameworks import adapter
from tests.zoo.trainer.trainer_setup import make


def converted(layer, mode):
    """Return a layer as it is in the model of a trainer of this mode."""
    backend = adapter("torch")

    class Extended(backend.Tiny):
        def __init__(self, arch):
            super().__init__(arch)
            self.extra = layer

    return make(SimpleNamespace(**{**vars(backend), "Tiny": Extended}), mode).model.extra
