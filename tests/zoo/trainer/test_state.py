"""Descriptions, keys and checks of a trainer's tensors."""

from types import SimpleNamespace

import numpy as np

from zoo.trainer import state
from zoo.trainer.protocol import Param

SHARD = SimpleNamespace(num_rows=11, first=4, last=8)


def report(gradients=(), **values):
    """Report tensors of one element; those called *_stat are running statistics."""
    params = [Param(name, (1,), name.endswith("_stat")) for name in values]
    tensors = {name: np.array([value]) for name, value in values.items()}
    gradients = {name: None if value is None else np.array([value]) for name, value in dict(gradients).items()}
    return state.nonfinite_report(params, tensors, gradients, lambda array: bool(np.isfinite(array).all()))


def test_a_param_has_the_shape_of_the_whole_tensor():
    assert state.describe("fc.weight", [5, 4], False, None) == Param("fc.weight", (5, 4))
    assert state.describe("bn.running_var", [4], True, None) == Param("bn.running_var", (4,), True)
    sharded = state.describe("head.weight", [4, 6], False, SHARD)
    assert sharded == Param("head.weight", (11, 6), False, (4, 8)) and sharded.size == 66


def test_weights_averages_and_momentum_of_shards_are_sharded_keys():
    keys = {"head.weight", "ema/head.weight", "optimizer/momentum/head.weight", "optimizer/mean/head.weight"}
    assert state.sharded_keys({"head.weight": SHARD}, ("momentum", "mean")) == keys
    assert state.sharded_keys({}, ("momentum",)) == set()


def test_momentum_of_older_checkpoints_has_another_key():
    assert state.current_key("momentum/fc.weight") == state.slot_key("momentum", "fc.weight")
    assert state.current_key("optimizer/momentum/fc.weight") == "optimizer/momentum/fc.weight"
    assert [state.current_key(key) for key in ("fc.weight", "scaler/scale")] == ["fc.weight", "scaler/scale"]


def test_a_report_of_finite_tensors():
    assert report(weight=1.0, mean_stat=2.0, gradients={"weight": 0.0, "bias": None}) == "all finite"


def test_a_report_names_weights_statistics_and_gradients():
    text = report(a=np.nan, b=1.0, mean_stat=np.inf, gradients={"a": -np.inf, "b": 1.0, "c": None})
    assert text == "not finite: weights a; running statistics mean_stat; gradients of a"
    assert report(a=1.0, gradients={"a": np.nan}) == "not finite: gradients of a"


def test_a_report_names_a_few_of_many():
    values = dict.fromkeys("abcde", np.nan)
    assert (
        report(**values, gradients=values) == "not finite: weights a, b, c and 2 more; gradients of a, b, c and 2 more"
    )


def test_tensors_of_whose_report_one_can_go_on():
    """Those of which only the gradients are not finite, on all ranks."""
    gradients = report(a=1.0, gradients={"a": np.nan})
    assert state.is_finite_but_gradients("all finite") and state.is_finite_but_gradients(f"{gradients}; {gradients}")
    for broken in (report(a=np.nan), report(a=1.0, mean_stat=np.nan, gradients={"a": np.nan})):
        assert not state.is_finite_but_gradients(broken)
        assert not state.is_finite_but_gradients(f"{gradients}; {broken}")
