"""Class maps of images and videos: the share of each class, label and color images, overlays."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from zoo.data.datasets import segmentation
from zoo.data.formats import masks
from zoo.data.formats.lists import VIDEO_EXTENSIONS
from zoo.predict import overlay
from zoo.predict.results import Prediction, Row, Source, TrainedModel
from zoo.weights import files


class Segmentation(NamedTuple):
    """The classes of all pixels of an image or a video.

    Attributes:
        class_map: index of a class for each pixel, uint8 (H, W), of a video (n, H, W).
        class_names: by index.
    """

    class_map: np.ndarray
    class_names: tuple[str, ...]


def segment(model: TrainedModel, path: str, _index: int, top: int | None, output: str) -> Prediction:
    """Segment an image or a video and write its overlay.

    Args:
        model: the segmentation model.
        path: of the image or the video.
        top: number of classes to list on the screen, all if None.
        output: path of the files to write, without the suffix that tells them apart.

    Raises:
        BadSample: the file cannot be read, or its overlay cannot be encoded.
    """
    write = segment_video if path.lower().endswith(VIDEO_EXTENSIONS) else segment_image
    counts, row = write(model, path, masks.class_colors(model.class_names), output)
    shares = counts / counts.sum()
    labels = overlay.by_share(shares)[:top]
    line = ", ".join(f"{model.class_names[label]} {overlay.percent(shares[label])}" for label in labels)
    return Prediction(line, {"shares": shares.tolist(), **row})


def segment_image(model: TrainedModel, path: str, colors: np.ndarray, output: str) -> tuple[np.ndarray, Row]:
    """Write the class map of an image in three ways; return the pixels of each class (K,) and the files written."""
    image = segmentation.read_image(path)
    labels = predict_labels(model, image)
    counts = count_pixels(model, labels)
    shares = counts / labels.size
    height, width = labels.shape
    legend = overlay.Legend(height, width, model.class_names, colors, overlay.by_share(shares))
    written = {suffix: f"{output}_{suffix}.png" for suffix in ("classes", "labels", "overlay")}
    overlay.write_image(written["classes"], colors[labels])
    overlay.write_labels(written["labels"], labels, colors)
    overlay.write_image(written["overlay"], legend.attach(overlay.blend(image, labels, colors), shares))
    return counts, {"written": written}


def segment_video(model: TrainedModel, path: str, colors: np.ndarray, output: str) -> tuple[np.ndarray, Row]:
    """Write a video of overlays; return the pixels of each class (K,), the number of frames and the file written."""
    counts: list[np.ndarray] = []

    def overlays() -> Iterator[overlay.Frame]:
        legend = None
        for image, rate in overlay.read_video(path):
            labels = predict_labels(model, image)
            counts.append(count_pixels(model, labels))
            height, width = labels.shape
            legend = legend or overlay.Legend(height, width, model.class_names, colors, range(len(colors)))
            yield legend.attach(overlay.blend(image, labels, colors), counts[-1] / labels.size), rate

    video = f"{output}_overlay.mp4"
    with files.atomic_write(video) as temporary:
        overlay.write_video(temporary, overlays())
    return np.sum(counts, 0), {"frames": len(counts), "written": {"overlay": video}}


def scene_result(model: TrainedModel, source: Source, _index: int) -> Segmentation:
    """Return the classes of all pixels of an image or a video. Raises BadSample."""
    images: Iterable[np.ndarray]
    if isinstance(source, str):
        is_video = source.lower().endswith(VIDEO_EXTENSIONS)
        images = (image for image, _ in overlay.read_video(source)) if is_video else [segmentation.read_image(source)]
    else:
        is_video = source.ndim == 4
        images = source if is_video else [source]
    maps = [predict_labels(model, image) for image in images]
    return Segmentation(np.stack(maps) if is_video else maps[0], model.class_names)


def predict_labels(model: TrainedModel, image: np.ndarray) -> np.ndarray:
    """Predict the class of each pixel, uint8 (H, W), of an image (H, W, 3) at the scales of an evaluation."""
    s = model.cfg.data
    views = {
        name: segmentation.resize_to_fit(image, s.base_size, ratio) for name, ratio in zip(s.eval_images, s.eval_scales)
    }
    device_batch = model.trainer.to_device({name: view[None] for name, view in views.items()})
    height, width = image.shape[:2]
    return model.trainer.predict(device_batch, (height, width))[0]


def count_pixels(model: TrainedModel, labels: np.ndarray) -> np.ndarray:
    """Count the pixels of each class: int64 (K,)."""
    return np.bincount(labels.ravel(), minlength=len(model.class_names))
