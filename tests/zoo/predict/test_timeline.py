"""The table and the strip chart of what a stream showed when."""

import csv

import numpy as np
from PIL import Image

from zoo.data.formats import masks
from zoo.predict import timeline
from zoo.predict.timeline import Timeline


def seen(label, probability):
    return {"predictions": [{"label": label, "probability": probability}, {"label": "other", "probability": 0.0}]}


def rows_of(folder):
    with open(folder / timeline.TABLE, newline="") as file:
        return [tuple(row.values()) for row in csv.DictReader(file)]


def test_stretches_and_their_chart(tmp_path):
    recorder = Timeline(str(tmp_path))
    rows = [seen("run", 0.5), seen("run", 0.7), seen("jump", 0.9), seen("run", 0.8), {"predictions": []}]
    for seconds, row in zip((0.0, 1.0, 2.0, 2.5, 4.0), rows):
        recorder.add(seconds, row)
    assert recorder.close(4.4) == [str(tmp_path / timeline.TABLE), str(tmp_path / timeline.CHART)]
    assert rows_of(tmp_path) == [
        ("0.000", "2.000", "run", "0.6000"),
        ("2.000", "2.500", "jump", "0.9000"),
        ("2.500", "4.000", "run", "0.8000"),
        ("4.000", "4.400", "none", "0.0000"),
    ]
    strip = np.asarray(Image.open(tmp_path / timeline.CHART))[timeline.HEIGHT // 2, : timeline.WIDTH]
    run, jump, none = masks.class_colors(["run", "jump", "none"])
    at = [strip[round(seconds * timeline.WIDTH / 4.4)] for seconds in (0.1, 1.9, 2.1, 2.6, 3.9, 4.1)]
    assert [tuple(color) for color in at] == [tuple(color) for color in (run, run, jump, run, run, none)]
    assert tuple(strip[-1]) == tuple(none)


def test_several_classes(tmp_path):
    """As in predictions.csv, but in the order of their names: that of their probabilities changes with every frame."""
    recorder = Timeline(str(tmp_path))
    for seconds, labels in enumerate((["red"], ["red", "green"], ["green", "red"], [])):
        listed = [{"label": label, "probability": 0.8 - 0.2 * at} for at, label in enumerate(labels or ["red"])]
        recorder.add(seconds, {"labels": labels, "predictions": listed})
    recorder.close(3.5)
    assert rows_of(tmp_path) == [
        ("0.000", "1.000", "red", "0.8000"),
        ("1.000", "3.000", "green|red", "0.8000"),
        ("3.000", "3.500", "none", "0.0000"),
    ]


def test_persons_scenes_and_many_labels(tmp_path):
    recorder, similar = Timeline(str(tmp_path)), [{"file": "a.jpg", "cosine": 0.75}]
    for seconds, person in enumerate(("=ann", "=ann", None)):
        recorder.add(seconds, {"embedding": [1.0], "person": person, "most_similar": similar})
    recorder.close(3.0)
    assert rows_of(tmp_path) == [("0.000", "2.000", "'=ann", "0.7500"), ("2.000", "3.000", "nobody", "0.7500")]
    (scenes := tmp_path / "scenes").mkdir()
    recorder = Timeline(str(scenes))
    recorder.add(0, {"shares": [{"label": "road", "share": 1.0}]})
    recorder.add(1, {"embedding": [1.0], "most_similar": similar})
    assert recorder.close(2.0) == [] and not list(scenes.iterdir())
    (many := tmp_path / "many").mkdir()
    recorder = Timeline(str(many))
    for number in range(100):
        recorder.add(number, seen(f"class {number}", 0.5))
    assert len(recorder.close(100.0)) == 2 and len(rows_of(many)) == 100
