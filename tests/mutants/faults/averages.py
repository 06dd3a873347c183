"""Faults in the moving average of weights and statistics, in all three frameworks."""

from tests.mutants.fault import Fault
from tests.mutants.killers import STATE

EVERY_UPDATE = f"{STATE}the_average_of_every_update"
FILES = dict.fromkeys(("torch", "paddle"), "zoo/trainer/ema.py") | {"mindspore": "zoo/trainer/mindspore/ema.py"}
EMA = ("train.ema=0.9",)


def faults(
    framework: str, swapped: tuple[str, str], skipped: tuple[str, str], statistics: tuple[str, str]
) -> list[Fault]:
    """Return the same slips in a framework.

    Args:
        swapped: what becomes what if decay and 1 - decay change places.
        skipped: if an update that is skipped counts.
        statistics: if running statistics stay as they were.
    """
    rows = [
        ("decay and 1 - decay of the moving average are swapped", *swapped, "resnet50", EMA),
        ("a skipped update moves the moving average", *skipped, "", ()),
        ("the moving average leaves the running statistics out", *statistics, "resnet50", EMA),
    ]
    return [
        Fault(framework, name, FILES[framework], old, new, EVERY_UPDATE, recipe, options)
        for name, old, new, recipe, options in rows
    ]


FAULTS = [
    *(
        fault
        for framework in ("torch", "paddle")
        for fault in faults(
            framework,
            ("rate = ops.where(finite, rate, ops", "rate = ops.where(finite, 1 - rate, ops"),
            ("rate = ops.where(finite, rate, ops.zeros_like(rate))", "rate = ops.where(finite, rate, rate)"),
            ("ops.where(finite, sources[name], self.averages[name])", "self.averages[name]"),
        )
    ),
    *faults(
        "mindspore",
        ("moved(average, source, rate)", "moved(source, average, rate)"),
        ("finite = consecutive_skips == 0", "finite = consecutive_skips >= 0"),
        (
            "ParameterTuple(tensors.values())",
            "ParameterTuple(self.averages[name] if '.running_' in name else x for name, x in tensors.items())",
        ),
    ),
]
