"""Our TSM against numbers recorded from mit-han-lab's own network (tests/golden/README.txt says how)."""

import pytest
import torch

from tests.zoo.models.tsm.golden import (
    CASES,
    CLASSES,
    GOLDEN,
    SEGMENTS,
    TOLERANCE,
    differences,
    drawn,
    recorded,
    relative,
    video,
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


def filled(case):
    net = Model(Arch(num_classes=CLASSES, segments=SEGMENTS, dropout=0.0, **CASES[case]))
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if not name.endswith("num_batches_tracked"):
                tensor.copy_(torch.from_numpy(drawn(name, tuple(tensor.shape))))
    return net


@pytest.mark.parametrize("case", CASES)
def test_equals_upstream(case):
    net, clips = filled(case), torch.from_numpy(video())
    with torch.no_grad():
        evaluated = net.eval()(clips).numpy()
        trained = net.train()(clips).numpy()
    state = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
    found = differences(case, evaluated, trained, state)
    assert max(found.values()) <= TOLERANCE, found


def test_the_recorded_cases_differ():
    """Else a net that ignores an option would pass."""
    golden = recorded()
    for mode in ("eval", "train"):
        logits = [golden[f"{case}/{mode}"] for case in CASES]
        for i, one in enumerate(logits):
            assert all(relative(one, other) > 1e-2 for other in logits[:i])


@pytest.mark.parametrize("variant, options", VARIANTS.items())
def test_parameter_groups_equal_upstream(variant, options):
    lines = [line.split() for line in (GOLDEN / "tsm_groups.txt").read_text().splitlines() if not line.startswith("#")]
    column = lines[0].index(variant)
    theirs = {row[0]: row[column] for row in lines[1:] if row[column] != "-"}
    arch = Arch(num_classes=CLASSES, segments=SEGMENTS, **options)
    with torch.device("meta"):
        ours = {name: lr_and_decay_scale(arch, name) for name, _ in Model(arch).named_parameters()}
    assert ours.keys() == theirs.keys()
    for name, recorded in theirs.items():
        if recorded == "frozen":
            assert ours[name][0] == 0, name
        elif recorded == "nogroup":  # upstream forgets these; ours train like any other normalisation
            assert ".nl.bn." in name and ours[name] == (1, 0), name
        else:
            assert ours[name] == tuple(map(float, recorded.split("/"))), name
