"""Meters of a run: its mean loss, waiting for data, throughput and resources."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from zoo.data.stream import Stream
from zoo.logs import resources, timing
from zoo.logs.resources import Resources
from zoo.logs.timing import Cause, CauseLog, Interval, StepTimes, Throughput
from zoo.run.job import Job
from zoo.run.pipeline import Prefetcher
from zoo.trainer.protocol import StepOutput


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
    """Measurements of all ranks since the last log line."""

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
        """Combine the measurements of all ranks since the last call, on rank 0. A collective call."""
        rate = self._throughput.read(self._batches.data_wait)
        interval = self._wait_meter.read(self._throughput.elapsed)
        mine = {"interval": interval._asdict(), "times": self._step_times.read(), "resources": self._resources.read()}
        ranks = self._job.group.gather({"loss": loss, **mine})
        slowest = timing.worst([rank["interval"] for rank in ranks])
        times = timing.slowest([rank["times"] for rank in ranks])
        used = resources.combine([rank["resources"] for rank in ranks])
        fields = {**rate, "data_wait_fraction": slowest.share, **times, **used}
        return Measured(sum(rank["loss"] for rank in ranks), fields, self._causes.news(slowest))
