"""The images of each task, pixel by pixel where samples are drawn at their own size."""

from types import SimpleNamespace

import numpy as np
import pytest

from zoo import visualization
from zoo.data.batch import LABEL, Field
from zoo.data.errors import BadSample
from zoo.data.formats import masks
from zoo.predict.overlay import blend
from zoo.tasks import list_tasks
from zoo.visualization import canvas, classify, face, segment
from zoo.visualization.evaluation import Evaluation

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
    drawn = classify.draw(evaluation(samples, own.shape, [(0, logits)], views=views))
    assert list(drawn) == ["samples"]
    assert np.array_equal(drawn["samples"][TOP:], pixels)
    above = drawn["samples"][: canvas.LINE]
    assert has_color(above, canvas.RIGHT) == right and has_color(above, canvas.WRONG) != right


def test_a_clip_is_a_strip_of_frames():
    frames = noise(3, 128, 128)
    samples = [{"image": frames, "label": np.asarray(0)}] * 2
    logits = np.array([[np.nan, 0.0]], np.float32)
    drawn = classify.draw(evaluation(samples, frames.shape, [(0, logits), (1, logits)]))["samples"]
    assert drawn.shape == (2 * (TOP + 128) + canvas.GAP, 3 * 128 + 2 * canvas.GAP, 3)
    for number, frame in enumerate(frames):
        left = number * (128 + canvas.GAP)
        assert np.array_equal(drawn[TOP : TOP + 128, left : left + 128], frame)


def test_long_clips_show_sixteen_frames_at_most():
    frames = noise(40, 8, 8)
    drawn = classify.draw(evaluation([{"image": frames, "label": np.asarray(0)}], frames.shape, [(0, np.eye(1, 2))]))
    shown = -(-40 // 3)  # every third
    assert drawn["samples"].shape[1] == shown * (128 + canvas.GAP) - canvas.GAP and shown <= classify.MAX_FRAMES


def test_a_classifier_has_a_confusion_matrix_and_samples_may_be_unreadable():
    state = {"confusion": np.eye(2, 3)}
    drawn = classify.draw(evaluation([None], (4, 4, 3), [(0, np.eye(1, 2))], state))
    assert list(drawn) == ["samples", "confusion"] and has_color(drawn["samples"], canvas.WRONG)


def test_a_scene_its_labels_and_its_prediction():
    pixels, label = noise(192, 384), np.zeros((192, 384), np.uint8)
    label[:5], predicted = masks.IGNORE_INDEX, np.ones((1, 192, 384), np.uint8)
    state = {"confusion": np.zeros((2, 3), np.int64)}
    drawn = segment.draw(
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
    drawn = face.draw(evaluation(samples, (2, 112, 112, 3), [], state, views=2, sets=sets))["pairs"]
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


def test_a_task_without_a_module_has_no_images():
    assert visualization.draw("detect", evaluation([], (), [])) == {}
    assert all((visualization.FOLDER / f"{task}.py").exists() for task in list_tasks())
