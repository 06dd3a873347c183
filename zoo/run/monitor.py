"""What is watched of a run beside its loss: logs, throughput and waiting, profiles, images and histograms."""

import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from zoo.config.convert import plain
from zoo.config.loader import DEFAULT
from zoo.config.schema import Config
from zoo.data import durable
from zoo.data.stream import Stream
from zoo.logs import resources, timing
from zoo.logs.journal import Journal
from zoo.logs.resources import Resources
from zoo.logs.timing import Cause, CauseLog, Interval, StepTimes, Throughput
from zoo.logs.viewers import Histogram, Viewer
from zoo.run.job import Job
from zoo.run.pipeline import Prefetcher
from zoo.run.request import Request
from zoo.tasks import TaskMetric
from zoo.trainer.protocol import StepOutput

if TYPE_CHECKING:
    from zoo.logs.console import Console
    from zoo.trainer.world import Operator, Profiler
    from zoo.visualization.evaluation import Recorder

WARM_UP = 5  # updates before a profile, which compile and choose kernels
ROWS = 10
NAME_WIDTH = 70  # characters
FOLDER, TABLE = "profile", "profile.txt"
Report = dict[str, Any]
BINS = 30
MAX_ELEMENTS = 1_000_000  # of a tensor; of larger ones a histogram counts evenly spaced elements


def open_logs(folder: str, request: Request, recipe: str, console: "Console") -> tuple[Journal, list[Viewer]]:
    """Open the journal of a run with all its listeners. Called by rank 0.

    Args:
        folder: of the run.
        request: the run.
        recipe: the resolved recipe, as text.
        console: listens too.

    Returns:
        The journal, and those of its listeners that show images, histograms and text.
    """
    from zoo.logs import airank, listeners
    from zoo.logs.trackers import TRACKERS
    from zoo.logs.viewers import TensorBoard

    cfg = request.config
    entries = {key: plain(entry.value) for key, entry in request.resolved.items()}
    given = {key: value for key, value in entries.items() if request.resolved[key].origin != DEFAULT}
    viewers: list[Viewer] = [TensorBoard(folder, recipe, given)]
    viewers += [TRACKERS[name](folder, project, entries) for name, project in request.track.items()]
    airank_log = airank.Writer(folder, cfg.target, cfg.warmup_epochs)
    journal = Journal(folder, [console, *viewers, airank_log, *listeners.open_listeners(folder, cfg)])
    return journal, viewers


class WaitMeter:
    """Waiting for data on this rank, interval by interval."""

    def __init__(self, stream: Stream, batches: Prefetcher, cores: float):
        """Start the first interval. cores: that this rank has for itself."""
        self._stream, self._batches, self._cores = stream, batches, cores
        self._wait, self._copying, self._times = batches.data_wait, batches.copying, stream.times

    def read(self, elapsed: float) -> Interval:
        """Return the interval since the last call. elapsed: its seconds of training."""
        last_wait, last_copying, last = self._wait, self._copying, self._times
        self._wait, self._copying, self._times = self._batches.data_wait, self._batches.copying, self._stream.times
        times = self._times
        return Interval(
            elapsed=elapsed,
            wait=self._wait - last_wait,
            reading=times.waiting - last.waiting,
            transport=times.transport - last.transport + self._copying - last_copying,
            samples=times.samples - last.samples,
            stages={name: seconds - last.stages[name] for name, seconds in times.stages.items()},
            workers=self._stream.workers,
            threads=self._stream.threads,
            cores=self._cores,
        )


class MeanLoss:
    """Mean loss of this rank's updates since the last multiple of train.log_every.

    Their results stay on the device until the mean is needed, so that no update waits.

    Args:
        read: waits for the result of an update.
        carried: what `so_far` returned for every rank when the checkpoint was saved that the run goes on from.
        rank, size: of this process; if there were others, rank 0 takes over the sum of all.
    """

    def __init__(
        self,
        read: Callable[[StepOutput], dict[str, float]],
        carried: Sequence[tuple[float, int]] = (),
        rank: int = 0,
        size: int = 1,
    ):
        self._read = read
        self._results: list[StepOutput] = []
        self._last: dict[str, float] = {}
        self._sum, self._count = 0.0, carried[0][1] if carried else 0
        if len(carried) == size:
            self._sum = carried[rank][0]
        elif rank == 0:
            self._sum = sum(losses for losses, _ in carried)

    def add(self, result: StepOutput) -> None:
        """Count an update that has been launched."""
        self._results.append(result)

    def so_far(self) -> tuple[float, int]:
        """Wait for the updates; return the sum of their losses and their number."""
        for result in self._results:
            self._last = self._read(result)
            self._sum, self._count = self._sum + self._last["loss"], self._count + 1
        self._results.clear()
        return self._sum, self._count

    def take(self, ends_interval: bool = True) -> tuple[dict[str, float], float]:
        """Return the result of the last update and the mean loss; after the end of the interval, begin the next one."""
        total, count = self.so_far()
        if ends_interval:
            self._sum, self._count = 0.0, 0
        return self._last, total / count


class Measured(NamedTuple):
    """Measurements of all ranks since the last log line.

    Attributes:
        loss: sum of the ranks' shares.
        fields: of the event `train`.
        cause: of waiting for data, where it is news.
    """

    loss: float
    fields: dict[str, Any]
    cause: Cause | None


class Meters:
    """The meters of this rank, which run from the first update of a process on."""

    def __init__(self, job: Job, batches: Prefetcher, wait_meter: WaitMeter):
        self._job, self._batches, self._wait_meter = job, batches, wait_meter
        self._resources = Resources(job.world, job.group.launch.local_rank == 0)
        self._causes = CauseLog()
        self._throughput = Throughput()
        self._step_times = StepTimes(job.world.record_event)

    def add_update(self) -> None:
        """Count an update that has been launched."""
        self._throughput.add(self._job.clock.global_batch)
        self._step_times.add(self._batches.data_wait)

    def pause(self) -> None:
        """Stop the clocks of training, for an evaluation or a checkpoint."""
        self._throughput.pause()
        self._step_times.pause()

    def resume(self) -> None:
        """Let the clocks of training go on."""
        self._throughput.resume()
        self._step_times.resume()

    def read(self, loss: float) -> Measured:
        """Combine the measurements of all ranks since the last call. A collective call; the result is that of rank 0.

        Args:
            loss: this rank's share.
        """
        rate = self._throughput.read(self._batches.data_wait)
        interval = self._wait_meter.read(self._throughput.elapsed)
        mine = {"interval": interval._asdict(), "times": self._step_times.read(), "resources": self._resources.read()}
        ranks = self._job.group.gather({"loss": loss, **mine})
        slowest = timing.worst([rank["interval"] for rank in ranks])
        times = timing.slowest([rank["times"] for rank in ranks])
        used = resources.combine([rank["resources"] for rank in ranks])
        fields = {**rate, "data_wait_fraction": slowest.share, **times, **used}
        return Measured(sum(rank["loss"] for rank in ranks), fields, self._causes.news(slowest))


def report(job: Job, operators: Sequence["Operator"], updates: int) -> Report:
    """Return device, precision, samples per update and operators with their milliseconds per update, largest first.

    Args:
        job: what was profiled.
        operators: as Profiler.stop returns them.
        updates: number of them that were profiled.
    """
    rows = [
        {"name": operator.name, "ms": operator.ms / updates, "calls": operator.calls / updates}
        for operator in sorted(operators, key=lambda operator: -operator.ms)
        if operator.ms > 0
    ]
    return {
        "device": job.world.device,
        "compute": job.plan.mode.compute,
        "samples": job.clock.global_batch,
        "updates": updates,
        "ms": sum(operator.ms for operator in operators) / updates,
        "operators": rows,
    }


def describe(report: Report, rows: int = ROWS) -> list[str]:
    """Return a report as the lines of a table with so many operators."""
    total, operators = report["ms"], report["operators"][:rows]
    if not operators:
        return [f"the profiler lists no operators on {report['device']}; see its files"]
    return [
        f"{report['compute']} on {report['device']}: {total:.2f} ms per update of {report['samples']} samples, "
        f"mean of {report['updates']} updates",
        f"{'ms':>9} {'share':>6} {'calls':>7}  operator",
        *(
            f"{operator['ms']:9.3f} {operator['ms'] / total:6.1%} {operator['calls']:7.1f}  "
            f"{operator['name'][:NAME_WIDTH]}"
            for operator in operators
        ),
    ]


class RunProfile:
    """Profile of some updates of a run on rank 0, after WARM_UP updates of this process.

    It ends before an evaluation, a checkpoint or the end of the run, which it would contain otherwise.
    """

    def __init__(self, job: Job, folder: str | None, first_step: int, count: int, add: Callable[..., None]):
        """Record nothing yet.

        Args:
            job: of the run.
            folder: of the run; None on other ranks, which profile nothing.
            first_step: updates done before this process began.
            count: updates to profile; 0 for none.
            add: adds an event to the journal.
        """
        self._job, self._folder, self._count, self._add = job, folder, count if folder else 0, add
        self._begin = first_step + WARM_UP  # updates done before the profile
        self._profiler: Profiler | None = None
        self._unread = 0

    @property
    def is_running(self) -> bool:
        return self._profiler is not None

    def before(self, step: int) -> None:
        """Start before the update of this index, if it is the first of the profile."""
        if self._count and step == self._begin:
            shutil.rmtree(self._path, ignore_errors=True)  # of a profile that a resume has reverted
            os.makedirs(self._path)
            self._profiler = self._job.world.profiler()
            self._profiler.start(self._path)

    def after(self, done: int, stops: bool) -> None:
        """End after `done` updates, if it has all of them or the run goes on with something else.

        Args:
            done: updates done.
            stops: whether something else follows.
        """
        assert self._profiler, "only while it is running"
        self._unread += 1
        updates = done - self._begin
        if not stops and updates < self._count:
            return
        operators, self._profiler = self._profiler.stop(), None
        lines = describe(report(self._job, operators, updates))
        with open(os.path.join(self._path, TABLE), "w", encoding="utf-8", opener=durable.fresh) as file:
            file.writelines(line + "\n" for line in lines)
        self._add("profile", step=done, updates=updates, path=self._path, table=lines)

    def read(self) -> dict[str, int]:
        """Return how many of the updates since the last call were profiled, as a field of a `train` event, if any."""
        profiled, self._unread = self._unread, 0
        return {"profiled": profiled} if profiled else {}

    @property
    def _path(self) -> str:
        return os.path.join(self._folder or "", FOLDER, f"step-{self._begin + 1:08d}")


class Visualizer:
    """Draws what the viewers of a run show; every method is called by all ranks alike."""

    def __init__(self, job: Job, config: Config, viewers: Sequence[Viewer]):
        """Draw nothing yet.

        Args:
            job: data and trainer of the run.
            config: the recipe.
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
            step: of the evaluation.
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
        return {f"val_images/{name}": pixels for name, pixels in draw(job.spec.TASK, evaluation).items()}


def _histograms(kind: str, tensors: Mapping[str, np.ndarray]) -> dict[str, Histogram]:
    """Return the histograms of tensors by names such as weights/conv1.weight, without elements that are not finite."""
    found = {}
    for name, tensor in tensors.items():
        elements = tensor.reshape(-1)[:: -(-tensor.size // MAX_ELEMENTS) or 1]
        elements = elements[np.isfinite(elements)]
        if elements.size:
            found[f"{kind}/{name}"] = Histogram(*np.histogram(elements, BINS))
    return found
