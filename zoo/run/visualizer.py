"""Images of evaluations, and histograms, for the viewers of a run."""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from zoo.config.schema import Config
from zoo.logs.viewers import Histogram, Viewer
from zoo.run.job import Job
from zoo.tasks import TaskMetric

if TYPE_CHECKING:
    from zoo.visualization.evaluation import Recorder

BINS = 30
MAX_ELEMENTS = 1_000_000  # of a tensor; of larger ones a histogram counts evenly spaced elements


class Visualizer:
    """Draws what the viewers of a run show; every method is called by all ranks alike."""

    def __init__(self, job: Job, config: Config, viewers: Sequence[Viewer]):
        """Draw nothing yet.

        Args:
            viewers: none on other ranks than 0, and where nothing but an evaluation is done.
        """
        self._job, self._config, self._viewers = job, config, viewers
        self._samples = config.train.log_images if importlib.util.find_spec("PIL") else 0  # Pillow draws
        self._recorder: Recorder | None = None

    def metrics(self) -> tuple[TaskMetric, TaskMetric | None]:
        """Return the metrics of an evaluation: of the weights, and of their moving average, None without one.

        The one that selects the best checkpoint keeps what the images need.
        """
        metric: TaskMetric = self._metric()
        averaged = self._metric() if self._job.plan.ema else None
        if not self._viewers or not self._samples:
            return metric, averaged
        from zoo.visualization.evaluation import Recorder  # which runs without images do without

        self._recorder = Recorder(averaged or metric, len(self._job.val_set), self._job.group.size, self._samples)
        return (metric, self._recorder) if averaged else (self._recorder, None)

    def show(self, step: int, trained: bool) -> None:
        """Show images of the last evaluation, and histograms if the recipe asks for them.

        Args:
            trained: whether this process has computed gradients.
        """
        trainer, histograms = self._job.trainer, dict[str, Histogram]()
        if self._config.train.log_histograms:
            state, names = trainer.state_dict(), [param.name for param in trainer.params]
            histograms = _histograms("weights", {name: state[name] for name in names})
            if trained:
                histograms.update(_histograms("gradients", trainer.gradients()))
        images = self._images()
        for viewer in self._viewers:
            viewer.show(step, images, histograms)

    def _metric(self) -> TaskMetric:
        return self._job.task.Metric(self._job.val_set, self._config.task)

    def _images(self) -> dict[str, np.ndarray]:
        if self._recorder is None:
            return {}
        from zoo.visualization.drawing import draw
        from zoo.visualization.evaluation import Evaluation

        job, recorder = self._job, self._recorder
        evaluation = Evaluation(job.val_set, self._config.seed, recorder.summed, recorder.predictions)
        return {f"val_images/{name}": pixels for name, pixels in draw(self._config.task.task, evaluation).items()}


def _histograms(kind: str, tensors: Mapping[str, np.ndarray]) -> dict[str, Histogram]:
    """Return the histograms of tensors by names such as weights/conv1.weight, without elements that are not finite."""
    found = {}
    for name, tensor in tensors.items():
        elements = tensor.reshape(-1)[:: -(-tensor.size // MAX_ELEMENTS) or 1]
        elements = elements[np.isfinite(elements)]
        if elements.size:
            found[f"{kind}/{name}"] = Histogram(*np.histogram(elements, BINS))
    return found
