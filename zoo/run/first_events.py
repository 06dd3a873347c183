"""The first events of a process: what is trained on which data, or where a resume goes on."""

from dataclasses import asdict
from typing import Any

from zoo.logs.journal import Journal, NullJournal
from zoo.run import best_checkpoint, checkpoint, data_record, facts
from zoo.run.cli import Request
from zoo.run.job import Job
from zoo.run.loading import Loading


def add(
    journal: Journal | NullJournal,
    folder: str | None,
    request: Request,
    job: Job,
    loading: Loading,
    described: dict[str, Any],
    first_step: int,
) -> None:
    """Add the events, record the data, and restore the links of a run that is resumed. Called by all ranks.

    Args:
        journal: of the run.
        folder: of the run; None on other ranks than 0.
        request, job, loading: the run.
        described: what `facts.describe` tells of it.
        first_step: updates done before this process began.
    """
    place = facts.place(job, request.config)
    if request.resume and folder:
        changeable = {**facts.resume(job, request, loading), **place}
        _add_resume(journal, folder, job, first_step, checkpoint.latest(request.resume), changeable)
        checkpoint.remove_old(folder, request.config.train.keep_checkpoints)
    if folder and job.data_verdict.record and not request.speed:
        data_record.write(folder, job.data_verdict.record)
    if not journal.has("load"):
        at = journal.at(job.loaded_at)
        journal.add("load", at=at, checksum=job.record.checksum, train_samples=len(job.train_set))
    if not journal.has("begin"):
        speed = request.speed and asdict(request.speed)
        journal.add("begin", **described, **facts.begin(job, request, loading), **place, speed=speed)


def _add_resume(
    journal: Journal | NullJournal,
    folder: str,
    job: Job,
    first_step: int,
    path: str | None,
    changeable: dict[str, Any],
) -> None:
    """Add `resume`, and the events that a kill has prevented. path: of the checkpoint to go on from, if any."""
    journal.add("resume", step=first_step, path=path, **changeable)
    if job.data_verdict.change:
        journal.add("data_changed", first_step=first_step, **job.data_verdict.change)
    last = journal.last("save")
    if first_step and (last is None or last["step"] < first_step):
        journal.add("save", step=first_step, path=path)  # a kill came after the checkpoint
    best_checkpoint.restore_links(folder, journal, first_step)
