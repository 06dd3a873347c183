"""Parameters that are split over ranks by rows: who holds which, and which of them an update uses."""
import os
from typing import Any, Iterator, Mapping, Optional, Tuple, Union

import numpy as np

from data import order
from zoo.trainer import checkpoint
from zoo.trainer.group import Group
from zoo.trainer.protocol import Param, Trainer
from zoo.weights import files

MESSAGE = 1 << 23  # bytes that travel at once when a checkpoint is written; rank 0 holds three times as many for it


def rows(count: int, rank: int, size: int) -> Tuple[int, int]:
    """[first, last) of `count` rows on a rank: balanced, the first `count` mod `size` ranks hold one more."""
    each, more = divmod(count, size)
    first = rank * each + min(rank, more)
    return first, first + each + (rank < more)


def used(held: int, rate: float, labels: int) -> int:
    """How many of `held` rows an update uses: a share `rate`, but never fewer than it may have positives.

    So the number is the same in every update, as a compiled step wants it, and no positive is ever left out.
    labels: samples of the update, over all ranks.
    """
    return min(held, max(int(rate * held), labels))


def sample(positives: np.ndarray, held: int, count: int, seed: int, rank: int, number: int) -> np.ndarray:
    """`count` of `held` rows, rising, int64: all positives (rising, unique), the others drawn evenly.

    Partial FC (arXiv:2203.15565), as a function of the seed, the rank and the number of the update: the same in every
    framework and after every resume. Costs no time or memory in proportion to `held` while `count` is small.
    """
    rng = order.generator(seed, f"rows of rank {rank}", number)
    others = np.sort(rng.choice(held - len(positives), count - len(positives), replace=False, shuffle=False))
    # The k-th row that is no positive has k plus as many positives as lie before it.
    others += np.searchsorted(positives - np.arange(len(positives)), others, side="right")
    return np.sort(np.concatenate([positives, others]))


def save_checkpoint(group: Group, trainer: Trainer, run: Optional[str], step: int, record: Mapping[str, Any],
                    best: bool, keep: int) -> Optional[str]:
    """Rank 0 writes the checkpoint of a step, all ranks give their rows; its path on rank 0. Called by all."""
    split = {param.name: param for param in trainer.params if param.rows}
    if group.rank and not split:
        return None
    tensors = trainer.dump()
    if split and group.size > 1:
        there = group.gather(group.rank == 0 and os.path.isdir(checkpoint.path_of(run, step)))[0]
        if group.rank and not there:
            _hand_over(tensors, split, group)
        if group.rank:
            return None
        tensors = {name: _whole(array, split.get(name.rpartition("/")[2]), group) for name, array in tensors.items()}
    return checkpoint.save_checkpoint(run, step, tensors, record, best, keep)


def _whole(mine: np.ndarray, param: Optional[Param], group: Group) -> Union[np.ndarray, files.Blocks]:
    """On rank 0: a tensor of which the others hand over their rows while it is written."""
    if param is None:
        return mine

    def blocks() -> Iterator[np.ndarray]:
        yield mine
        for rank in range(1, group.size):
            first, last = rows(param.shape[0], rank, group.size)
            for _ in range(0, last - first, _step(mine)):
                yield np.frombuffer(group.take(rank), mine.dtype)
    return files.Blocks(param.shape, mine.dtype, blocks())


def _hand_over(tensors: Mapping[str, np.ndarray], split: Mapping[str, Param], group: Group) -> None:
    """On the other ranks: give the rows held here, in the order in which a checkpoint's files hold them."""
    for name in [name for names in checkpoint.in_files(tensors) for name in names if name.rpartition("/")[2] in split]:
        step = _step(tensors[name])
        for start in range(0, len(tensors[name]), step):
            group.hand(tensors[name][start:start + step].tobytes())


def _step(like: np.ndarray) -> int:
    """Rows per message."""
    return max(1, MESSAGE // like[0].nbytes)
