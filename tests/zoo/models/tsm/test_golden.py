"""Parameter groups of TSM against those recorded from mit-han-lab's implementation; see tests/golden/README.txt.

Its outputs are compared in tests/zoo/models/model_cases.py.
"""

import pytest
import torch

from tests.zoo.models.tsm.golden import (
    CASES,
    CLASSES,
    GOLDEN,
    SEGMENTS,
    recorded,
    relative,
)
from zoo.models.tsm.spec import Arch, lr_and_decay_scale
from zoo.models.tsm.torch import Model

VARIANTS = {
    "npb": {},
    "npb_plain_fc": dict(fc_lr5=False),
    "partial_bn": dict(partial_bn=True),
    "npb_nonlocal": dict(non_local=True),
    "partial_bn_nonlocal": dict(partial_bn=True, non_local=True),
}


def test_the_recorded_cases_differ():
    """Otherwise a model that ignores an option would pass."""
    golden = recorded()
    for mode in ("eval", "train"):
        logits = [golden[f"{case}/{mode}"] for case in CASES]
        for i, value in enumerate(logits):
            assert all(relative(value, previous) > 1e-2 for previous in logits[:i])


@pytest.mark.parametrize("variant, options", VARIANTS.items())
def test_parameter_groups_equal_upstream(variant, options):
    lines = [line.split() for line in (GOLDEN / "tsm_groups.txt").read_text().splitlines() if not line.startswith("#")]
    column = lines[0].index(variant)
    theirs = {row[0]: row[column] for row in lines[1:] if row[column] != "-"}
    arch = Arch(num_classes=CLASSES, segments=SEGMENTS, **options)
    with torch.device("meta"):
        ours = {name: lr_and_decay_scale(arch, name) for name, _ in Model(arch).named_parameters()}
    assert ours.keys() == theirs.keys()
    for name, factors in theirs.items():
        if factors == "frozen":
            assert ours[name][0] == 0, name
        elif factors == "nogroup":  # upstream omits these; ours are trained like the other normalizations
            assert ".nl.bn." in name and ours[name] == (1, 0), name
        else:
            assert ours[name] == tuple(map(float, factors.split("/"))), name
