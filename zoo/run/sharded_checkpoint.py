"""Checkpoints of parameters that are split over ranks: rank 0 writes, the other ranks send their rows."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zoo.distributed.group import Group
from zoo.run import checkpoint
from zoo.trainer import sharding
from zoo.trainer.protocol import Param, Trainer
from zoo.weights import files

MESSAGE_BYTES = 1 << 23  # rank 0 holds three messages at once while it writes


def save_checkpoint(
    group: Group, trainer: Trainer, run: str | None, step: int, record: Mapping[str, Any], keep: int
) -> str | None:
    """Save the checkpoint of a step; called by all ranks.

    Args:
        run: the run's folder on rank 0, None on the other ranks.
        step, record, keep: as checkpoint.save_checkpoint takes them.

    Returns:
        The folder of the checkpoint on rank 0, None on the other ranks.
    """
    sharded = {param.name: param for param in trainer.params if param.rows}
    if group.rank and not sharded and not trainer.gathers_state:
        return None
    state = trainer.state_dict()
    if group.rank and not sharded:
        return None
    tensors: Mapping[str, np.ndarray | files.StreamedTensor] = state
    if sharded and group.size > 1:
        exists = group.all_gather(run is not None and os.path.isdir(checkpoint.path_of(run, step)))[0]
        if group.rank:
            if not exists:
                _send_rows(state, sharded, group)
            return None
        tensors = {name: _gathered(array, sharded.get(name.rpartition("/")[2]), group) for name, array in state.items()}
    assert run is not None
    return checkpoint.save_checkpoint(run, step, tensors, record, keep)


def _gathered(local_rows: np.ndarray, param: Param | None, group: Group) -> np.ndarray | files.StreamedTensor:
    """On rank 0: the tensor, whose rows of other ranks are received while it is written."""
    if param is None:
        return local_rows
    shape = param.shape

    def blocks() -> Iterator[np.ndarray]:
        yield local_rows
        for rank in range(1, group.size):
            first, last = sharding.row_range(shape[0], rank, group.size)
            for _ in range(0, last - first, _rows_per_message(local_rows)):
                yield np.frombuffer(group.receive_from(rank), local_rows.dtype)

    return files.StreamedTensor(shape, local_rows.dtype, blocks())


def _send_rows(tensors: Mapping[str, np.ndarray], sharded: Mapping[str, Param], group: Group) -> None:
    """On the other ranks: send the local rows in the order in which the files hold the tensors."""
    for names in checkpoint.names_by_file(tensors).values():
        for name in names:
            if name.rpartition("/")[2] in sharded:
                rows = _rows_per_message(tensors[name])
                for start in range(0, len(tensors[name]), rows):
                    group.send_to_root(tensors[name][start : start + rows].tobytes())


def _rows_per_message(tensor: np.ndarray) -> int:
    return max(1, MESSAGE_BYTES // tensor[0].nbytes)
