"""Checkpoints of parameters that are split over ranks: rank 0 writes, the others send their rows meanwhile."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zoo.distributed.control_group import Group
from zoo.run import checkpoint
from zoo.trainer import sharding
from zoo.trainer.protocol import Param, Trainer
from zoo.weights import files

MESSAGE = 1 << 23  # bytes that travel at once when a checkpoint is written; rank 0 holds three times as many for it


def save_checkpoint(
    group: Group, trainer: Trainer, run: str | None, step: int, record: Mapping[str, Any], best: bool, keep: int
) -> str | None:
    """Rank 0 writes the checkpoint of a step, all ranks give their rows; its path on rank 0. Called by all."""
    split = {param.name: param for param in trainer.params if param.rows}
    if group.rank and not split:
        return None
    tensors = trainer.state_dict()
    if split and group.size > 1:
        there = group.all_gather(group.rank == 0 and os.path.isdir(checkpoint.path_of(run, step)))[0]
        if group.rank and not there:
            _hand_over(tensors, split, group)
        if group.rank:
            return None
        tensors = {name: _whole(array, split.get(name.rpartition("/")[2]), group) for name, array in tensors.items()}
    return checkpoint.save_checkpoint(run, step, tensors, record, best, keep)


def _whole(mine: np.ndarray, param: Param | None, group: Group) -> np.ndarray | files.Blocks:
    """On rank 0: a tensor of which the others hand over their rows while it is written."""
    if param is None:
        return mine

    def blocks() -> Iterator[np.ndarray]:
        yield mine
        for rank in range(1, group.size):
            first, last = sharding.rows(param.shape[0], rank, group.size)
            for _ in range(0, last - first, _step(mine)):
                yield np.frombuffer(group.receive_from(rank), mine.dtype)

    return files.Blocks(param.shape, mine.dtype, blocks())


def _hand_over(tensors: Mapping[str, np.ndarray], split: Mapping[str, Param], group: Group) -> None:
    """On the other ranks: give the rows held here, in the order in which a checkpoint's files hold them."""
    for name in [name for names in checkpoint.in_files(tensors) for name in names if name.rpartition("/")[2] in split]:
        step = _step(tensors[name])
        for start in range(0, len(tensors[name]), step):
            group.send_to_root(tensors[name][start : start + step].tobytes())


def _step(like: np.ndarray) -> int:
    """Rows per message."""
    return max(1, MESSAGE // like[0].nbytes)
