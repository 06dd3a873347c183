"""Class maps of images and videos: the share of each class, label and color images, overlays."""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from zoo.data.datasets import segmentation
from zoo.data.formats import masks
from zoo.data.formats.lists import VIDEO_EXTENSIONS
from zoo.predict import batches, explain, overlay
from zoo.predict.results import Request, Row, Sample, Source, TrainedModel
from zoo.predict.urls import file_name, local_path
from zoo.weights import files


class Segmentation(NamedTuple):
    """The classes of all pixels of an image or a video.

    Attributes:
        class_map: index of a class for each pixel, uint8 (H, W), of a video (n, H, W).
    """

    class_map: np.ndarray
    class_names: tuple[str, ...]


def read(settings: Any, _seed: int, source: Source, _index: int) -> Sample:
    """Read an image and scale it as an evaluation does; videos are read frame by frame. Raises BadSample."""
    if is_video(source):
        return Sample({})
    if isinstance(source, str):
        with local_path(source) as path:
            return scaled(settings, segmentation.read_image(path, settings.levels))
    return scaled(settings, source)


def is_video(source: Source) -> bool:
    """Return whether a source is a video, by the extension of its name or by its axes."""
    return file_name(source).lower().endswith(VIDEO_EXTENSIONS) if isinstance(source, str) else source.ndim == 4


def scaled(settings: Any, image: np.ndarray) -> Sample:
    """Return an image (H, W, 3) at the scales of an evaluation."""
    names, base = zip(settings.eval_images, settings.eval_scales), settings.base_size
    return Sample({name: segmentation.resize_to_fit(image, base, ratio)[None] for name, ratio in names}, image)


def describe(
    model: TrainedModel, source: str, sample: Sample, output: np.ndarray | None, request: Request, stem: str
) -> tuple[str, Row]:
    """Return the line and the row of an image or a video, and write its overlay. Raises BadSample."""
    if output is None or sample.image is None:
        with local_path(source) as path:
            counts, row = segment_video(model, path, stem)
    else:
        counts, row = draw(model, sample.image, output[0], request, stem)
    shares = counts / counts.sum()
    names = [(model.class_names[label], float(shares[label])) for label in overlay.by_share(shares)]
    line = ", ".join(f"{name} {overlay.percent(share)}" for name, share in names[: request.top])
    return line, {"shares": [{"label": name, "share": share} for name, share in names], **row}


def draw(
    model: TrainedModel, image: np.ndarray, output: np.ndarray, request: Request, stem: str
) -> tuple[np.ndarray, Row]:
    """Write the class map of an image in three ways, and perhaps the probabilities of a class.

    Returns:
        The pixels of each class (K,), and the files written.
    """
    labels = class_map(output)
    counts, colors = count_pixels(model, labels), masks.class_colors(model.class_names)
    if request.labels_only:
        overlay.write_labels(f"{stem}_labels.png", labels, colors)
        return counts, {"written": {"labels": f"{stem}_labels.png"}}
    shares = counts / labels.size
    height, width = labels.shape
    legend = overlay.Legend(height, width, model.class_names, colors, overlay.by_share(shares))
    written = {suffix: f"{stem}_{suffix}.png" for suffix in ("classes", "labels", "overlay")}
    overlay.write_image(written["classes"], colors[labels])
    overlay.write_labels(written["labels"], labels, colors)
    overlay.write_image(written["overlay"], legend.attach(overlay.blend(image, labels, colors), shares))
    if request.explain is not None:
        name, written["explanation"] = request.explain or model.class_names[shares.argmax()], f"{stem}_explanation.png"
        heat = output[model.class_names.index(name)]
        explain.write(written["explanation"], image[None], heat[None], name, float(heat.mean()))
    return counts, {"written": written}


def segment_video(model: TrainedModel, path: str, output: str) -> tuple[np.ndarray, Row]:
    """Write a video of overlays; return the pixels of each class (K,), the number of frames and the file written."""
    counts: list[np.ndarray] = []

    def overlays() -> Iterator[overlay.Frame]:
        for image, rate in overlay.read_video(path):
            labels = predict_labels(model, image)
            counts.append(count_pixels(model, labels))
            yield draw_frame(model, image, labels[None]), rate

    video = f"{output}_overlay.mp4"
    with suppress(FileNotFoundError):  # of a call that was killed before it wrote the row
        os.remove(video)
    with files.atomic_write(video) as temporary:
        overlay.write_video(temporary, overlays())
    return np.sum(counts, 0), {"frames": len(counts), "written": {"overlay": video}}


def draw_frame(model: TrainedModel, image: np.ndarray, output: np.ndarray) -> np.ndarray:
    """Blend a frame of a video with the colors of its classes, and attach their legend."""
    labels = class_map(output[0])
    legend = video_legend(*labels.shape, model.class_names)
    return legend.attach(overlay.blend(image, labels, legend.colors), count_pixels(model, labels) / labels.size)


@lru_cache(1)
def video_legend(height: int, width: int, names: tuple[str, ...]) -> overlay.Legend:
    return overlay.Legend(height, width, names, masks.class_colors(names), range(len(names)))


def scene_result(model: TrainedModel, source: Source, _sample: Sample, output: np.ndarray | None) -> Segmentation:
    """Return the classes of all pixels of an image or a video. Raises BadSample."""
    if output is not None:
        return Segmentation(class_map(output[0]), model.class_names)
    if isinstance(source, str):
        with local_path(source) as path:
            maps = [predict_labels(model, image) for image, _ in overlay.read_video(path)]
    else:
        maps = [predict_labels(model, image) for image in source]
    return Segmentation(np.stack(maps), model.class_names)


def predict_labels(model: TrainedModel, image: np.ndarray) -> np.ndarray:
    """Predict the class of each pixel, uint8 (H, W), of an image (H, W, 3) at the scales of an evaluation."""
    return class_map(batches.forward(model, False, [scaled(model.cfg.data, image)])[0][0])


def class_map(output: np.ndarray) -> np.ndarray:
    """Return the classes, uint8 (H, W), of a prediction: these, or the probabilities of all classes (K, H, W)."""
    return output if output.ndim == 2 else output.argmax(0).astype(np.uint8)


def count_pixels(model: TrainedModel, labels: np.ndarray) -> np.ndarray:
    """Count the pixels of each class: int64 (K,)."""
    return np.bincount(labels.ravel(), minlength=len(model.class_names))
