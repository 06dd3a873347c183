"""Images of an evaluation: which samples are kept, what is drawn of each task, the confusion matrix."""

from types import SimpleNamespace

import numpy as np
import pytest

from zoo.data import order
from zoo.data.batch import LABEL, Field
from zoo.data.errors import BadSample
from zoo.data.formats import masks
from zoo.data.stream import EvaluationBatches
from zoo.predict.overlay import blend
from zoo.visualization import canvas, drawing
from zoo.visualization.evaluation import Evaluation, Recorder


class Split:
    """Samples whose label is their index; that of index `damaged` is unreadable."""

    fields = (Field("image", (2, 2, 3), "uint8", (0.5,) * 3, (0.5,) * 3), LABEL)
    classes = range(100)

    def __init__(self, length, views=1, damaged=None):
        self.length, self.views, self.damaged = length, views, damaged

    def __len__(self):
        return self.length

    def sample(self, index, rng):
        if index == self.damaged:
            raise BadSample("damaged")
        return {"image": np.full((2, 2, 3), rng.integers(256), np.uint8), "label": np.asarray(index)}

    def name(self, index):
        return f"sample {index}"


class Metric:
    """The task's metric: counts batches, in a new dictionary each time."""

    def __init__(self):
        self.state = {"batches": np.zeros(())}

    def update(self, outputs, batch):
        self.state = {"batches": self.state["batches"] + 1}

    def result(self, state):
        return {"batches": int(state["batches"])}


@pytest.mark.parametrize("length", [1, 5, 8, 13, 20])
@pytest.mark.parametrize("world_size, views", [(1, 1), (1, 3), (2, 1), (3, 2)])
def test_the_samples_are_spread_over_those_of_rank_0(length, world_size, views):
    split, recorder = Split(length, views), Recorder(Metric(), length, world_size, 3)
    read = EvaluationBatches(split, 7, 4, 0, world_size)
    evaluated = []
    for number in range(len(read)):
        batch, _ = read(number)
        evaluated += batch["label"][batch["valid"] > 0].tolist()
        recorder.update(10 * batch["label"].repeat(views)[:, None] + np.tile(np.arange(views), 4)[:, None], batch)
    assert recorder.state == {"batches": len(read)}
    kept = [index for index, _ in recorder.predictions]
    spread = min(3, len(evaluated))
    assert kept == [evaluated[place * len(evaluated) // spread] for place in range(spread)]
    assert all(
        outputs.tolist() == [[10 * index + view] for view in range(views)] for index, outputs in recorder.predictions
    )
    assert recorder.result({"batches": np.asarray(9)}) == {"batches": 9} and recorder.summed == {"batches": 9}


def test_a_sample_is_read_again_as_the_evaluation_has_read_it():
    split = Split(8, damaged=1)
    read = order.generator(7, "evaluate", 2)
    evaluation = Evaluation(split, 7, {}, [])
    assert evaluation.sample(2)["image"][0, 0, 0] == read.integers(256)
    assert evaluation.sample(1) is None  # unreadable


TOP = canvas.LINE + canvas.GAP  # pixels above an image with a caption


def evaluation(samples, shape, predictions, state=(), views=1, classes=("cat", "dog"), **attributes):
    """Return an evaluation of samples, in which None is an unreadable one."""

    def sample(index, rng):
        if samples[index] is None:
            raise BadSample("damaged")
        return samples[index]

    fields = (Field("image", shape, "uint8", (0.5,) * 3, (0.5,) * 3), LABEL)
    split = SimpleNamespace(
        sample=sample, name=lambda index: f"sample {index}", fields=fields, views=views, classes=classes, **attributes
    )
    return Evaluation(split, 1, dict(state), predictions)


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)


def has_color(image, color):
    return bool((image == color).all(2).any())


@pytest.mark.parametrize("label, right", [(1, True), (0, False)])
@pytest.mark.parametrize("views", [1, 2])
def test_an_image_with_its_prediction(label, right, views):
    pixels = noise(224, 224)
    own = np.stack([pixels, pixels[::-1]]) if views == 2 else pixels
    logits = np.array([[0.0, 4.0], [3.0, 0.0]][:views], np.float32)  # dog on average, too
    samples = [{"image": own, "label": np.asarray(label)}]
    drawn = drawing.draw_classes(evaluation(samples, own.shape, [(0, logits)], views=views))
    assert list(drawn) == ["samples"]
    assert np.array_equal(drawn["samples"][TOP:], pixels)
    above = drawn["samples"][: canvas.LINE]
    assert has_color(above, canvas.RIGHT) == right and has_color(above, canvas.WRONG) != right


def test_a_clip_is_a_strip_of_frames():
    frames = noise(3, 128, 128)
    samples = [{"image": frames, "label": np.asarray(0)}] * 2
    logits = np.array([[np.nan, 0.0]], np.float32)
    drawn = drawing.draw_classes(evaluation(samples, frames.shape, [(0, logits), (1, logits)]))["samples"]
    assert drawn.shape == (2 * (TOP + 128) + canvas.GAP, 3 * 128 + 2 * canvas.GAP, 3)
    for number, frame in enumerate(frames):
        left = number * (128 + canvas.GAP)
        assert np.array_equal(drawn[TOP : TOP + 128, left : left + 128], frame)


def test_a_classifier_has_a_confusion_matrix_and_samples_may_be_unreadable():
    state = {"confusion": np.eye(2, 3)}
    drawn = drawing.draw_classes(evaluation([None], (4, 4, 3), [(0, np.eye(1, 2))], state))
    assert list(drawn) == ["samples", "confusion"] and has_color(drawn["samples"], canvas.WRONG)


def test_a_scene_its_labels_and_its_prediction():
    pixels, label = noise(192, 384), np.zeros((192, 384), np.uint8)
    label[:5], predicted = masks.IGNORE_INDEX, np.ones((1, 192, 384), np.uint8)
    state = {"confusion": np.zeros((2, 3), np.int64)}
    drawn = drawing.draw_scenes(
        evaluation([{"image": pixels, "label": label}, None], (), [(0, predicted), (1, predicted)], state)
    )
    assert list(drawn) == ["samples", "confusion"]
    colors = np.zeros((256, 3), np.uint8)
    colors[:2] = masks.class_colors(["cat", "dog"])
    for number, expected in enumerate([pixels, blend(pixels, label, colors), blend(pixels, predicted[0], colors)]):
        left = number * (384 + canvas.GAP)
        assert np.array_equal(drawn["samples"][TOP : TOP + 192, left : left + 384], expected)
    assert has_color(drawn["samples"][TOP + 192 :], canvas.WRONG)  # the second cannot be read


def test_the_best_and_the_worst_pairs():
    """Two sets of five pairs; the images of pair i have the gray i, and the right threshold differs by set."""
    distance = np.array([0.1, 0.2, 0.9, 1.0, 0.05, 1.1, 1.2, 1.9, 2.0, np.nan])
    same = np.array([1, 1, 0, 0, 0, 1, 1, 0, 0, 1])
    state = {"distance": distance, "same": same, "seen": np.ones(10)}
    samples = [{"image": np.full((2, 112, 112, 3), 10 * i, np.uint8)} for i in range(10)]
    sets = (("a", 0, 5), ("b", 5, 5))
    drawn = drawing.draw_pairs(evaluation(samples, (2, 112, 112, 3), [], state, views=2, sets=sets))["pairs"]
    shown, right = [], []
    kind_height = canvas.LINE + canvas.GAP + TOP + 112 + canvas.GAP
    pair_width = 2 * 112 + 2 * canvas.GAP
    for kind in range(4):
        top = kind * kind_height + canvas.LINE + canvas.GAP
        lefts = range(0, drawn.shape[1], pair_width)
        tiles = [drawn[top : top + TOP + 112, left : left + pair_width] for left in lefts]
        shown.append([int(tile[-1, 0, 0]) // 10 for tile in tiles if tile[-1, 0, 0] < 255])
        right.append([has_color(tile, canvas.RIGHT) for tile in tiles if tile[-1, 0, 0] < 255])
    assert shown == [[0, 1, 5, 6], [6, 5, 1, 0], [8, 7, 3, 2], [4, 2, 3, 7]]
    assert right == [[True] * 4, [True] * 4, [True] * 4, [False, True, True, True]]  # pair 4 alone is wrong


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
