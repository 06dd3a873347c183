"""Confusion matrix: the colors of its cells."""

import numpy as np
import pytest

from zoo.visualization import canvas

WHITE, BLUE, GRAY = [255, 255, 255], [8, 48, 107], [230, 230, 230]


def cells(image, count):
    """Return the colors of the centers of `count` x `count` cells, at the lower right of an image."""
    side = max(canvas.SIDE // count, 1)
    centers = np.arange(count) * side + side // 2 - count * side
    return image[centers][:, centers].tolist()


def test_rows_are_labels_and_columns_predictions():
    image = canvas.confusion_matrix(np.array([[4, 0, 0], [1, 1, 0]]), ["a", "b"])
    half = np.rint((np.array(WHITE) + BLUE) / 2).tolist()
    assert cells(image, 2) == [[BLUE, WHITE], [half, half]]
    assert (image[: -2 * (canvas.SIDE // 2)] < 100).any()  # names


def test_predictions_of_no_class_have_a_column_and_classes_without_samples_a_gray_row():
    image = canvas.confusion_matrix(np.array([[0, 0, 3], [0, 0, 0]]), ["a", "b"])
    side = canvas.SIDE // 3
    centers = np.arange(3) * side + side // 2 - 3 * side
    assert image[side // 2 - 2 * side][centers].tolist() == [WHITE, WHITE, BLUE]
    assert image[-side // 2][centers].tolist() == [GRAY] * 3


@pytest.mark.parametrize("count", [33, 640, 1000])
def test_many_classes_have_no_text(count):
    matrix = np.zeros((count, count + 1), np.int32)
    matrix[np.arange(count), np.arange(count)] = 7
    image = canvas.confusion_matrix(matrix, range(count))
    cell = max(canvas.SIDE // count, 1)
    assert image.shape == (cell * count, cell * count, 3)
    assert np.array_equal((image == BLUE).all(2), np.kron(np.eye(count), np.ones((cell, cell))))


def test_long_names_are_cut():
    names = ["x" * 200, "y"]
    width = canvas.confusion_matrix(np.zeros((2, 3)), names).shape[1]
    assert width < canvas.SIDE + canvas.MAX_NAME_LENGTH * canvas.LINE
