"""Loader and reader processes of a run."""

import socket
from contextlib import suppress
from typing import NamedTuple

from zoo.data import host, loaders, mixing, order
from zoo.data.dataset import Pending
from zoo.data.errors import BadSample, UserError
from zoo.data.loaders import dali_graph
from zoo.data.loaders.dali_graph import DeviceDecoder
from zoo.data.stream import auto_workers
from zoo.run import resume
from zoo.run.job import Job

PROBES = 4  # samples, of which DALI must be able to decode one


class Loading(NamedTuple):
    """Reader processes of each rank, and what decodes their images.

    Attributes:
        loader: reference or dali.
        workers: number of processes per rank.
        cores: that this rank has for itself.
        notes: messages for the user about what was chosen here and not by the recipe.
        on_device: whether DALI decodes in the training process, on its GPU.
    """

    loader: str
    workers: int
    cores: float
    notes: tuple[str, ...]
    on_device: bool = False

    @property
    def stream_loader(self) -> str:
        """Loader of the streams, one of those of data/loaders."""
        return "encoded" if self.on_device else self.loader


def plan(job: Job, run: str | None = None, deterministic: bool = False) -> Loading:
    """Choose the loader and the number of workers, the same on every rank. A collective call.

    Args:
        job: data set and device.
        run: folder of the run to resume, None for a new one.
        deterministic: whether nothing may be decoded where equal pixels are not assured.

    Raises:
        UserError: the loader is not installed, or there is no GPU for it.
    """
    group, settings = job.group, job.train_set.settings
    mine = {"host": socket.gethostname(), "cores": host.cores()}
    ranks = group.all_gather(mine)
    local = [index for index, rank in enumerate(ranks) if rank["host"] == mine["host"]]
    cores = host.core_share([ranks[index]["cores"] for index in local], local.index(group.rank), host.cpu_quota())
    loader, notes = _choose_loader(job, run, deterministic)
    on_device = loader == "dali" and uses_gpu(job)
    if on_device and deterministic:
        if settings.dali_device == "gpu":
            raise UserError(
                "data.dali_device: NVIDIA does not say that its GPU decoders repeat their pixels to the last bit; take "
                "cpu with train.deterministic"
            )
        on_device, notes = False, (*notes, "data.dali_device: DALI decodes on the CPU, for train.deterministic")
    if on_device:
        notes += (f"data.dali_device: DALI decodes on {job.world.device}, with {dali_threads(cores)} threads",)
    workers = settings.workers
    if workers == "auto":
        workers = min(group.all_gather(auto_workers(cores, settings.threads)))
        notes += (f"data.workers: auto takes {workers} with data.threads={settings.threads}, for {cores:g} core(s)",)
    return Loading(loader, workers, cores, notes, on_device)


def open_decoder(job: Job, loading: Loading) -> DeviceDecoder | None:
    """Return what decodes the images that the readers leave encoded; None if they leave none."""
    return DeviceDecoder(job.world.cuda_index, dali_threads(loading.cores)) if loading.on_device else None


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


def _choose_loader(job: Job, run: str | None, deterministic: bool) -> tuple[str, tuple[str, ...]]:
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
    obstacle = "train.deterministic" if deterministic else _obstacle_to_dali(job)
    obstacle = next(filter(None, group.all_gather(obstacle)), None)
    loader, reason = ("reference", obstacle) if obstacle else ("dali", "which decodes on the GPU")
    return loader, (f"data.loader: auto takes {loader} ({reason})",)


def _obstacle_to_dali(job: Job) -> str | None:
    """Return why DALI would not decode on the GPU of this process; None if it would."""
    if not loaders.is_installed("dali"):
        return "DALI is not installed"
    if not uses_gpu(job):
        return "nothing is decoded on a GPU"
    for index, rng in enumerate(order.generators(0, "augment", range(min(PROBES, len(job.train_set))))):
        with suppress(BadSample):
            if any(isinstance(value, Pending) for value in job.train_set.plan(index, rng).values()):
                return None
    return f"DALI decodes none of the first {PROBES} samples"
