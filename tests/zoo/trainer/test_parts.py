"""Parts of the trainer that need no framework: blocks, pixels, resampling, rounding, shards, names."""

import itertools
from functools import partial
from itertools import pairwise
from operator import itemgetter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from zoo.data.batch import Field
from zoo.models.resnet import spec as resnet
from zoo.optim.base import Math
from zoo.trainer import numpy_ops, sharding, state, update
from zoo.trainer.pixels import average_matrix, bilinear_matrix, channels_first, resize_bilinear, scale_and_offset
from zoo.trainer.protocol import Param
from zoo.trainer.update import blocks
from zoo.trainer.world import own_times


@pytest.mark.parametrize("size", (1, 50, 400, 1 << 20))
@pytest.mark.parametrize("shape", [(4, 3, 5, 6), (2, 3, 1, 1), (3, 3, 2, 4, 5)])
def test_blocks_cover_every_element_once(shape, size):
    counts = np.zeros(shape, int)
    for block in blocks(shape, size):
        counts[block] += 1
    assert (counts == 1).all()


def test_blocks_have_about_the_given_size():
    """Whole samples, or rows of one; never less than one row."""
    shape = (4, 3, 8, 6)  # a row of all channels has 18 elements, a sample 144

    def sizes(size):
        return {np.zeros(shape)[block].size for block in blocks(shape, size)}

    assert sizes(1) == {18} and sizes(40) == {36} and sizes(300) == {288} and sizes(1 << 20) == {576}


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def test_scale_and_offset_normalize_pixels():
    scale, offset = scale_and_offset(Field("image", (4, 4, 3), "uint8", MEAN, STD))
    assert scale.dtype == offset.dtype == np.float32 and scale.shape == offset.shape == (3,)
    pixels = np.arange(256, dtype=np.float32)[:, None].repeat(3, 1)
    expected = (pixels.astype(np.float64) / 255 - MEAN) / STD
    np.testing.assert_allclose(pixels * scale + offset, expected, atol=1e-6)


def test_a_field_without_pixels_has_no_constants():
    assert scale_and_offset(Field("features", (4,), "float32")) is None


@pytest.mark.parametrize("shape", [(2, 5, 6, 3), (2, 4, 5, 6, 3)])
def test_channels_come_first(shape):
    array = np.arange(np.prod(shape)).reshape(shape)
    np.testing.assert_array_equal(array.transpose(channels_first(array.ndim)), np.moveaxis(array, -1, -3))


@pytest.mark.parametrize("size", [(7, 9), (14, 18), (3, 20), (1, 1), (13, 5)])
@pytest.mark.parametrize("align_corners", [False, True])
def test_bilinear_interpolation(size, align_corners):
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 9))
    expected = F.interpolate(torch.from_numpy(x), size, mode="bilinear", align_corners=align_corners).numpy()
    rows, columns = (bilinear_matrix(*pair, align_corners) for pair in zip((7, 9), size))
    np.testing.assert_allclose(rows @ x @ columns.T, expected, atol=1e-14)


def test_interpolation_of_a_single_pixel():
    np.testing.assert_array_equal(bilinear_matrix(1, 3, True), np.ones((3, 1)))
    np.testing.assert_array_equal(bilinear_matrix(1, 3, False), np.ones((3, 1)))


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_average_pooling(ceil_mode):
    for size, kernel, stride in itertools.product((4, 5, 6, 7), (1, 2, 3), (1, 2, 3)):
        x = np.random.default_rng(size).standard_normal((2, 3, size, 8))
        expected = F.avg_pool2d(torch.from_numpy(x), kernel, stride, 0, ceil_mode, False).numpy()
        rows, columns = (average_matrix(length, kernel, stride, ceil_mode) for length in (size, 8))
        np.testing.assert_allclose(rows @ x @ columns.T, expected, atol=1e-15)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(5, 7), (1, 1), (9, 12), (13, 40), (3, 4)])
def test_resizing_is_that_of_the_matrices(size, align_corners):
    x = np.random.default_rng(2).standard_normal((2, 3, 5, 7)).astype(np.float32)
    rows, columns = (bilinear_matrix(a, b, align_corners) for a, b in zip(x.shape[2:], size))
    expected = np.einsum("ah,nkhw,bw->nkab", rows, x, columns)
    found = resize_bilinear(x, size, align_corners)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)
    torch_result = F.interpolate(torch.from_numpy(x), size, mode="bilinear", align_corners=align_corners)
    np.testing.assert_allclose(found, torch_result.numpy(), atol=1e-6)


round_gradients = partial(update.round_gradients, numpy_ops)


def test_gradients_are_rounded_to_multiples_of_a_power_of_two():
    gradient = 0.3 * np.random.default_rng(0).standard_normal(10_000)
    (rounded,) = round_gradients([gradient])
    spacing = 2.0 ** (np.floor(np.log2(1.5 * np.abs(gradient).max())) - 16)
    np.testing.assert_array_equal(rounded, np.round(gradient / spacing) * spacing)
    assert len(np.unique(rounded)) > 5000  # it is not coarse


def test_noise_makes_no_difference():
    rng = np.random.default_rng(1)
    gradients = [rng.standard_normal(5000) * 10.0**-power for power in range(4)]
    noisy = [gradient * (1 + 1e-14 * rng.standard_normal(gradient.shape)) for gradient in gradients]
    for first, second in zip(round_gradients(gradients), round_gradients(noisy)):
        np.testing.assert_array_equal(first, second)


def test_gradients_that_are_noise_become_zero():
    rng = np.random.default_rng(2)
    gradient, noise, rows = rng.standard_normal(10), 1e-17 * rng.standard_normal(10), 1e-3 * rng.standard_normal((2, 3))
    first, second, third = round_gradients([gradient, noise], [rows])
    assert not second.any()
    assert round_gradients([noise], [rows])[0].any()  # rows of a shard, which other ranks lack, set no floor
    np.testing.assert_allclose(first, gradient, atol=5e-5)
    np.testing.assert_allclose(third, rows, atol=5e-8)
    np.testing.assert_array_equal(third, round_gradients([rows])[0])
    assert not np.array_equal(third, rows)


def test_zeros_and_infinities():
    np.testing.assert_array_equal(round_gradients([np.zeros(3)])[0], np.zeros(3))
    with pytest.warns(RuntimeWarning):
        assert not np.isfinite(round_gradients([np.array([1.0, np.inf])])[0]).all()


@pytest.mark.parametrize("world_size", (1, 2, 3, 4))
@pytest.mark.parametrize("num_rows", (4, 9, 11, 85742))
def test_row_ranges_are_contiguous_and_balanced(num_rows, world_size):
    ranges = [sharding.row_range(num_rows, rank, world_size) for rank in range(world_size)]
    assert ranges[0][0] == 0 and ranges[-1][1] == num_rows
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    lengths = [last - first for first, last in ranges]
    assert max(lengths) - min(lengths) <= 1 and lengths == sorted(lengths, reverse=True)


def test_the_first_ranks_have_one_row_more():
    lengths = [last - first for first, last in (sharding.row_range(85742, rank, 8) for rank in range(8))]
    assert lengths == [10718] * 6 + [10717] * 2


def test_all_positives_are_sampled_and_the_others_uniformly():
    """Sorted and unique."""
    positives, counts = np.array([0, 3, 4, 9]), np.zeros(12)
    for step in range(3000):
        rows = sharding.sample_active_rows(positives, 12, 6, 1, 0, step)
        assert len(rows) == 6 and (np.diff(rows) > 0).all() and set(positives) <= set(rows)
        counts[rows] += 1
    assert (counts[positives] == 3000).all()
    negatives = np.delete(counts, positives)
    assert np.abs(negatives - 3000 * 2 / 8).max() < 5 * np.sqrt(3000 * 0.25 * 0.75)
    assert sharding.sample_active_rows(np.arange(12), 12, 12, 1, 0, 0).tolist() == list(range(12))


def test_a_sample_is_a_function_of_seed_rank_and_step():
    positives = np.array([0, 3, 4, 9])
    first, same, *others = (
        sharding.sample_active_rows(positives, 1000, 100, seed, rank, step).tolist()
        for seed, rank, step in ((1, 0, 5), (1, 0, 5), (2, 0, 5), (1, 1, 5), (1, 0, 6))
    )
    assert first == same and all(first != other for other in others)


def test_the_positives_are_those_of_the_batch_on_this_rank():
    """-1 marks the classes of other ranks."""
    rows = np.array([[7, -1, 3], [3, -1, 7]])
    chosen = sharding.choose_active_rows(rows, 100, 0.2, 1, 0, 5)
    np.testing.assert_array_equal(chosen, sharding.sample_active_rows(np.array([3, 7]), 100, 20, 1, 0, 5))
    assert chosen.dtype == np.int64


def test_enough_rows_for_every_label_and_no_more_than_there_are():
    assert sharding.num_active_rows(1000, 0.1, 32) == 100
    assert sharding.num_active_rows(1000, 0.0001, 32) == 32
    assert sharding.num_active_rows(20, 0.1, 32) == 20


def test_tensors_are_divided_over_ranks_by_size():
    assert sharding.partition({"a": 1, "b": 6, "c": 3, "d": 3}, 2) == {"b": 0, "c": 1, "d": 1, "a": 0}
    assert sharding.partition({"a": 5}, 3) == {"a": 0}
    sizes = {
        name: int(np.prod(shape)) for name, shape in resnet.shapes(resnet.Arch(depth=50, num_classes=1000)).items()
    }
    ranks = sharding.partition(sizes, 2)
    shares = [sum(size for name, size in sizes.items() if ranks[name] == rank) for rank in (0, 1)]
    assert max(shares) < 0.5001 * sum(sizes.values())


@pytest.mark.parametrize("of_weight, of_step", list(itertools.product((0.0, 2.0), repeat=2)))
def test_layers_without_weight_or_step_keep_the_learning_rate(of_weight, of_step):
    trust = Math(numpy_ops).trust(np.array(of_weight), np.array(of_step), np.array(0.25))
    assert trust == (0.25 if of_weight and of_step else 1.0)


SHARD = SimpleNamespace(num_rows=11, first=4, last=8)


def report(gradients=(), **values):
    """Report tensors of one element; those called *_stat are running statistics."""
    params = [Param(name, (1,), name.endswith("_stat")) for name in values]
    tensors = {name: np.array([value]) for name, value in values.items()}
    gradients = {name: None if value is None else np.array([value]) for name, value in dict(gradients).items()}
    return state.nonfinite_report(params, tensors, gradients, lambda array: bool(np.isfinite(array).all()))


def test_a_param_has_the_shape_of_the_whole_tensor():
    assert state.describe("fc.weight", [5, 4], False, None) == Param("fc.weight", (5, 4))
    assert state.describe("bn.running_var", [4], True, None) == Param("bn.running_var", (4,), True)
    sharded = state.describe("head.weight", [4, 6], False, SHARD)
    assert sharded == Param("head.weight", (11, 6), False, (4, 8)) and sharded.size == 66


def test_weights_averages_and_momentum_of_shards_are_sharded_keys():
    keys = {"head.weight", "ema/head.weight", "optimizer/momentum/head.weight", "optimizer/mean/head.weight"}
    assert state.sharded_keys({"head.weight": SHARD}, ("momentum", "mean")) == keys
    assert state.sharded_keys({}, ("momentum",)) == set()


def test_a_report_of_finite_tensors():
    assert report(weight=1.0, mean_stat=2.0, gradients={"weight": 0.0, "bias": None}) == "all finite"


def test_a_report_names_weights_statistics_and_gradients():
    text = report(a=np.nan, b=1.0, mean_stat=np.inf, gradients={"a": -np.inf, "b": 1.0, "c": None})
    assert text == "not finite: weights a; running statistics mean_stat; gradients of a"
    assert report(a=1.0, gradients={"a": np.nan}) == "not finite: gradients of a"


def test_a_report_names_a_few_of_many():
    values = dict.fromkeys("abcde", np.nan)
    assert (
        report(**values, gradients=values) == "not finite: weights a, b, c and 2 more; gradients of a, b, c and 2 more"
    )


def test_keys_of_a_state_that_is_not_finite():
    rows = {"a": [1.0, np.inf], "b": [0.0, 3e38], "ema/a": [np.nan, 1.0], "optimizer/momentum/a": [-np.inf], "c": []}
    arrays = {key: np.array(values, np.float32) for key, values in rows.items()}
    assert state.not_finite(arrays) == ["a", "ema/a", "optimizer/momentum/a"]


def test_own_times_are_without_what_is_within():
    events = [("c", 2, 3), ("a", 0, 10), ("d", 6, 3), ("b", 1, 5), ("e", 10, 1), ("f", 9, 1)]
    found = own_times(
        [{"name": name, "ts": begin, "dur": length} for name, begin, length in events], itemgetter("name")
    )
    assert {name: round(1000 * ms) for name, ms, _ in found} == {"a": 1, "b": 2, "c": 3, "d": 3, "e": 1, "f": 1}
