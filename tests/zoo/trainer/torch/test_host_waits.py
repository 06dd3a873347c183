"""An update asks for no value of a tensor, for which the host would have to wait until a GPU has computed it."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.helpers.frameworks import adapter
from tests.zoo.trainer import head_cases, margin_cases, trainer_setup
from zoo.tasks import segment
from zoo.trainer.objectives import Segmentation
from zoo.trainer.plan import Mode
from zoo.trainer.torch import ops

READS = ("_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal", "unique")


def _indices(args):
    return args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else []


class Reads(TorchDispatchMode):
    """Record of the operators whose result, or its shape, is a value of a tensor."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.partition("::")[2]
        is_mask = name.startswith("index") and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in _indices(args)
        )
        if name.startswith(READS) or is_mask:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


def test_reads_are_recorded():
    x, row = torch.tensor([1.0, 0.0]), torch.tensor(1)
    for read in (x[0].item, x.nonzero, lambda: bool(x[0] > 0), lambda: x[x > 0], lambda: x[row]):
        with Reads() as reads:
            read()
        assert len(reads.names) == 1


@pytest.mark.parametrize("compute", ["fp32", "fp16", "bf16"])
def test_an_update_of_a_model(compute):
    mode = Mode(compute, "O1", True, False)
    trainer, _ = trainer_setup.make_tsm(
        adapter("torch"),
        mode,
        dropout=0.5,
        smoothing=0.1,
        clip_norm=1.0,
        accumulate=2,
        fp32_modules=("fc",),
        checkpointed_modules=("layer1.0", "layer2.0"),
    )
    batches = [trainer.to_device(trainer_setup.random_clips(seed=seed)) for seed in range(2)]
    with Reads() as reads:
        for step in range(2):
            trainer.step(batches, 0.05, step)
    assert reads.names == []


@pytest.mark.parametrize("elements", [1 << 28, 24])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_an_update_of_a_class_matrix(rate, elements):
    backend = adapter("torch")
    task = {"sample_rate": rate, "interclass": 0.4}
    trainer = margin_cases.make(
        backend, Mode("bf16", "O1", True, False), 60, task, clip_norm=1.0, clip_sharded=False, accumulate=2
    )
    batch = trainer.to_device(margin_cases.random_batch(classes=60))
    with head_cases.chunks_of(backend, elements), Reads() as reads:
        for step in range(2):
            trainer.step([batch, batch], 0.05, step)
    assert reads.names == []


@pytest.mark.parametrize("threshold", [None, 0.7])
def test_a_loss_of_hard_pixels(threshold):
    settings = segment.Settings(ohem_kept=20, ohem_threshold=threshold)
    objective, rng = Segmentation(ops, settings, None, torch.float32, torch.float64), np.random.default_rng(0)
    logits = [torch.from_numpy(rng.standard_normal((2, 5, 8, 8), np.float32)).requires_grad_() for _ in range(2)]
    batch = {"label": torch.from_numpy(rng.integers(0, 5, (2, 8, 8)).astype(np.uint8))}
    with Reads() as reads:
        (objective.total(logits, batch["label"]) / objective.count(batch)).backward()
    assert reads.names == []
