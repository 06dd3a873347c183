"""What may stand in one table."""

import pytest

from data.errors import UserError
from tests.tools.reporting.runs import speed_events, training_events, write
from tools.reporting import journals
from tools.reporting.comparability import check


@pytest.fixture
def run(tmp_path):
    def make(name, events=None, **begin):
        return journals.read(write(tmp_path / name, events or training_events(**begin)))

    return make


def test_different_protocols_of_a_model_are_refused_with_their_runs(run, tmp_path):
    runs = [run("a"), run("b", protocol="k400/8x10x3@256"), run("c")]
    with pytest.raises(UserError) as caught:
        check(runs, force=False)
    text = str(caught.value)
    assert "the results of tsm have different protocols" in text and "--force" in text
    assert f"k400/8x1x1@224 ({tmp_path}/a, {tmp_path}/c); k400/8x10x3@256 ({tmp_path}/b)" in text


def test_forced_they_are_marked(run):
    (warning,) = check([run("a"), run("b", protocol="other")], force=True)
    assert warning.startswith("NOT COMPARABLE, forced: the results of tsm have different protocols: k400/8x1x1@224 (")


def test_models_have_protocols_of_their_own(run):
    assert check([run("a"), run("b", speed_events(9.0))], force=False) == []


def test_an_unknown_protocol_is_not_another_one(run):
    assert check([run("a"), run("b", protocol=None)], force=False) == []


@pytest.mark.parametrize(
    "values, aspect",
    [
        ({"target": 0.7}, "different targets, so their Time2train cannot be compared: 0.711 ("),
        ({"checksum": "0" * 32}, "different data (checksums): 37724b19b6e5d41f9f147936d60b3c29 ("),
        ({"flops_per_sample": 1e9}, "different architectures (operations of a sample): 6.58e+10 ("),
        ({"git": {"commit": "f" * 40, "dirty": True}}, f"{'f' * 12} with changes ("),
        ({"framework_version": "2.11.0"}, "different versions of torch: 2.13.0 ("),
        ({"hosts": [], "device": "cuda:0 (NVIDIA H200)"}, "different devices: Tesla V100-SXM2-16GB ("),
    ],
)
def test_other_differences_are_warnings(run, values, aspect):
    (warning,) = check([run("a"), run("b", **values)], force=False)
    assert aspect in warning


def test_many_runs_are_counted(run):
    warnings = check([*(run(f"a{i}") for i in range(5)), run("b", target=0.7)], force=False)
    assert "and 2 more)" in warnings[0]
