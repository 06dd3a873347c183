"""zoo/compare/ranks.py: two ranks that hold other weights, statistics that are no mean, and frameworks that differ."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.torch import adapter
from tests.zoo.trainer.trainer_setup import make
from zoo.compare import ranks
from zoo.distributed.group import Group as OneRank
from zoo.parity.record import empty

PARAMS = [SimpleNamespace(name="fc.weight", is_statistic=False, rows=None)]
PARAMS += [SimpleNamespace(name="bn.running_mean", is_statistic=True, rows=None)]
PARAMS += [SimpleNamespace(name="head.weight", is_statistic=False, rows=(0, 2))]


class Group:
    """This rank and another one, whose state is `other`."""

    rank, size = 0, 2

    def __init__(self, other):
        self.other = other

    def all_gather(self, checksums):
        return [checksums, {key: ranks.zlib.crc32(self.other[key].tobytes()) for key in checksums or ()}]

    def sum(self, arrays):
        return {name: array + self.other[name] for name, array in arrays.items()}


class Trainer:
    params = PARAMS

    def __init__(self, averages=("bn.running_mean", "ema/bn.running_mean")):
        self.averages = averages
        self.state = {key: np.float32([1, 2]) for key in ("fc.weight", "optimizer/momentum/fc.weight", "head.weight")}
        self.state |= {key: np.float32([1, 2]) for key in ("bn.running_mean", "ema/bn.running_mean", "ema/fc.weight")}

    def state_dict(self):
        return self.state

    def sync_batch_stats(self):
        self.state.update((key, np.float32([2, 1])) for key in self.averages)


@pytest.fixture
def no_file(monkeypatch):
    monkeypatch.setattr(ranks.checkpoint, "save_shared", lambda group, trainer, *_: trainer.sync_batch_stats())


def apart(trainer, **changes):
    """Return what is wrong beside a rank with other statistics and rows, as it must be, and with changes."""
    other = {**Trainer().state, "head.weight": np.float32([5, 6]), "bn.running_mean": np.float32([3, 0])}
    other |= {"ema/bn.running_mean": np.float32([3, 0]), **changes}
    job = SimpleNamespace(group=Group(other), plan=SimpleNamespace(ema=True))
    return [*ranks._unequal(job, trainer), *ranks._not_the_mean(job, trainer, "")]


def test_ranks_hold_the_same_weights_and_the_mean_of_statistics(no_file):
    assert apart(Trainer()) == []
    for key in ("fc.weight", "ema/fc.weight", "optimizer/momentum/fc.weight"):
        (what,) = apart(Trainer(), **{key: np.float32([1, 2.1])})
        assert what == f"{key} differs between processes after 2 updates"
    for averages in (("bn.running_mean",), ("ema/bn.running_mean",)):
        (what,) = apart(Trainer(averages))
        assert "running_mean is not the mean over processes before a checkpoint" in what


@pytest.mark.parametrize("lost", [None, "optimizer/momentum/", "fc.weight", "running_mean"])
def test_an_update_goes_on_from_a_checkpoint(lost, tmp_path, monkeypatch):
    trainer, group = make(adapter, adapter.FP64_MODES[0]), OneRank(SimpleNamespace(rank=0, size=1), {}, None)
    batch, load = trainer.to_device(random_batch()), trainer.load_state_dict
    for step in range(ranks.UPDATES):
        trainer.step([batch], 0.1, step)
    job = SimpleNamespace(group=group, plan=trainer.plan)
    assert list(ranks._not_the_mean(job, trainer, str(tmp_path))) == []
    if lost:
        monkeypatch.setattr(
            trainer, "load_state_dict", lambda state: load({key: state[key] for key in state if lost not in key})
        )
    found = ranks._continued(job, trainer, [batch], 0.1, str(tmp_path))
    assert len(found) == bool(lost) and all("differs after an update that goes on from" in what for what in found)


def record(title, gradient=1.0, **settings):
    files = {topic: [f"{title}/{topic}.py"] for topic in ("trainer", "update", "shards", "ranks")}
    result = empty(
        title, "fp64", {"apart": [], "continued": [], "opinions": [], "param_groups": {}, "sharded": [], **settings}
    )
    result.files.update(files)
    result.passes["training"] = []
    step = {"title": "update 1", "grad_norm": 1.0, "norm_of_gradients": 1.0, "deviations": {}}
    result.steps.append(step)
    result.add("update 1/gradient/fc.weight", np.array([gradient, 2.0]))
    result.add("update 1/loss", np.array(1.0))
    return result


@pytest.mark.parametrize("change, count", [(1.0, 0), (1 + 1e-10, 0), (1.001, 1)])
def test_frameworks_are_compared(change, count):
    records = {title: record(title) for title in ("torch", "mindspore")} | {"paddle": record("paddle", change)}
    found = ranks.findings(records)
    assert len(found) == count
    if count:
        assert found[0].titles == ("paddle",) and found[0].places[0] == "paddle/trainer.py"
        assert found[0].what == "with 2 processes, update 1: gradient of fc.weight differs by 5.0e-04"
        pair = {title: records[title] for title in ("torch", "paddle")}
        assert ranks.findings(pair)[0].titles == ("torch", "paddle")


@pytest.mark.parametrize("size, count", [(1e-16, 0), (1e-3, 1)])
def test_updates_by_a_gradient_of_rounding_alone_are_not_compared(size, count):
    """AdamW makes a whole update of a bias before a normalization, whose gradient is 0 but for rounding."""
    records = {"torch": record("torch"), "jax": record("jax")}
    for sign, each in enumerate(records.values()):
        each.add("update 1/gradient/conv.bias", np.array([size]))
        each.add("update 1/change/fc.weight", np.array([0.1, 0.1]))
        each.add("update 1/change/conv.bias", np.array([0.05 * sign]))
    found = ranks.findings(records)
    assert [each.what for each in found] == ["with 2 processes, update 1: change of conv.bias differs by 5.0e-01"][
        :count
    ]


def test_who_goes_on_from_wrong_weights_is_not_at_fault():
    """Paddle's gradient is wrong, so PyTorch's update from its checkpoint differs from that from its own weights."""
    records = {
        "torch": record("torch", continued=["fc.weight differs after an update that goes on from paddle-run"]),
        "paddle": record("paddle", 1.001),
    }
    (found,) = ranks.findings(records)
    assert found.what.startswith("with 2 processes, update 1: gradient of fc.weight") and "paddle" in found.titles
    (found,) = ranks.findings({**records, "paddle": record("paddle")})
    assert found.titles == ("torch",) and found.what.endswith("goes on from paddle-run")


def test_what_one_framework_shows_alone():
    wrong = record("torch", apart=["x differs between processes"], opinions=[["the loss is 1", ["loss.py"]]])
    first, second = ranks.findings({"torch": wrong})
    assert (first.titles, first.what) == (("torch",), "with 2 processes, x differs between processes")
    assert (second.titles, second.places) == (("every framework",), ("loss.py",))
    wrong = record("torch")
    wrong.steps[0]["norm_of_gradients"] = 1.5
    assert "the norm of the gradients is 1.5, and reported as 1" in ranks.findings({"torch": wrong})[0].what
