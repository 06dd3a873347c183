"""zoo/compare/events.py: the order of the tensors, and which of several records are the same one."""

from itertools import groupby

import pytest

from tests.helpers import proofs
from zoo.compare import differences

MODULES = [  # in the order in which tensors are computed
    ("", "input"),
    ("stage", "input"),
    ("stage.conv", "input"),
    ("stage.conv", "output"),
    ("stage.bn", "input"),
    ("stage.bn", "output"),
    ("stage", "output"),
    ("fc", "input"),
    ("fc", "output"),
    ("", "output"),
]
BACKWARD = ["fc.weight", "fc.bias", "stage.bn.weight", "stage.bn.bias", "stage.conv.weight"]
STATISTICS = ["stage.bn.running_mean", "stage.bn.running_var"]


@pytest.fixture
def records():
    return proofs.make(proofs.RIGHT)[0]


def described(found, *fields):
    return [tuple(getattr(event, field) for field in fields) for event in found]


def test_stages_follow_each_other(records):
    stages = [stage for stage, _ in groupby(differences.events(records), key=lambda event: event.stage)]
    assert stages == [
        "training",
        "evaluation",
        "update 1",
        "update 2",
        "prediction",
        "training after the updates",
        "evaluation after the updates",
    ]


def test_forward_passes_are_in_the_order_of_the_computation(records):
    found = differences.events(records)
    for stage in ("training", "evaluation", "training after the updates", "evaluation after the updates"):
        assert described([event for event in found if event.stage == stage], "name", "part") == MODULES


def test_an_update_is_loss_gradients_statistics_changes_optimizer(records):
    found = [event for event in differences.events(records) if event.stage == "update 2"]
    assert described(found, "part", "name") == [
        ("loss", "loss"),
        *(("gradient", name) for name in BACKWARD),
        ("grad_norm", "grad_norm"),
        *(("statistic", name) for name in STATISTICS),
        *(("change", name) for name in BACKWARD),
        *(("optimizer", f"momentum/{name}") for name in proofs.GROUPS),
    ]


def test_the_prediction_is_a_tensor(records):
    (event,) = (event for event in differences.events(records) if event.stage == "prediction")
    assert event.keys == dict.fromkeys(records, "prediction") and event.part == "prediction"


def test_calls_are_matched_by_name(records):
    """MindSpore has a module more, so that the numbers of the calls behind it differ."""
    event = next(e for e in differences.events(records) if (e.stage, e.name, e.part) == ("training", "fc", "output"))
    assert event.keys == {"torch": "training/4/out0", "paddle": "training/4/out0", "mindspore": "training/5/out0"}
    assert {title: made.files for title, made in event.calls.items()} == {
        title: (f"{title}/model.py",) for title in records
    }


@pytest.mark.parametrize("first", ["torch", "mindspore"])
def test_a_module_of_one_framework_is_left_out(records, first):
    names = {event.name for event in differences.events({first: records[first], **records})}
    assert "stage.extra" not in names and "stage.bn" in names


def test_a_module_of_two_of_three_frameworks_is_compared_between_them(records):
    extra = proofs.record("paddle", proofs.Variant(has_extra=True), "fp64")
    found = differences.events({"mindspore": records["mindspore"], "paddle": extra, "torch": records["torch"]})
    keys = [set(event.keys) for event in found if event.name == "stage.extra"]
    assert keys == [{"mindspore", "paddle"}] * 8


def test_a_parameter_of_one_framework_is_left_out(records):
    frozen = {
        title: proofs.record(title, proofs.Variant(frozen=("fc.bias",)), "fp64") for title in ("paddle", "mindspore")
    }
    found = differences.events({"torch": records["torch"], **frozen})
    parts = {event.part for event in found if event.name.endswith("fc.bias")}
    assert parts == {"change"}


def test_a_module_that_is_called_twice_has_two_tensors(records):
    def twice(record):
        calls = record.passes["training"]
        again = calls[-1]._replace(occurrence=1, span=(13, 14))
        return record._replace(passes={**record.passes, "training": [*calls, again]})

    found = differences.events({title: twice(record) for title, record in records.items()})
    outputs = [e for e in found if (e.stage, e.name, e.part) == ("training", "fc", "output")]
    assert len(outputs) == 2
    outputs = differences.events({**records, "torch": twice(records["torch"])})
    assert len([e for e in outputs if (e.stage, e.name, e.part) == ("training", "fc", "output")]) == 1


def test_inputs_that_all_frameworks_have_are_compared(records):
    """One passes a dropout mask to a module, say, and the others do not."""
    target = records["paddle"]
    calls = [made._replace(inputs=2) if made.name == "fc" else made for made in target.passes["training"]]
    more = target._replace(passes={**target.passes, "training": calls})
    found = differences.events({**records, "paddle": more})
    assert described(found, "name", "part").count(("fc", "input")) == 4


def test_backward_order_starts_with_the_loss(records):
    names = ["stage.conv.weight", "fc.weight", "head.weight", "stage.bn.bias", "fc.bias"]
    order = differences.backward_order(records["torch"], names)
    assert order == ["head.weight", "fc.weight", "fc.bias", "stage.bn.bias", "stage.conv.weight"]


def test_one_record_has_nothing_to_compare(records):
    assert differences.events({"torch": records["torch"]}) == []
