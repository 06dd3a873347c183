"""What a stream showed when: a table of the stretches of time with one label, and a strip chart of them."""

import csv
import os
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from zoo.data import durable
from zoo.data.formats import csv_files, masks
from zoo.predict import overlay
from zoo.predict.results import Row

TABLE, CHART = "timeline.csv", "timeline.png"
COLUMNS = ("start", "end", "label", "score")
WIDTH, HEIGHT = 960, 48  # of the strip, in pixels
SHOWN, OTHER = 24, 160  # labels in the legend, those that were seen longest; gray level of others


class Stretch(NamedTuple):
    """Time since which every prediction had one label, in seconds, and the sum of the scores of so many."""

    start: float
    label: str
    total: float
    predictions: int


class Timeline:
    """The table and chart of a stream in a folder; they are made when the first label is there."""

    def __init__(self, folder: str):
        self.table, self.chart = os.path.join(folder, TABLE), os.path.join(folder, CHART)
        self.stretch: Stretch | None = None

    def add(self, seconds: float, row: Row) -> None:
        """Add a prediction; of scenes, and of faces without persons, nothing is added."""
        if (found := label_of(row)) is None:
            return
        (label, score), before = found, self.stretch
        if before and before.label == label:
            self.stretch = before._replace(total=before.total + score, predictions=before.predictions + 1)
            return
        if before:
            self._write(before, seconds)
        self.stretch = Stretch(seconds, label, score, 1)

    def close(self, end: float) -> list[str]:
        """Write what is left, until the end of the stream, and the chart; return the paths of both."""
        if self.stretch is None:
            return []
        self._write(self.stretch, end)
        draw(self.table, self.chart)
        return [self.table, self.chart]

    def _write(self, stretch: Stretch, end: float) -> None:
        is_new = not os.path.exists(self.table)
        with open(self.table, "a", encoding="utf-8", newline="", opener=durable.regular) as file:
            values = (
                f"{stretch.start:.3f}",
                f"{end:.3f}",
                stretch.label,
                f"{stretch.total / stretch.predictions:.4f}",
            )
            csv_files.write(file, [COLUMNS] * is_new + [values])


def label_of(row: Row) -> tuple[str, float] | None:
    """Return what a row of a prediction shows, and its score; None for rows without labels.

    Several classes are one label in the order of their names, with the score of the most probable one.
    """
    if "person" in row:
        return row["person"] or "nobody", row["most_similar"][0]["cosine"]
    if "predictions" not in row:
        return None
    if not row.get("labels", row["predictions"]):
        return "none", 0.0
    first = row["predictions"][0]
    return "|".join(sorted(row.get("labels", [first["label"]]))), first["probability"]


def draw(table: str, path: str) -> None:
    """Write the strip chart of a table as PNG: time from left to right, a color and a share of the time per label."""
    with open(table, encoding="utf-8", newline="") as file:
        rows = [(float(row["start"]), float(row["end"]), row["label"]) for row in csv.DictReader(file)]
    seconds, (begin, end) = defaultdict[str, float](float), (rows[0][0], max(rows[-1][1], rows[0][0] + 1e-3))
    for start, stop, label in rows:
        seconds[label] += stop - start
    names = sorted(seconds, key=lambda label: -seconds[label])
    colors = np.full((len(names), 3), OTHER, np.uint8)
    colors[:SHOWN] = masks.class_colors(names[:SHOWN])
    color_of, strip = dict(zip(names, colors)), np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    for start, stop, label in rows:
        left, right = (round(WIDTH * (each - begin) / (end - begin)) for each in (start, stop))
        strip[:, left : max(right, left + 1)] = color_of[label]
    shares = np.array([max(seconds[name] / (end - begin), 1e-9) for name in names])
    strip = overlay.attach_caption(strip, f"{begin:.1f} s", f"{end:.1f} s")
    height, width = strip.shape[:2]
    legend = overlay.Legend(height, width, names, colors, range(min(len(names), SHOWN)))
    overlay.write_image(path, legend.attach(strip, shares))
