"""Draw the images of the README: docs/images/README.md has the commands."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from zoo.data.formats import video
from zoo.frameworks import FRAMEWORKS

FOLDER = Path(__file__).resolve().parent
TITLES = {"torch": "PyTorch", "paddle": "PaddlePaddle", "mindspore": "MindSpore", "jax": "JAX"}
# Line style and width: all are visible.
STYLES = {"torch": ("-", 4.0), "paddle": ("--", 2.2), "mindspore": (":", 1.6), "jax": ("-.", 1.0)}
COLORS = {"torch": "#f4a582", "paddle": "#0571b0", "mindspore": "#1b1b1b", "jax": "#4d9221"}
NUM_FRAMES = 8  # of the clip
NUM_CLASSES = 3  # that are listed for an image or clip
DPI = 100
LEVEL = 8  # distance of the levels of a color
MAX_BYTES = 200_000
EPS = 1e-8  # relative difference at which equal losses are drawn, below the resolution of fp32

pyplot.rcParams.update({"font.size": 9, "axes.titlesize": 9, "axes.spines.top": False, "axes.spines.right": False})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", metavar="DIR", type=Path, help="results of tools/compare.py; draws curves.png")
    parser.add_argument(
        "--predictions",
        metavar="DIR",
        type=Path,
        help="folder with the results of tools/predict.py in tsm_demo/, resnet50_demo/, deeplabv3plus_demo/ and "
        "arcface_demo/; draws predictions.png",
    )
    arguments = parser.parse_args()
    if arguments.curves:
        save(draw_curves(arguments.curves), "curves.png")
    if arguments.predictions:
        save(draw_predictions(arguments.predictions), "predictions.png")
    return 0 if arguments.curves or arguments.predictions else parser.error("give --curves or --predictions")


def save(figure: Figure, name: str) -> None:
    """Write a PNG file with fewer levels of each color, which makes it several times smaller."""
    path = FOLDER / name
    figure.set_dpi(DPI)
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]  # type: ignore[attr-defined]
    pixels = np.minimum(np.rint(pixels / LEVEL) * LEVEL, 255).astype(np.uint8)
    pyplot.imsave(path, pixels, pil_kwargs={"optimize": True})
    size = path.stat().st_size
    print(f"{path}: {size} bytes")
    if size > MAX_BYTES:
        sys.exit(f"error: {path} has more than {MAX_BYTES} bytes; raise LEVEL or choose simpler images")


def draw_curves(folder: Path) -> Figure:
    """Draw the losses of all frameworks, and below them their relative differences to those of PyTorch."""
    losses = {name: read_losses(folder / f"{name}.jsonl") for name in FRAMEWORKS}
    figure, (upper, lower) = pyplot.subplots(
        2, 1, sharex=True, figsize=(8, 4.4), height_ratios=(2, 1), layout="constrained"
    )
    steps = np.arange(1, len(losses["torch"]) + 1)
    for name in FRAMEWORKS:
        style, width = STYLES[name]
        upper.plot(steps, losses[name], style, color=COLORS[name], linewidth=width, label=TITLES[name])
        if name != "torch":
            difference = np.abs(losses[name] / losses["torch"] - 1)
            lower.semilogy(steps, np.maximum(difference, EPS), style, color=COLORS[name], linewidth=1.6)
    upper.set_ylabel("loss")
    upper.legend(frameon=False)
    lower.set_ylabel("relative difference\nto PyTorch")
    lower.set_xlabel("step")
    lower.grid(axis="y", alpha=0.3)
    return figure


def read_losses(path: Path) -> np.ndarray:
    """Read the loss of every step from a file of tools/compare.py, whose first line is a header."""
    _, *rows = path.read_text(encoding="utf-8").splitlines()
    return np.array([json.loads(row)["loss"] for row in rows])


def draw_predictions(folder: Path) -> Figure:
    """Draw the first result of each demo model."""
    figure = pyplot.figure(figsize=(9.2, 4.4), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 2))
    draw_clip(top, read_results(folder / "tsm_demo"))
    left, middle, right = bottom.subfigures(1, 3, width_ratios=(1, 2.4, 1.4))
    draw_image(left, read_results(folder / "resnet50_demo"))
    draw_street(middle, read_results(folder / "deeplabv3plus_demo"))
    draw_faces(right, read_results(folder / "arcface_demo"))
    return figure


def read_results(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def draw_clip(part: SubFigure, rows: list[dict[str, Any]]) -> None:
    row = rows[0]
    frames = video.video_frames(row["file"], lambda count: np.linspace(0, count - 1, NUM_FRAMES).astype(int))
    part.suptitle(f"TSM: {classes_of(row, ', ')}", fontsize=10)
    for axes, frame in zip(part.subplots(1, NUM_FRAMES), frames):
        show(axes, frame)


def draw_image(part: SubFigure, rows: list[dict[str, Any]]) -> None:
    row = rows[0]
    part.suptitle("ResNet50", fontsize=10)
    axes = part.subplots()
    show(axes, pyplot.imread(row["file"]))
    axes.set_xlabel(classes_of(row, "\n"))


def draw_street(part: SubFigure, rows: list[dict[str, Any]]) -> None:
    part.suptitle("DeepLabV3+", fontsize=10)
    show(part.subplots(), pyplot.imread(rows[0]["written"]["overlay"]))


def draw_faces(part: SubFigure, rows: list[dict[str, Any]]) -> None:
    first, second = (np.array(row["embedding"]) for row in rows[:2])
    part.suptitle(f"ArcFace: cosine {first @ second:.2f}", fontsize=10)
    for axes, row in zip(part.subplots(1, 2), rows):
        show(axes, pyplot.imread(row["file"]))


def classes_of(row: dict[str, Any], separator: str) -> str:
    found = row["predictions"][:NUM_CLASSES]
    return separator.join(f"{each['label']} {each['probability']:.2f}" for each in found)


def show(axes: Axes, image: np.ndarray) -> None:
    axes.imshow(image)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


if __name__ == "__main__":
    sys.exit(main())
