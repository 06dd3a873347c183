"""One run of train.py: what the loop does beside the step."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.config import loader
from zoo.config.schema import Duration
from zoo.data.errors import UnreadableData, UserError
from zoo.data.stream import UnreadableSample, open_training
from zoo.distributed import group as groups
from zoo.logs.journal import Journal
from zoo.logs.lines import end_text
from zoo.run import checkpoint, description, resume, stopping
from zoo.run.evaluation import Evaluations
from zoo.run.folder import write_recipe
from zoo.run.job import Job
from zoo.run.meters import MeanLoss, Meters, WaitMeter
from zoo.run.pipeline import SPARE, Decoding, LoaderPlan, Prefetcher
from zoo.run.profiling import WARM_UP, RunProfile
from zoo.run.request import Request
from zoo.run.resume import DataState
from zoo.run.stopping import BadSampleTracker, EvaluationStopped, Reports, StopSignal
from zoo.run.visualizer import Visualizer
from zoo.trainer.protocol import DeviceBatch, StepOutput
from zoo.weights.recorded import rank

if TYPE_CHECKING:
    from zoo.data.loaders.dali_graph import DeviceDecoder
    from zoo.logs.console import Console


class Loop(NamedTuple):
    """Companions of the trainer in the updates of this process."""

    batches: Prefetcher[DeviceBatch]
    losses: MeanLoss
    meters: Meters
    bad_samples: BadSampleTracker
    profile: RunProfile


class Run:
    """A run beside its trainer: its folder, logs, read-ahead and position.

    Every method is called by all ranks alike; only rank 0 writes files.

    Attributes:
        first_step: updates done before this process began.
        last_step: updates done when the run ends.
        described: for the console, the checkpoints and the event `begin`.
        folder: None on other ranks than 0, and where nothing but an evaluation is done.
        exit_code: of the process; 128 + the signal that stopped the run.
        metrics: of the last evaluation; None before it.
    """

    def __init__(
        self,
        request: Request,
        job: Job,
        data_state: DataState,
        steps: tuple[int, int],
        described: dict[str, Any],
        *,
        loader_plan: LoaderPlan,
        decoder: "DeviceDecoder | None",
        evaluations: Evaluations,
        console: "Console",
        folder: str | None,
        journal: Journal,
        visualizer: Visualizer,
        stop_signal: StopSignal,
    ):
        """Begin nothing yet. data_state: on the data, with the progress so far. steps: the first and the last one."""
        self.request, self.config, self.job = request, request.config, job
        self.recipe, self.described = loader.render(request.resolved), described
        self.first_step, self.last_step = steps
        self.loader_plan, self.decoder, self.evaluations = loader_plan, decoder, evaluations
        self.console, self.folder, self.journal, self.visualizer = console, folder, journal, visualizer
        self.stop_signal, self.exit_code = stop_signal, 0
        self.metrics: dict[str, Any] | None = None
        self._data_state, self._progress = data_state, data_state.progress
        self._reports = Reports(job.group, stop_signal)
        self._named = {event["name"] for event in journal.events if event["event"] == "bad"}
        self._early_end: tuple[str, str | None] | None = None  # why the run ends before its last step: name, message
        self._error: UserError | None = None  # of all ranks alike; raised when the step has been saved
        self._loop: Loop | None = None

    @property
    def loop(self) -> Loop:
        """Companions of the trainer, while there are updates."""
        assert self._loop, "only within `steps`"
        return self._loop

    def close(self) -> None:
        """End the threads and processes that read data."""
        if self._loop:
            self._loop.batches.close()
        self.evaluations.close()

    def steps(self) -> Iterator[int]:
        """Make up for a missing evaluation, start reading ahead, then yield the index of every update that is left."""
        if self._is_complete():
            return
        self.stop_signal.install()
        self._add_first_events()
        if self._evaluation_is_missing() and not self._evaluate(self.first_step):
            return
        if self._ends_after(self.first_step):  # before a kill or a signal
            self.last_step = self.first_step
            return
        if self.folder and self.request.changed:
            write_recipe(self.folder, self.recipe)
        self._loop = self._open_loop()
        for step in range(self.first_step, self.last_step):
            self.job.group.set_status(f"computing step {step + 1}")
            self._loop.profile.before(step)
            yield step

    def take(self, done: int) -> list[DeviceBatch]:
        """Return the micro-batches of the update after `done` updates."""
        try:
            return self.loop.batches.take(self.job.plan.accumulate)
        except UserError as error:
            if self.job.group.size == 1 and done > self.first_step:  # other ranks may be within the update already
                self.save(done)
            self._fail(error)
            raise

    def poll(self, done: int, output: StepOutput) -> bool:
        """Exchange signals, unreadable samples and errors of reading between all ranks; return whether to stop.

        They are exchanged every so many steps (zoo/run/stopping.py), and before anything is saved.
        """
        loop, settings = self.loop, self.config.train
        loop.losses.add(output)
        loop.meters.add_update()
        self.console.tick(done)
        follows = self.due(settings.eval_every, done) or self.due(settings.save_every, done)
        if follows or self._reports.is_due(done):
            known = len(self._progress.unreadable)
            unreadable = loop.batches.pop_unreadable()
            stop = self._reports.share(done, unreadable, loop.bad_samples.add, loop.batches.failure)
            self._fail(stop.error)
            if len(self._progress.unreadable) > known:
                self._keep_progress()
            if stop.signal and done < self.last_step:
                self.exit_code = 128 + stop.signal
        stops = bool(self.exit_code or self._error)
        if loop.profile.is_running:
            loop.meters.pause()
            loop.profile.after(done, stops or follows)
            loop.meters.resume()
        return stops

    def due(self, every: Duration, done: int) -> bool:
        """Return whether something periodic is due after `done` updates; after the last one everything is."""
        return done == self.last_step or self.job.clock.due(every, done)

    def log(self, done: int) -> bool:
        """Add a `train` event; return whether to stop, because the last updates had no finite gradient."""
        job, loop = self.job, self.loop
        ends_interval = job.clock.due(self.config.train.log_every, done)  # else the checkpoint carries it on
        values, loss = loop.losses.take(ends_interval)
        measured = loop.meters.read(loss)
        epoch, lr = float(job.clock.epochs(done)), job.lr(done - 1)
        fields = {**values, "loss": measured.loss, **measured.fields, **loop.profile.read()}
        self.journal.add("train", step=done, epoch=epoch, lr=lr, **fields)
        if measured.cause:
            name, message, interval = measured.cause
            self.journal.add("data_wait", step=done, cause=name, message=message, **interval._asdict())
        skips, loss = int(values["consecutive_skips"]), sum(job.group.all_gather(values["loss"]))
        is_lost = skips and (not math.isfinite(loss) or values["skipped"] >= done)
        if skips >= self.config.train.max_consecutive_skips or (is_lost and done == self.last_step):
            report = groups.nonfinite_report(job.group, job.trainer)
            self._error = UserError(
                f"no finite gradient in the last {skips} updates, from step {done - skips + 1} to {done} "
                f"(loss {loss:g}, lr {lr:g}, loss scale {values['scale']:g}); {report}. {self._remedy}"
            )
        return self._error is not None

    def save(self, done: int) -> bool:
        """Save a checkpoint; return whether to stop, because its tensors are not finite: then none is written."""
        job, loop = self.job, self.loop
        loop.meters.pause()
        job.group.set_status(f"saving step {done}")
        self.journal.sync()  # a checkpoint on the disk has its events there, too
        self._progress.losses = job.group.all_gather(loop.losses.so_far())
        for epoch in [epoch for epoch in self._progress.by_epoch if epoch < int(job.clock.epochs(done))]:
            del self._progress.by_epoch[epoch]
        record = {
            **self.described,
            "classes": job.class_names,
            "epoch": float(job.clock.epochs(done)),
            "recipe": self.recipe,
            "loader": self.loader_plan.loader,
        }
        keep = self.config.train.keep_checkpoints
        try:
            with self.console.activity("saving"):
                beside = self._data_state.files() if self.folder else {}
                path = checkpoint.save_shared(job.group, job.trainer, self.folder, done, record, keep, beside)
        except checkpoint.NotFinite as error:
            message = f"step {done} is not saved, because nothing can go on from it: not finite are {error}"
            self.console.print(message)
            self._error = self._error or UserError(f"{message}. {self._remedy}")
            return True
        self.journal.add("save", step=done, path=path)
        loop.meters.resume()
        return False

    @property
    def _remedy(self) -> str:
        return f"Lower optim.lr{', warm up, or train in fp32' if self.job.plan.mode.is_mixed else ' or warm up'}"

    def evaluate(self, done: int) -> bool:
        """Evaluate the checkpoint that was saved after `done` updates; return whether it, or a signal, ends the run."""
        self.loop.meters.pause()
        if not self._evaluate(done):
            return True
        self.loop.meters.resume()
        if self._ends_after(done):
            self.last_step = done
        if done == self.last_step and self.metrics and not math.isfinite(self.metrics["accuracy"]):
            message = f"the predictions after step {done} are not finite: the run has diverged"
            self._error = UserError(f"{message}. {self._remedy}")
        return done == self.last_step

    def finish(self) -> None:
        """Log that the run has ended, or how to continue it if a signal stopped it."""
        for line in stopping.unreadable_summary(self.journal.events, len(self.job.train_set)):
            self.console.print(line)
        if self._error:
            self.job.group.all_gather(None)  # the first rank to end ends the others; rank 0 has saved now
            raise self._error
        if self.exit_code:
            number = self.exit_code - 128
            self.console.print(f"stopped by signal {number} after saving; go on with --resume {self.folder}")
        elif not self.journal.has("end"):
            epoch = float(self.job.clock.epochs_done(self.config.train.eval_every, self.last_step))
            whole = "steps" if self.last_step == self.job.clock.steps else "max_steps"
            reason, message = self._early_end or (whole, None)
            self.journal.add("end", step=self.last_step, epoch=epoch, reason=reason, message=message)
            self.journal.sync()
            if self.folder:
                self.console.summarize(self.journal.events, self.folder)

    def evaluate_only(self) -> None:
        """Evaluate the restored tensors and print the metrics; write nothing."""
        self.metrics = self.evaluations.measure(
            self.visualizer.metrics(), lambda sample: self.console({"event": "bad", **vars(sample)})
        )
        self.console({"event": "eval", **self.metrics})
        if not math.isfinite(self.metrics["accuracy"]):
            raise UserError("the predictions of these weights are not finite; evaluate an earlier checkpoint")

    def _add_first_events(self) -> None:
        """Add `resume`, or `load` and `begin`, and record the data. All ranks gather the facts of their machines."""
        job, request, data_state = self.job, self.request, self._data_state
        place = description.place(job, self.config)
        if request.resume and self.folder:
            path = checkpoint.latest(request.resume)
            changes = description.resume(job, request, self.loader_plan, self.described["weights"])
            changeable = {**(changes if self.first_step < self.last_step else {}), **place}  # else nothing is trained
            resume.add_events(self.journal, self.folder, self.first_step, path, self._progress, **changeable)
            if data_state.change:
                self.journal.add("data_changed", first_step=self.first_step, **data_state.change)
            if path:  # with what was accepted and mended
                for name, content in data_state.files().items():
                    checkpoint.replace(path, name, content)
            checkpoint.remove_old(self.folder, self.config.train.keep_checkpoints)
        if not self.journal.has("load"):
            at = self.journal.at(job.data.loaded_at)
            self.journal.add("load", at=at, checksum=job.data.record.checksum, train_samples=len(job.train_set))
        if not self.journal.has("begin"):
            speed = request.speed and asdict(request.speed)
            begun = description.begin(job, request, self.loader_plan, self.described["weights"])
            self.journal.add("begin", **self.described, **begun, **place, speed=speed)

    def _is_complete(self) -> bool:
        end = self.journal.last("end")
        complete = self._ends_after(self.first_step) and end is not None
        if end and complete:
            kept = "; config.yaml stays as it was" if self.request.changed else ""
            self.console.print(f"{self.folder} {end_text(end, self.job.clock.steps)}: nothing to do{kept}")
        return self.job.group.all_gather(complete)[0]  # rank 0 has the journal

    def _ends_after(self, done: int) -> bool:
        """Return whether a run ends after `done` updates: its last one, or where what has been evaluated ends it."""
        if done >= self.last_step:
            return True
        best, target = self._progress.best(), self.config.target
        mine: tuple[str, str | None] | None = None
        if self.request.until_target and best is not None and target is not None and best >= target:
            mine = "target", None
        elif message := self._progress.early_end(self.config.train.early_stopping):
            mine = "early_stopping", message
        self._early_end = self.job.group.all_gather(mine)[0]  # rank 0 has the journal
        return self._early_end is not None

    def _evaluation_is_missing(self) -> bool:
        """Return whether a signal, a kill or an error prevented the evaluation of the restored checkpoint."""
        missing = False
        if self.job.group.rank == 0 and self.first_step and self.due(self.config.train.eval_every, self.first_step):
            last = self.journal.last("eval")
            logged = last is not None and last["step"] == self.first_step
            missing = not logged or self.first_step not in self._progress.evaluations
        return self.job.group.all_gather(missing)[0]

    def _open_loop(self) -> Loop:
        """Start reading ahead, and wait for the batches of the first update."""
        job, group, settings = self.job, self.job.group, self.config.train
        group.set_status(f"reading the data of step {self.first_step + 1}")
        first, last = (step * job.plan.accumulate for step in (self.first_step, self.last_step))
        stream = open_training(
            job.train_set,
            self.config.seed,
            job.batch_plan.batch,
            first,
            last,
            group.rank,
            group.size,
            job.dropout_masks,
            self.loader_plan.workers,
            self.loader_plan.stream_loader,
        )
        decoding = Decoding(self.decoder, stream.batches, first) if self.decoder else None
        batches = Prefetcher(stream, job.trainer.to_device, job.plan.accumulate + SPARE, decoding)
        batches.preload(job.plan.accumulate)
        carried = group.all_gather(self._progress.losses)[0]  # that of rank 0 counts
        losses = MeanLoss(job.trainer.read, carried, group.rank, group.size)
        meters = Meters(job, batches, WaitMeter(stream, batches, self.loader_plan.cores))
        bad_samples = BadSampleTracker(job.train_set, self._log_unreadable, self._progress.by_epoch)
        count = int(settings.profile.value) if settings.profile and not self.journal.has("profile") else 0
        if count and self.last_step - self.first_step <= WARM_UP:
            self.console.print(f"train.profile: nothing is profiled, the first {WARM_UP} updates of a process warm up")
        profile = RunProfile(job, self.folder, self.first_step, count, self.journal.add)
        return Loop(batches, losses, meters, bad_samples, profile)

    def _log_unreadable(self, sample: UnreadableSample) -> None:
        """Add a `bad` event, once per run, although resumes and evaluations come upon the sample again."""
        self._progress.unreadable.update(self.job.data.files_of(sample.name))
        if sample.name not in self._named:
            self._named.add(sample.name)
            self.journal.add("bad", **vars(sample))

    def _fail(self, error: UserError | None) -> None:
        """End the run with an error when this step has been saved; a resume learns which samples may be mended."""
        if error:
            self._error = error
            for name, reason in getattr(error, "unreadable", {}).items():
                self._progress.unreadable.update(self.job.data.files_of(name))
                self.journal.add("unreadable", name=name, reason=reason)
            self._keep_progress()

    def _keep_progress(self) -> None:
        """Write what became known since the newest checkpoint into it."""
        path = checkpoint.latest(self.folder) if self.folder else None
        if path:
            checkpoint.replace(path, checkpoint.PROGRESS, self._progress.content())

    def _evaluate(self, done: int) -> bool:
        """Write the metrics beside the checkpoint, link `best` and add an `eval` event; return False after a signal.

        A resume makes up for an evaluation that a signal or an error has ended.
        """
        try:
            self.metrics = metrics = self.evaluations.measure(self.visualizer.metrics(), self._log_unreadable)
        except EvaluationStopped as stopped:
            self.exit_code = 128 + stopped.number
            return False
        except UnreadableData as error:
            self._fail(error)
            self.job.group.all_gather(None)  # the first rank to end ends the others; rank 0 has written its events now
            raise
        evaluations, is_best = self._progress.evaluations, False
        if self.folder:
            best = checkpoint.find_best(self.folder, evaluations, before=done)
            is_best = math.isfinite(metrics["accuracy"]) and (best is None or rank(metrics) > best.rank)
            evaluations[done] = metrics["accuracy"]
            self._keep_progress()  # before the event, without which a resume repeats the evaluation
            checkpoint.save_evaluation(self.folder, done, metrics, is_best, self.config.train.keep_checkpoints)
        epoch = float(self.job.clock.epochs_done(self.config.train.eval_every, done))
        self.journal.add("eval", step=done, epoch=epoch, **metrics)
        if self.folder and is_best:
            self.journal.add("best", step=done, path=checkpoint.path_of(self.folder, done))
        self.visualizer.show(done, done > self.first_step)
        return True
