"""Reader processes of a run, chosen from the machine where data.workers is auto."""

import socket
from typing import NamedTuple

from data import host, worker_count
from data.batch import batch_bytes
from zoo.run.job import Job


class Loading(NamedTuple):
    """Reader processes of each rank.

    Attributes:
        workers: number of processes per rank.
        local_size: ranks on this host.
        note: message for the user about the choice, None if the recipe gives the number.
    """

    workers: int
    local_size: int
    note: str | None


def plan(job: Job) -> Loading:
    """Choose the number of workers, the same on every rank. A collective call."""
    group, setting = job.group, job.train_set.settings.workers
    is_auto = setting == "auto"
    cost = worker_count.measure_cost(job.train_set) if is_auto else None
    mine = {"host": socket.gethostname(), "cores": host.cores(), "cost": cost}
    ranks = group.all_gather(mine)
    local = [index for index, rank in enumerate(ranks) if rank["host"] == mine["host"]]
    if not is_auto:
        return Loading(setting, len(local), None)
    cores = host.core_share([ranks[index]["cores"] for index in local], local.index(group.rank), host.cpu_quota())
    cost = worker_count.Cost(*max(rank["cost"] for rank in ranks))
    choice = worker_count.choose(
        cost,
        cores,
        job.batch_plan.batch,
        batch_bytes(job.train_set.fields, job.batch_plan.batch),
        job.train_set.settings.threads,
        host.free_shared_memory() / len(local),
    )
    choice = min(worker_count.Choice(*each) for each in group.all_gather(choice))
    return Loading(choice.workers, len(local), f"data.workers: auto takes {choice.workers} ({choice.reason})")
