"""zoo/parity/probe.py without a framework."""

import numpy as np
import pytest

from zoo.parity.probe import Archive, Partner, Probe, _like_mask, _unmerged
from zoo.parity.record import empty


class Pool:
    pass


def passed(probe, inputs, outputs):
    """Let a model of one module report a pass; return what replaces its tensors."""
    found = [probe.enter("pool", Pool(), [inputs]).values[0], probe.leave([outputs]).values[0]]
    probe.close()
    return found


@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (0, 3, 1, 2)])
def test_axes_of_one_and_channels_that_are_elsewhere(tmp_path, axes):
    """One model keeps the axes of a mean, the other has none, and channels at the other end; values are the same."""
    archive, modules, generator = Archive(tmp_path), {"pool": Pool()}, np.random.default_rng(0)
    image, mean = generator.normal(size=(2, 3, 4, 5)), generator.normal(size=(2, 3, 1, 1))
    first, second = empty("torch", "fp64", {}), empty("jax", "fp64", {})
    assert passed(Probe(modules, first, "evaluation", archive), image, mean) == [None, None]
    keys = {("pool", 0): "evaluation/0"}
    partner = Partner(archive, keys, {("pool", 0): ("pool", 0)}, frozenset(keys))
    probe = Probe(modules, second, "evaluation", None, partner)
    replaced = passed(probe, image.transpose(axes) + 1e-9, mean[:, :, 0, 0] + 1e-9)
    np.testing.assert_array_equal(replaced[0], image.transpose(axes))
    np.testing.assert_array_equal(replaced[1], mean[:, :, 0, 0])
    assert second.shapes["evaluation/0/in0"] == (2, 3, 4, 5) and second.shapes["evaluation/0/out0"] == (2, 3, 1, 1)


@pytest.mark.parametrize(
    "shape, reference, order",
    [
        ((2, 3), (2, 3), (0, 1)),
        ((), (), ()),
        ((2, 5, 12), (2, 5, 3, 4), (0, 1, 2, 3)),  # heads
        ((22, 6), (2, 6, 11), (0, 2, 1)),  # samples and positions
        ((12, 11), (2, 6, 11), (0, 1, 2)),
        ((3, 44), (2, 6, 11), None),
    ],
)
def test_axes_that_the_other_side_has_merged(shape, reference, order):
    assert _unmerged(shape, reference) == order


def test_masks_that_are_bool_and_that_are_added():
    keep = np.array([[True, False], [True, True]])
    added = np.where(keep, 0.0, -1e9)
    for mask in (keep, ~keep):  # by the conventions of modules
        np.testing.assert_array_equal(_like_mask(mask, added), added)
        np.testing.assert_array_equal(_like_mask(added, mask), mask)
    other = np.array([[True, False], [False, True]])
    for array, reference in ((other, added), (keep, 0.5 * keep), (added, added - 1), (keep[:1], added)):
        assert _like_mask(array, reference) is array
