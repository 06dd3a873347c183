"""Faults in the moving average of weights and statistics, in all three frameworks."""

from tests.mutants.fault import Fault
from tests.mutants.killers import STATE

EVERY_UPDATE = f"{STATE}the_average_of_every_update"
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
        Fault(framework, name, f"zoo/trainer/{framework}/ema.py", old, new, EVERY_UPDATE, recipe, options)
        for name, old, new, recipe, options in rows
    ]


FAULTS = [
    *faults(
        "torch",
        ("rate = torch.where(finite, rate, torch", "rate = torch.where(finite, 1 - rate, torch"),
        ("rate = torch.where(finite, rate, torch.zeros_like(rate))", "rate = torch.where(finite, rate, rate)"),
        ("torch.where(finite, source, self.averages[name])", "self.averages[name]"),
    ),
    *faults(
        "paddle",
        ("rate = paddle.where(finite, rate, paddle", "rate = paddle.where(finite, 1 - rate, paddle"),
        ("rate = paddle.where(finite, rate, paddle.zeros_like(rate))", "rate = paddle.where(finite, rate, rate)"),
        ("paddle.where(finite, source, average)", "average"),
    ),
    *faults(
        "mindspore",
        ("new = average - rate * (average - source)", "new = source - rate * (source - average)"),
        ("finite = consecutive_skips == 0", "finite = consecutive_skips >= 0"),
        (
            "ParameterTuple(tensors.values())",
            "ParameterTuple(self.averages[name] if '.running_' in name else x for name, x in tensors.items())",
        ),
    ),
]
