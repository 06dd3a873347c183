"""Our TSM against numbers recorded from mit-han-lab's own network (tests/golden/README.txt says how)."""
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from zoo.tsm.spec import Arch, rule
from zoo.tsm.torch import Net

GOLDEN = Path(__file__).parent / "golden"
CLASSES, SEGMENTS, VIDEOS, SIDE = 7, 8, 2, 64
CASES = {
    "r50_blockres": dict(depth=50),
    "r50_block": dict(depth=50, shift_place="block"),
    "r50_tpool": dict(depth=50, temporal_pool=True),
    "r50_nonlocal": dict(depth=50, non_local=True),
    "r101_blockres": dict(depth=101),
}
VARIANTS = {
    "npb": {},
    "npb_plain_fc": dict(fc_lr5=False),
    "partial_bn": dict(partial_bn=True),
    "npb_nonlocal": dict(non_local=True),
    "partial_bn_nonlocal": dict(partial_bn=True, non_local=True),
}
WATCHED = {"bn1": 1, "layer4.2.bn3": 32}  # every n-th channel's running statistics after one training forward
TOLERANCE = 1e-5  # of float32 against logits recorded in float64


def drawn(name, shape):
    """Weights that hide nothing: a function of the canonical name and the shape alone, float32.

    No scale is 1, no shift and no statistic trivial, non-local blocks contribute. Residual branches end in smaller
    scales and attention is soft: otherwise batch statistics of so few pixels amplify float32's rounding past 1e-5.
    """
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if name.endswith("running_var"):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if name.endswith(("bn3.weight", "nl.bn.weight")):
        return rng.uniform(0.1, 0.4, shape).astype(np.float32)
    if len(shape) == 1 and name.endswith("weight"):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if len(shape) == 1:
        return (0.1 * rng.standard_normal(shape)).astype(np.float32)
    scale = np.float32(np.prod(shape[1:]) ** -0.5 * (0.5 if ".theta." in name or ".phi." in name else 1))
    return rng.standard_normal(shape, dtype=np.float32) * scale


def video():
    rng = np.random.default_rng(2019)
    return rng.standard_normal((VIDEOS, SEGMENTS, 3, SIDE, SIDE), dtype=np.float32)


def filled(case):
    net = Net(Arch(num_classes=CLASSES, segments=SEGMENTS, dropout=0.0, **CASES[case]))
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if not name.endswith("num_batches_tracked"):
                tensor.copy_(torch.from_numpy(drawn(name, tuple(tensor.shape))))
    return net


def relative(ours, theirs):
    return np.abs(ours - theirs).max() / np.abs(theirs).max()


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "tsm.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("case", CASES)
def test_equals_upstream(case, golden):
    net, clips = filled(case), torch.from_numpy(video())
    with torch.no_grad():
        evaluated = net.eval()(clips).numpy()
        trained = net.train()(clips).numpy()
    assert relative(evaluated, golden[f"{case}/eval"]) <= TOLERANCE
    assert relative(trained, golden[f"{case}/train"]) <= TOLERANCE
    state = net.state_dict()
    for norm, step in WATCHED.items():
        for statistic in ("running_mean", "running_var"):
            ours = state[f"{norm}.{statistic}"][::step].numpy()
            assert relative(ours, golden[f"{case}/{norm}.{statistic}"]) <= TOLERANCE, (norm, statistic)


def test_the_recorded_cases_differ(golden):
    """Else a net that ignores an option would pass."""
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
        ours = {name: rule(arch, name) for name, _ in Net(arch).named_parameters()}
    assert ours.keys() == theirs.keys()
    for name, recorded in theirs.items():
        if recorded == "frozen":
            assert ours[name][0] == 0, name
        elif recorded == "nogroup":  # upstream forgets these; ours train like any other normalisation
            assert ".nl.bn." in name and ours[name] == (1, 0), name
        else:
            assert ours[name] == tuple(map(float, recorded.split("/"))), name
