"""Tensors in the order of the computation, limits from the rounding that is measured, and who is in the minority."""

from itertools import groupby

import numpy as np
import pytest

from tests.helpers import proofs
from zoo.parity import differences, record
from zoo.parity.differences import events

BN = "training/3/out0"  # key of the output of stage.bn in PyTorch and Paddle

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
def right():
    return proofs.make(proofs.RIGHT)


@pytest.fixture
def records(right):
    return right[0]


def described(found, *fields):
    return [tuple(getattr(event, field) for field in fields) for event in found]


def test_stages_follow_each_other(records):
    stages = [stage for stage, _ in groupby(events(records), key=lambda event: event.stage)]
    assert stages == [
        "training",
        "evaluation",
        "update 1",
        "update 2",
        "prediction",
        "in windows",
        "training after the updates",
        "evaluation after the updates",
    ]


def test_forward_passes_are_in_the_order_of_the_computation(records):
    found = events(records)
    for stage in ("training", "evaluation", "training after the updates", "evaluation after the updates"):
        assert described([event for event in found if event.stage == stage], "name", "part") == MODULES


def test_an_update_is_loss_gradients_statistics_changes_optimizer(records):
    found = [event for event in events(records) if event.stage == "update 2"]
    assert described(found, "part", "name") == [
        ("loss", "loss"),
        *(("gradient", name) for name in BACKWARD),
        ("grad_norm", "grad_norm"),
        *(("statistic", name) for name in STATISTICS),
        *(("change", name) for name in BACKWARD),
        *(("optimizer", f"momentum/{name}") for name in proofs.GROUPS),
    ]


def test_calls_are_matched_by_name(records):
    """MindSpore has a module more, so that the numbers of the calls behind it differ."""
    event = next(e for e in events(records) if (e.stage, e.name, e.part) == ("training", "fc", "output"))
    assert event.keys == {"torch": "training/4/out0", "paddle": "training/4/out0", "mindspore": "training/5/out0"}
    assert {title: made.files for title, made in event.calls.items()} == {
        title: (f"{title}/model.py",) for title in records
    }


@pytest.mark.parametrize("first", ["torch", "mindspore"])
def test_a_module_of_one_framework_is_left_out(records, first):
    names = {event.name for event in events({first: records[first], **records})}
    assert "stage.extra" not in names and "stage.bn" in names


def beyond(found):
    return [(d.event.stage, d.event.part, d.event.name) for d in found if d.is_beyond]


def one(found, stage, part, name):
    (difference,) = (d for d in found if (d.event.stage, d.event.part, d.event.name) == (stage, part, name))
    return difference


def of_bn(found):
    return one(found, "training", "output", "stage.bn")


@pytest.mark.parametrize("titles", [("torch", "paddle"), ("mindspore", "torch"), ("torch", "paddle", "mindspore")])
def test_equal_computations_are_far_within_their_limits(right, titles):
    """They add in other orders; a limit 1000 times the noise would still be 10 times what they differ by."""
    fp64, fp32 = ({title: records[title] for title in titles} for records in right)
    found = differences.differences(fp64, fp32)
    assert beyond(found) == [] and len(found) == len(events(fp64)) > 70
    assert all(difference.largest < 0.02 * difference.limit for difference in found)
    assert any(difference.largest > 0 for difference in found)


@pytest.mark.parametrize("share, is_beyond", [(0.5, False), (2.0, True)])
def test_a_difference_next_to_the_limit(right, share, is_beyond):
    fp64, fp32 = right
    limit = of_bn(differences.differences(fp64, fp32)).limit
    moved = proofs.edit(fp64, "paddle", BN, lambda values: values + share * limit)
    difference = of_bn(differences.differences(moved, fp32))
    assert difference.is_beyond == is_beyond
    assert difference.apart == (("paddle",) if is_beyond else ())
    assert difference.largest == pytest.approx(share * limit, rel=0.1)
    assert difference.relative == difference.largest / difference.magnitude


@pytest.mark.parametrize(
    "key, part, name",
    [
        ("training after the updates/3/out0", "output", "stage.bn"),
        ("update 2/gradient/fc.weight", "gradient", "fc.weight"),
    ],
)
def test_rounding_that_has_grown_to_the_size_of_the_values_is_no_measure(right, key, part, name):
    """After an update, differences of up to a thousandth pass then; larger ones do not."""
    fp64, fp32 = right
    stage = key.partition("/")[0]
    magnitude = max(np.abs(record.get(key)).max() for record in fp64.values())
    moved = proofs.edit(fp64, "paddle", key, lambda values: values + 0.9e-3 * magnitude)
    far = proofs.edit(fp64, "paddle", key, lambda values: values + 1.2e-3 * magnitude)
    rounded = proofs.edit(fp32, "torch", key, lambda values: values + 0.1 * magnitude)
    less = proofs.edit(fp32, "torch", key, lambda values: values + 0.02 * magnitude)
    assert not one(differences.differences(moved, rounded), stage, part, name).is_beyond
    assert one(differences.differences(far, rounded), stage, part, name).apart == ("paddle",)
    assert one(differences.differences(moved, less), stage, part, name).apart == ("paddle",)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_an_infinite_difference(right, value):
    def change(values):
        values = values.copy()
        values.flat[0] = value
        return values

    fp64, fp32 = right
    difference = of_bn(differences.differences(proofs.edit(fp64, "paddle", BN, change), fp32))
    assert (difference.largest, difference.apart, difference.is_beyond) == (np.inf, ("paddle",), True)
    assert np.isfinite(difference.limit)
    two = proofs.edit(proofs.edit(fp64, "paddle", BN, change), "torch", BN, change)
    difference = of_bn(differences.differences(two, fp32))
    assert difference.is_beyond and difference.apart == ("torch", "paddle")
    everywhere = proofs.edit(two, "mindspore", BN, change)
    difference = of_bn(differences.differences(everywhere, fp32))
    assert difference.is_beyond and difference.apart == ("torch", "paddle", "mindspore")


@pytest.mark.parametrize("rounding, apart", [(1e-5, ()), (1e-12, ("torch", "paddle", "mindspore"))])
def test_a_change_that_is_rounding_alone(right, rounding, apart):
    """AdamW makes a large change in fp32 of a gradient that is 0 but for rounding, and a tiny one in fp64."""
    key = "update 1/change/stage.bn.bias"

    def replace(records, size):
        for number, title in enumerate(records):
            records = proofs.edit(records, title, key, lambda values, n=number: np.full_like(values, (n - 1) * size))
        return records

    fp64, fp32 = right
    found = differences.differences(replace(fp64, 1e-12), replace(fp32, rounding))
    assert one(found, "update 1", "change", "stage.bn.bias").apart == apart


def test_another_shape_is_an_infinite_difference():
    found = differences.differences(*proofs.planted(keeps_pixels=True))
    difference = one(found, "training", "input", "fc")
    assert (difference.largest, difference.apart) == (np.inf, ("paddle",))
    assert {part for _, part, _ in beyond(found)} == {"input"}


def test_a_change_outside_of_the_excerpt_is_found():
    images = np.random.default_rng(0).standard_normal((4, 3, 100, 100))
    other = images.copy()
    other[3, 1, 99, 99] += 1e-3
    fp64, fp32 = {}, {}
    for title, values in (("torch", images), ("paddle", other), ("mindspore", images)):
        for records, dtype in ((fp64, np.float64), (fp32, np.float32)):
            records[title] = record.empty(title, "fp64" if dtype == np.float64 else "fp32", proofs.settings())
            records[title].add("prediction", values.astype(dtype))
            records[title].passes.update({"training": []})
    (difference,) = differences.differences(fp64, fp32)
    assert difference.apart == ("paddle",) and difference.is_beyond


@pytest.mark.parametrize(
    "values, apart",
    [
        ((0, 0), ()),
        ((0, 1), ("a", "b")),
        ((0, 1, 0), ("b",)),
        ((0, 1, 2), ("a", "b", "c")),
        ((0, 0, 1, 1), ("a", "b", "c", "d")),
        ((0, 0, 0, 1, 2), ("d", "e")),
    ],
)
def test_who_differs_from_the_majority(right, values, apart):
    torch, rounded = right[0]["torch"], right[1]["torch"]
    fp64 = dict.fromkeys("abcde"[: len(values)], torch)
    for title, value in zip("abcde", values):
        fp64 = proofs.edit(fp64, title, BN, lambda array, value=value: array + value)
    assert of_bn(differences.differences(fp64, {"a": rounded})).apart == apart


def test_a_framework_without_fp64_is_compared_in_fp32(right):
    """Rounding is no difference then, and a difference of 1e-4 is none of rounding."""
    fp64, fp32 = right
    proofs_of = {"torch": fp64["torch"], "paddle": fp64["paddle"], "mindspore": fp32["mindspore"]}
    assert beyond(differences.differences(proofs_of, fp32)) == []
    key = "training/3/out0"
    moved = proofs.edit(proofs_of, "mindspore", key, lambda values: values * (1 + 1e-4))
    difference = of_bn(differences.differences(moved, {**fp32, "mindspore": moved["mindspore"]}))
    assert difference.apart == ("mindspore",) and 1e-7 < difference.limit < 1e-4
    everywhere_fp32 = differences.differences(fp32, fp32)  # they show no rounding: what remains is that of the type
    assert beyond(everywhere_fp32) == []


def test_the_change_of_a_large_weight_is_rounded_as_the_weight_is(right):
    """A frozen weight of 1000 that is read back with the last bit rounded has not changed."""
    key = "update 1/change/stage.bn.weight"
    for magnitude, is_beyond in ((1.0, True), (1e6, False)):
        settings = {**proofs.settings(), "magnitudes": {"stage.bn.weight": magnitude}}
        fp64, fp32 = ({t: r._replace(settings=settings) for t, r in records.items()} for records in right)
        moved = proofs.edit(fp64, "paddle", key, lambda values: values + 1e-10)
        found = one(differences.differences(moved, fp32), "update 1", "change", "stage.bn.weight")
        assert found.is_beyond == is_beyond


def test_what_both_compute_in_fp32_is_compared_so(right):
    """Such as the table of an embedding of positions, in a model of fp64."""
    fp64, _ = right
    key = "update 1/gradient/stage.bn.bias"
    narrow = {title: 2.0**-12 * np.float32(1 + np.arange(8)) for title in fp64}
    for moved, is_beyond in ((narrow["paddle"], True), (np.nextafter(narrow["torch"], np.float32(1)), False)):
        values = {**narrow, "paddle": np.float64(moved) + (1e-9 if is_beyond else 0)}
        records = fp64
        for title, each in values.items():
            records = proofs.edit(records, title, key, lambda old, each=each: np.resize(each, old.shape).astype(float))
        found = differences.differences(records, records)
        assert one(found, "update 1", "gradient", "stage.bn.bias").is_beyond == is_beyond


def test_a_tensor_of_zeros_has_the_scale_of_its_stage(right):
    """A gradient that is 0 but for rounding, such as that of a bias in front of a normalization."""
    fp64, _ = right
    key = "update 1/gradient/stage.bn.bias"
    for size, is_beyond in ((1e-17, False), (1e-10, True)):
        zeros = fp64
        for title in zeros:
            zeros = proofs.edit(zeros, title, key, np.zeros_like)
        moved = proofs.edit(zeros, "paddle", key, lambda values, size=size: values + size)
        found = differences.differences(moved, zeros)
        assert one(found, "update 1", "gradient", "stage.bn.bias").is_beyond == is_beyond
