"""Measurements between two log lines: throughput, step times, waiting for data, memory and power."""

from typing import Any, NamedTuple

from zoo.logs import resources, timing
from zoo.logs.resources import Resources
from zoo.logs.timing import Cause, CauseLog, StepTimes, Throughput
from zoo.run.job import Job
from zoo.run.loading import WaitMeter
from zoo.run.prefetch import Prefetcher


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
