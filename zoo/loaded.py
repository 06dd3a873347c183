"""A trained model in a program: its module or session, its settings, and its predictions as plain values."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zoo.data.errors import BadSample, UserError
from zoo.predict.predictors import Predictor
from zoo.predict.results import Source, TrainedModel, count_frames

Input = str | os.PathLike[str] | np.ndarray


@dataclass(frozen=True)
class Loaded:
    """A trained model.

    Attributes:
        model: nn.Module, nn.Layer or nn.Cell, which takes normalized pixels, channels first; of an exported model the
            onnxruntime.InferenceSession.
        class_names: of its outputs, in order; empty for faces.
        arch: its architecture.
        recipe: that it was trained with, by dotted key.
        mean, std: of the normalization, of pixels from 0 to 1 in RGB: (pixel / 255 - mean) / std.
        _predictor: how the model is applied to files and arrays.
        _load: returns the model as tools/predict.py builds it, which is built for the first prediction.
    """

    model: Any
    class_names: tuple[str, ...]
    arch: Any
    recipe: dict[str, Any]
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    _predictor: Predictor = field(repr=False)
    _load: Callable[[], TrainedModel] = field(repr=False)

    def predict(self, inputs: Input | list[Input] | tuple[Input, ...]) -> Any:
        """Predict files or arrays, with the numbers of tools/predict.py.

        Args:
            inputs: one, or a list of them: paths of images or videos, or of folders of numbered frames; arrays uint8
                RGB, (H, W, 3) for an image, (n, H, W, 3) for the frames of a video. They are scaled and cropped as in
                an evaluation.

        Returns:
            A Classification, a Segmentation or a Face, or a list of them for a list.

        Raises:
            UserError: a file cannot be read, or an array is none of these.
        """
        if isinstance(inputs, list | tuple):
            return [self._predict(source, index) for index, source in enumerate(inputs)]
        return self._predict(inputs, 0)

    def _predict(self, source: Any, index: int) -> Any:
        checked = self._check(source)
        try:
            return self._predictor.result(self._load(), checked, index)
        except BadSample as error:
            raise UserError(f"{checked if isinstance(checked, str) else f'array {index}'}: {error}") from None

    def _check(self, source: Any) -> Source:
        """Return a path as text or an array. Raises UserError for anything else."""
        if isinstance(source, str | os.PathLike):
            path = os.fsdecode(source)
            if not path:
                raise UserError("predict: expected a path, got an empty one")
            template = self._predictor.frame_template(self._load().cfg.data)
            if os.path.isdir(path) and not count_frames(path, template):
                raise UserError(f"{path} is a folder; give a list of the files in it")
            return path
        names = {3: "(H, W, 3)", 4: "(n, H, W, 3)"}
        wanted = " or ".join(names[count] for count in self._predictor.dimensions)
        if not isinstance(source, np.ndarray):
            raise UserError(f"predict: expected paths, or arrays uint8 {wanted}, got {type(source).__name__}")
        dimensions, is_rgb = source.ndim, source.shape[-1:] == (3,)
        if source.dtype != np.uint8 or dimensions not in self._predictor.dimensions or not is_rgb or not source.size:
            raise UserError(
                f"predict: expected an array uint8 {wanted}, RGB, got {source.dtype} {source.shape}; give several as a "
                "list"
            )
        return np.ascontiguousarray(source)
