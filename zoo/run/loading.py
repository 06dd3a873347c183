"""Loader and reader processes of a run, chosen where they are auto, and how long the run waits for them."""

import socket
from contextlib import suppress
from typing import NamedTuple

from zoo.data import host, loaders, mixing, order, worker_count
from zoo.data.batch import batch_bytes
from zoo.data.errors import BadSample, UserError
from zoo.data.loaders import dali_graph
from zoo.data.pending import Pending
from zoo.data.readers import batches_per_worker
from zoo.data.shared_memory import megabytes
from zoo.run import resume
from zoo.run.job import Job
from zoo.run.pipeline import SPARE

PROBES = 4  # samples, of which DALI must be able to decode one
SEMAPHORES = 2**20  # bytes of shared memory, with what else the processes of a rank need there
HELD_IN_EVALUATION = 3  # batches of an evaluation beside those of its readers: predicted, copied, and on their way


class Loading(NamedTuple):
    """Reader processes of each rank, and what decodes their images.

    Attributes:
        loader: reference or dali.
        workers: number of processes per rank.
        local_size: ranks on this host.
        cores: that this rank has for itself.
        notes: messages for the user about what was chosen here and not by the recipe.
        on_device: whether DALI decodes in the training process, on its GPU.
    """

    loader: str
    workers: int
    local_size: int
    cores: float
    notes: tuple[str, ...]
    on_device: bool = False

    @property
    def stream_loader(self) -> str:
        """Loader of the streams, one of those of data/loaders."""
        return "encoded" if self.on_device else self.loader


def plan(job: Job, seed: int, run: str | None = None, deterministic: bool = False, eval_batch: int = 0) -> Loading:
    """Choose the loader and the number of workers, the same on every rank. A collective call.

    Args:
        job: data set and batch size.
        seed: of the run.
        run: folder of the run to resume, None for a new one.
        deterministic: whether nothing may be decoded where equal pixels are not assured.
        eval_batch: samples in a batch of the evaluations, which read beside the training; 0 without any.

    Raises:
        UserError: the loader is not installed, there is no GPU for it, or shared memory is too small for any process.
    """
    group, setting = job.group, job.train_set.settings.workers
    mine = {"host": socket.gethostname(), "cores": host.cores()}
    ranks = group.all_gather(mine)
    local = [index for index, rank in enumerate(ranks) if rank["host"] == mine["host"]]
    cores = host.core_share([ranks[index]["cores"] for index in local], local.index(group.rank), host.cpu_quota())
    loader, notes = _choose_loader(job, seed, run, deterministic)
    on_device = loader == "dali" and uses_gpu(job)
    if on_device and deterministic:
        if job.train_set.settings.dali_device == "gpu":
            raise UserError(
                "data.dali_device: NVIDIA does not say that its GPU decoders repeat their pixels to the last bit; take "
                "cpu with train.deterministic"
            )
        on_device, notes = False, (*notes, "data.dali_device: DALI decodes on the CPU, for train.deterministic")
    if on_device:
        notes += (f"data.dali_device: DALI decodes on {job.world.device}, with {dali_threads(cores)} threads",)
    if setting != "auto":
        workers, note = _fit(job, setting, len(local), eval_batch)
        return Loading(loader, workers, len(local), cores, (*notes, *note), on_device)
    count = worker_count.choose(
        cores,
        batch_bytes(job.train_set.fields, job.batch_plan.batch),
        job.train_set.settings.threads,
        host.free_shared_memory() / len(local),
    )
    workers, reason = min(group.all_gather(count))
    notes += (f"data.workers: auto takes {workers} ({reason})",)
    workers, note = _fit(job, workers, len(local), eval_batch)
    return Loading(loader, workers, len(local), cores, (*notes, *note), on_device)


def _fit(job: Job, workers: int, local_size: int, eval_batch: int) -> tuple[int, tuple[str, ...]]:
    """Return how many of the workers have room in shared memory on every rank, and a note if some have not; collective.

    Args:
        job: data sets and batch size.
        workers: processes of each rank that would read for the training, and as many for an evaluation.
        local_size: ranks on this host.
        eval_batch: as in `plan`.
    """
    if workers == 0:
        return 0, ()
    train = batch_bytes(job.train_set.fields, job.batch_plan.batch)
    val = batch_bytes(job.val_set.fields, eval_batch) if eval_batch else 0
    held = (2 * job.batch_plan.accumulate + SPARE) * train + HELD_IN_EVALUATION * val + SEMAPHORES
    needs = {
        count: local_size * (count * batches_per_worker(job.train_set.settings.threads) * (train + val) + held)
        for count in (1, workers)
    }
    free = host.free_shared_memory()
    fits, error = workers, None
    try:
        fits = worker_count.fit(workers, needs[1], needs[workers], free)
    except UserError as refused:
        error = str(refused)
    ranks = job.group.all_gather([fits, error])
    for _, message in ranks:
        if message:
            raise UserError(message)
    smallest = min(rank[0] for rank in ranks)
    if smallest == workers:
        return workers, ()
    return smallest, (
        f"data.workers: {smallest} instead of {workers}, whose batches may need "
        f"{megabytes(needs[workers])} of {host.SHARED_MEMORY}, where {megabytes(free)} are free on this host",
    )


def dali_threads(cores: float) -> int:
    """Return the number of DALI's threads in a training process that has so many cores for itself."""
    return max(1, round(cores))


def uses_gpu(job: Job) -> bool:
    """Return whether DALI decodes on the GPU of this process. Raises UserError if it cannot.

    Samples that are mixed with others are decoded where batches are read.
    """
    setting, device = job.train_set.settings.dali_device, job.world.cuda_index
    if setting == "gpu" and device is None:
        raise UserError(
            f"data.dali_device: gpu needs a CUDA device, and this process trains on {job.world.device}; set "
            "-o data.dali_device=auto, with which DALI decodes on the CPU here"
        )
    if setting == "cpu" or device is None or mixing.is_on(job.train_set.settings):
        return False
    dali_graph.require_device(device)
    return True


def _choose_loader(job: Job, seed: int, run: str | None, deterministic: bool) -> tuple[str, tuple[str, ...]]:
    """Return the loader and messages for the user. A resumed run keeps its loader, since pixels differ a little."""
    setting, group = job.train_set.settings.loader, job.group
    if setting != "auto":
        loaders.require(setting)
        return setting, ()
    recorded = resume.begun(group, run).get("loader")
    if recorded:
        if not loaders.is_installed(recorded):
            raise UserError(
                f"data.loader: auto took {recorded} when this run began, which is not installed here; "
                "pip install 'vision-zoo[dali]', or set -o data.loader=reference"
            )
        return recorded, (f"data.loader: auto takes {recorded}, as this run did before",)
    obstacle = "train.deterministic" if deterministic else _obstacle_to_dali(job, seed)
    obstacle = next(filter(None, group.all_gather(obstacle)), None)
    loader, reason = ("reference", obstacle) if obstacle else ("dali", "which decodes on the GPU")
    return loader, (f"data.loader: auto takes {loader} ({reason})",)


def _obstacle_to_dali(job: Job, seed: int) -> str | None:
    """Return why DALI would not decode on the GPU of this process; None if it would."""
    if not loaders.is_installed("dali"):
        return "DALI is not installed"
    if not uses_gpu(job):
        return "nothing is decoded on a GPU"
    for index, rng in enumerate(order.generators(seed, "augment", range(min(PROBES, len(job.train_set))))):
        with suppress(BadSample):
            if any(isinstance(value, Pending) for value in job.train_set.plan(index, rng).values()):
                return None
    return f"DALI decodes none of the first {PROBES} samples"
