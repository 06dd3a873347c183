"""Interpolation and average pooling as matrices, against PyTorch's kernels in float64."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from zoo.trainer.pixels import average_matrix, bilinear_matrix, resize_bilinear


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
