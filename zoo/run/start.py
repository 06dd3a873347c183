"""A run from its parts: the processes join, the job is assembled, its tensors are restored, folder and logs opened."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

from zoo.config import loader
from zoo.data import cache
from zoo.data.convert import plain
from zoo.data.errors import Option, UserError
from zoo.distributed import environment
from zoo.distributed import group as groups
from zoo.logs.journal import Journal
from zoo.logs.lines import rank_lines
from zoo.logs.viewers import Viewer
from zoo.run import description, folder, pipeline, resume
from zoo.run.dataset import write_table
from zoo.run.evaluation import Evaluations
from zoo.run.folder import FolderLock
from zoo.run.job import Job, assemble, join, load
from zoo.run.pipeline import LoaderPlan
from zoo.run.request import Request
from zoo.run.resume import DataState
from zoo.run.session import Run
from zoo.run.stopping import StopSignal
from zoo.run.visualizer import Visualizer
from zoo.trainer import device
from zoo.weights.files import is_onnx

if TYPE_CHECKING:
    from zoo.logs.console import Console

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
OUT_OF_MEMORY = re.compile("out of memory|memory not enough", re.IGNORECASE)  # words of the frameworks


@contextmanager
def start(request: Request) -> Iterator["Run"]:
    """Join the processes, assemble the job, restore its tensors and open the logs; tear all down on the way out."""
    if is_onnx(weights := request.config.weights):
        from zoo.run import exported  # which most runs do without

        exported.check_use(weights, request.eval_only, request.resume)
    group = run = None
    lock = FolderLock()
    try:
        threads = os.environ.get(environment.THREADS)
        group = join(request, os.environ)
        goes_on = None if request.eval_only else request.resume
        damaged = resume.claim(goes_on, lock) if goes_on and group.rank == 0 else []
        request = request._replace(notes=[*request.notes, *group.all_gather(damaged)[0]])
        data = load(request, group)
        data_state = resume.check_data(group, goes_on, data, request.accept_changed_data)
        kept = resume.begun(group, request.resume)
        job = assemble(request, group, data, kept)
        if job.world.device.startswith("cpu"):
            request.notes.append(environment.describe_threads(threads, os.environ))
            if device.is_slower_than_fp32(compute := job.plan.mode.compute):
                request.notes.append(f"train.precision: {compute} takes longer than fp32 on this processor")
        run = _open(request, job, data_state, kept, lock)
        with run.journal:
            yield run
        run.close()
        job.world.close()
        group.close()
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            error = UserError(
                f"the run's folder cannot be written to: {error.strerror}. What was saved before is complete; make "
                "room and continue with ",
                Option("--resume"),
            )
        elif OUT_OF_MEMORY.search(str(error)):
            error = UserError(
                "the device has too little memory for this recipe: take a smaller train.batch and a larger "
                "train.accumulate, ",
                Option("--amp", True),
                ", or train.checkpoint_activations=true; see `zoo bench estimate`",
            )
        if group:
            reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            group.fail(reason)
        if run:
            run.close()
        raise error
    finally:
        if run:
            run.stop_signal.restore()
        lock.release()


def _open(request: Request, job: Job, data_state: DataState, kept: dict[str, Any], lock: FolderLock) -> Run:
    """Restore the tensors, choose who reads the data, make the folder, open the logs, and describe it all."""
    from zoo.logs.console import Console  # and rich, which other programs do without

    cfg, group, is_root = request.config, job.group, job.group.rank == 0
    last_step = _last_step(request, job.clock.steps)
    out = None if is_root else open(os.devnull, "w")  # noqa: SIM115
    console = Console(last_step, out, epochs=cfg.train.epochs, metric=job.task.PRIMARY, verbose=request.verbose)
    for note in request.notes:
        console.print(note)
    first_step, origin = resume.restore(cfg, job, request.resume, console.print, request.eval_only)
    groups.assert_same(group, "the step to go on from", first_step)
    if cfg.weights:  # a name or an address is the same on every host, and its path in a cache is not
        origin = origin.replace(cfg.weights, str(request.resolved["weights"].value), 1)
    groups.assert_same(group, "the origin of the weights", origin)
    described = description.describe(job, cfg, origin)
    loader_plan = pipeline.plan_loader(job.train_set, job.world, group, kept.get("loader"), cfg.train.deterministic)
    decoder, stop_signal = pipeline.open_decoder(job.world, loader_plan), StopSignal()
    train_samples = 0 if request.eval_only else cfg.train.eval_train_samples
    evaluations = Evaluations(job, cfg, loader_plan, decoder, console.track, train_samples, stop_signal)
    path: str | None = None
    journal: Journal = Journal(None, [])
    viewers: list[Viewer] = []
    if is_root and not request.eval_only and not request.check_only:  # after all that may refuse the run
        path, journal, viewers = _open_folder(request, job, console, lock)
    _describe(request, job, data_state, console, described, loader_plan)
    return Run(
        request,
        job,
        data_state,
        (first_step, last_step),
        described,
        loader_plan=loader_plan,
        decoder=decoder,
        evaluations=evaluations,
        console=console,
        folder=path,
        journal=journal,
        visualizer=Visualizer(job, cfg, viewers),
        stop_signal=stop_signal,
    )


def _open_folder(request: Request, job: Job, console: "Console", lock: FolderLock) -> tuple[str, Journal, list[Viewer]]:
    """Make or take the run's folder, lock it and open the logs; return it, the journal and the viewers."""
    recipe = loader.render(request.resolved)
    path = folder.open_folder(request.resume, request.config.out, request.recipe, recipe, lock)
    with ExitStack() as undone:  # where a log cannot be opened, as that of a tracker without a login
        if not request.resume:
            undone.callback(shutil.rmtree, path, ignore_errors=True)  # all in it is of this start
        journal, viewers = _open_logs(path, request, recipe, console, undone)
        undone.pop_all()
    write_table(job.data.check, path)
    return path, journal, viewers


def _open_logs(
    folder: str, request: Request, recipe: str, console: "Console", undone: ExitStack
) -> tuple[Journal, list[Viewer]]:
    """Open the journal of a run with all its listeners; return those that show images, histograms and text, too.

    Args:
        undone: closes what is open where the next cannot be opened.
    """
    from zoo.logs import airank
    from zoo.logs.tensorboard import TensorBoard
    from zoo.logs.trackers import TRACKERS

    cfg = request.config
    entries = {key: plain(entry.value) for key, entry in request.resolved.items()}
    given = {key: value for key, value in entries.items() if request.resolved[key].origin != loader.DEFAULT}
    viewers: list[Viewer] = [undone.enter_context(closing(TensorBoard(folder, recipe, given)))]
    for name, project in request.track.items():
        viewers.append(undone.enter_context(closing(TRACKERS[name](folder, project, entries))))
    called = [console, *viewers, airank.Writer(folder, cfg.target, cfg.warmup_epochs)]
    if cfg.listeners:
        from zoo.logs import listeners

        called += listeners.open_listeners(folder, cfg)
    return Journal(folder, called), viewers


def _describe(
    request: Request,
    job: Job,
    data_state: DataState,
    console: "Console",
    described: dict[str, Any],
    loader_plan: LoaderPlan,
) -> None:
    """Show what the run is. A collective call."""
    ranks = groups.describe_ranks(job.group, job.world.device, job.framework)
    if job.group.size > 1:
        for line in rank_lines(job.group.launch.launcher, ranks):
            console.print(line)
    notes = (*job.train_set.notes, *job.data.check.lines, *data_state.lines, *cache.notes(request.config.data))
    console.describe(described, request.changed, notes)
    for note in (*job.notes, *loader_plan.notes):
        console.print(note)


def _last_step(request: Request, steps: int) -> int:
    window = request.speed
    if window and window.steps > steps:
        raise UserError(
            f"--speed: {window.steps} updates ({window.drop} dropped, {window.count} timed), but the recipe's run has "
            f"{steps}; lower --drop and --count, or raise train.epochs or train.steps"
        )
    if window:
        return window.steps
    return min(steps, request.max_steps or steps)
