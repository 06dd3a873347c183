"""zoo/parity/recorders/common.py without a framework."""

from types import SimpleNamespace

from zoo.parity.recorders.common import dropout_rates, is_dropout


class Dropout(SimpleNamespace):
    pass


class DropPath(SimpleNamespace):
    pass


class StochasticDepth(SimpleNamespace):
    pass


class Pooling(SimpleNamespace):
    pass


def test_dropout_is_known_by_its_class_or_name():
    """One without a rate, or whose rate is not set, has none that could differ."""
    modules = {
        "a": Dropout(p=0.5),
        "b": DropPath(drop_prob=0.1),
        "c": StochasticDepth(keep_prob=0.75),
        "d": DropPath(drop_prob=None),
        "e": Pooling(p=3),
    }
    assert [path for path, module in modules.items() if is_dropout(module, (Dropout,))] == ["a", "b", "c", "d"]
    assert dropout_rates(modules, (Dropout,)) == {"a": 0.5, "b": 0.1, "c": 0.25}
