"""Images of an evaluation: a module for each task, which draws its samples and their predictions.

A module zoo/visualization/<task>.py provides `draw(evaluation)`, which returns uint8 RGB images (H, W, 3) by name. A
task without a module has no images.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from zoo.visualization.evaluation import Evaluation

FOLDER = Path(__file__).parent


def draw(task: str, evaluation: Evaluation) -> Mapping[str, np.ndarray]:
    """Draw the images of an evaluation, uint8 RGB (H, W, 3), by name.

    Args:
        task: its name.
        evaluation: what was predicted.
    """
    if not (FOLDER / f"{task}.py").exists():
        return {}
    return importlib.import_module(f"zoo.visualization.{task}").draw(evaluation)
